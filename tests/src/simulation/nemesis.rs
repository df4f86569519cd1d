//! What goes wrong: networks are cut or slow, machines are paused or lose power, slots are killed or stopped, clocks step,
//! disks are full. (Answers get lost in `world.rs`.)

use super::{slot::Slot, world::World};

/// Something may go wrong in this step.
pub(crate) fn strike(world: &mut World, slots: &mut [Slot]) {
    if !world.chance(25) {
        return;
    }
    let host = world.below(world.hosts.len() as u64) as usize;
    let slot = world.below(slots.len() as u64) as usize;
    let long = world.time + 1_000 + world.below(25_000);
    let what = match world.below(10) {
        0 | 1 => {
            world.hosts[host].cut_off_until = long;
            "partition"
        }
        2 => {
            world.hosts[host].paused_until = long;
            "pause"
        }
        3 => {
            world.hosts[host].slow_until = long;
            "slow"
        }
        4 => {
            let steps = [-31_536_000_000, -120_000, -5_000, 5_000, 120_000, 31_536_000_000];
            world.server_off += steps[world.below(steps.len() as u64) as usize];
            "clock step"
        }
        5 => {
            slots[slot].kill(world);
            "kill"
        }
        6 => {
            slots[slot].stopped_since.get_or_insert(world.time);
            slots[slot].stopped_until = long;
            "stop"
        }
        7 => {
            for slot in slots.iter_mut().filter(|slot| slot.host == host) {
                slot.power_cut(world);
            }
            let boot = format!("boot-{host}-{}", world.time);
            world.hosts[host].boot = boot;
            "power cut"
        }
        8 => {
            world.store_full_until = world.time + 500 + world.below(4_000);
            "store full"
        }
        _ => {
            world.ledger_full_until = long;
            "ledger full"
        }
    };
    *world.report.nemeses.entry(what).or_default() += 1;
    let name = world.hosts[host].name.clone();
    world.remember(&format!("nemesis: {what} ({name}, {})", slots[slot].name()));
}

/// Everything is as it should be again.
pub(crate) fn heal(world: &mut World, slots: &mut [Slot]) {
    let time = world.time;
    for host in &mut world.hosts {
        for until in [&mut host.cut_off_until, &mut host.paused_until, &mut host.slow_until] {
            *until = (*until).min(time);
        }
    }
    for slot in slots {
        slot.stopped_until = slot.stopped_until.min(time);
    }
    world.store_full_until = world.store_full_until.min(time);
    world.ledger_full_until = world.ledger_full_until.min(time);
}
