//! Replicas that edit and exchange at random end byte-identical, with nothing lost.

use std::collections::{BTreeMap, BTreeSet};

use toft_ledger::{
    clock::{Clock, Replica},
    line,
    record::{Key, Record, Set},
};

/// A small generator that gives the same numbers everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

struct Clone {
    name: Replica,
    newest: Clock,
    records: BTreeMap<String, Record>,
}

impl Clone {
    fn tick(&mut self, wall: u64) -> Clock {
        self.newest = Clock::after(self.newest, wall, self.name);
        self.newest
    }

    /// As a file would carry it: lines out, lines in.
    fn send(&self) -> Vec<String> {
        self.records.values().map(line::write).collect()
    }

    fn receive(&mut self, lines: &[String]) {
        for text in lines {
            let read = line::read(text).expect("a line that was written");
            assert_eq!(read.made, line::LineOrigin::Written);
            self.newest = self.newest.max(read.record.newest());
            match self.records.get_mut(read.record.id()) {
                Some(known) => known.merge(read.record),
                None => drop(self.records.insert(read.record.id().to_owned(), read.record)),
            }
        }
    }
}

#[test]
fn replicas_that_exchange_in_any_order_end_byte_identical_and_lose_nothing() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for game in 0..20 {
        let count = 3 + game % 3;
        let mut clones: Vec<Clone> = (0..count)
            .map(|n| Clone {
                name: format!("r{n}").parse().expect("a name"),
                newest: Clock::ZERO,
                records: BTreeMap::new(),
            })
            .collect();
        let (mut ids, mut said, mut fields) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for round in 0..500u64 {
            let at = dice.roll(count);
            // Clocks of machines do not agree, and one goes backwards now and then.
            let wall = 1_000 + round * 10 - (dice.roll(500) as u64).min(round * 10);
            if dice.roll(4) == 0 {
                let from = dice.roll(count);
                let mut lines = clones[from].send();
                if dice.roll(2) == 0 {
                    lines.reverse();
                }
                lines.truncate(lines.len() - dice.roll(lines.len() + 1) / 2);
                clones[at].receive(&lines);
                continue;
            }
            let clone = &mut clones[at];
            let clock = clone.tick(wall);
            let id = match clone.records.len() {
                0 => format!("tf-{game}-{round}"),
                _ if dice.roll(6) == 0 => format!("tf-{game}-{round}"),
                known => clone.records.keys().nth(dice.roll(known)).cloned().expect("a record"),
            };
            ids.insert(id.clone());
            let record = clone.records.entry(id.clone()).or_insert_with(|| Record::new(id.clone(), clock));
            match dice.roll(5) {
                0 => {
                    let label = ["a", "b", "c"][dice.roll(3)];
                    record.set(Key::label(label), clock, (dice.roll(2) == 0).then(|| format!("\"{label}\"").into()));
                }
                1 => {
                    let comment = format!("{round}");
                    said.insert((id.clone(), comment.clone()));
                    let member = format!("{{\"id\":\"{comment}\"}}");
                    record.set(Key::Member(Set::Comments, comment.as_str().into()), clock, Some(member.into()));
                }
                2 => record.set(Key::field("deleted"), clock, (dice.roll(2) == 0).then(|| "{}".into())),
                _ => {
                    let field = format!("f{}", dice.roll(4));
                    fields.insert((id.clone(), field.clone()));
                    record.set(Key::field(&field), clock, Some(format!("\"{round}\"").into()));
                }
            }
        }
        // Everyone hears of everyone, in an order of their own.
        for _ in 0..2 {
            for at in 0..count {
                for step in 0..count {
                    let lines = clones[(at + step) % count].send();
                    clones[at].receive(&lines);
                }
            }
        }
        let end = clones[0].send();
        assert!(clones.iter().all(|clone| clone.send() == end), "game {game}");
        let records = &clones[0].records;
        assert_eq!(records.keys().cloned().collect::<BTreeSet<_>>(), ids);
        assert!(said.iter().all(|(id, comment)| records[id].members(Set::Comments).any(|(known, _)| known == comment)));
        assert!(fields.iter().all(|(id, field)| records[id].field(field).is_some()));
    }
}
