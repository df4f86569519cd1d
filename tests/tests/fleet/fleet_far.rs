//! Workers far away, behind links that are slow, lose packets and break, while servers and the database are killed: what
//! was answered is done once, and who waits long waits because of a fault.
//!
//! The test starts itself again in namespaces of its own, so nothing leaves the machine, and no process, link or
//! namespace stays behind. `TOFT_FAR_WORKERS`, `TOFT_FAR_SECONDS` and `TOFT_FAR_SEED` set the size and the dice.
#![cfg(target_os = "linux")]

use std::{
    env,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize},
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use toft_cluster::Cluster;
use toft_stories::{
    FleetServer, Home,
    far_faults::{Faults, Kind, calm, count},
    far_history::{check_events, check_leases, check_tasks, waits},
    far_network::{PLACES, Place, prepare_hub, tell_alone},
    far_work::{Bell, FarClient, Feeder, LONGEST_TRY, Seen, Shift, work},
    new_store_on, sized,
};

/// Set where the story is told.
const INSIDE: &str = "TOFT_FAR_INSIDE";
/// The ports of the two servers.
const PORTS: [u16; 2] = [7_801, 7_802];
/// The time that servers get for the calls that waited for the end of a fault, from and to: as long as they took for as
/// many calls when the workers began.
const AFTERMATH: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
#[ignore = "wide: a network of its own"]
fn a_crowd_of_far_workers_loses_and_doubles_nothing_though_links_servers_and_database_fail() {
    if env::var_os(INSIDE).is_some() {
        return tell();
    }
    let lacks = (!toft_cluster::available()).then(|| "PostgreSQL is not installed".to_owned());
    let name = "fleet_far::a_crowd_of_far_workers_loses_and_doubles_nothing_though_links_servers_and_database_fail";
    tell_alone(name, INSIDE, lacks);
}

/// The story, in namespaces of its own.
fn tell() {
    let workers = number("TOFT_FAR_WORKERS", sized(24, 200) as u64) as usize;
    let length = Duration::from_secs(number("TOFT_FAR_SECONDS", sized(20, 1_800) as u64));
    let seed = number("TOFT_FAR_SEED", u64::from(UNIX_EPOCH.elapsed().unwrap().subsec_nanos()));
    eprintln!("seed {seed}");
    prepare_hub(&PORTS).unwrap();
    let mut cluster = Cluster::start();
    prepare_hub(&[PORTS[0], PORTS[1], cluster.port()]).unwrap();
    let home = Home::new();
    let store = new_store_on(&cluster.url());
    let schema = store.rsplit_once("schema=").unwrap().1.to_owned();
    let servers =
        PORTS.map(|port| FleetServer::listen(&home, &store, &format!("127.0.0.1:{port}"), &["--hold-from", "0"]));
    let token = servers[0].token(&home, "far", "worker");
    let planner = servers[0].token(&home, "plan", "planner");
    let places: Vec<Place> = (0..PLACES).map(|number| Place::new(number).unwrap()).collect();
    let ways: Vec<[SocketAddr; 2]> = places.iter().map(|place| PORTS.map(|port| place.proxy(port).unwrap())).collect();

    let shift = Shift {
        start: Instant::now(),
        over: AtomicBool::new(false),
        begun: AtomicUsize::new(0),
        open: AtomicUsize::new(0),
        seed,
        // About 20 tasks a second, however many workers: faults make calls wait, not their number.
        longest_work: workers as u64 * 100,
    };
    let near = PORTS.map(|port| ([127, 0, 0, 1], port).into());
    let mut feeder = Feeder::new(FarClient::new(near, &planner, "plan".into(), 0));
    feeder.plan(&shift, workers * 3);
    let faults = Faults::new(&shift);
    let end = Bell { shift: &shift, alarm: false };
    let (history, wrong, made, rush) = thread::scope(|scope| {
        let feeder = scope.spawn(|| {
            feeder.feed(&shift, workers);
            (feeder.made, feeder.client.wrong)
        });
        let crowd: Vec<_> = (0..workers)
            .map(|worker| {
                let (shift, place, way, token) = (&shift, &places[worker % PLACES], ways[worker % PLACES], &token);
                scope.spawn(move || {
                    let _alarm = Bell { shift, alarm: true };
                    place.enter().unwrap();
                    let mut client = FarClient::new(way, token, format!("far-{worker}"), worker / PLACES);
                    (work(shift, worker, &mut client), client.wrong)
                })
            })
            .collect();
        scope.spawn(|| faults.of_the_machine(&home));
        let rush = faults.begin(workers, length);
        // The servers run until the last worker has its answer.
        let _servers = thread::scope(|trouble| {
            let (faults, cluster, home, store) = (&faults, &mut cluster, &home, &store);
            trouble.spawn(move || faults.of_the_database(cluster));
            for (number, place) in places.iter().enumerate() {
                trouble.spawn(move || faults.of_a_place(place, number));
            }
            let [first, second] = servers;
            let second = trouble.spawn(move || faults.of_a_server(home, store, second, 1));
            [faults.of_a_server(home, store, first, 0), second.join().unwrap()]
        });
        drop(end);
        // All of them end before a panic is passed on: without servers they would wait in vain.
        let (feeder, crowd) = (feeder.join(), crowd.into_iter().map(|worker| worker.join()).collect::<Vec<_>>());
        let (made, mut wrong) = feeder.unwrap();
        let mut history: Vec<Seen> = Vec::new();
        for worker in crowd {
            let (seen, odd) = worker.unwrap();
            history.extend(seen);
            wrong.extend(odd);
        }
        (history, wrong, made, rush)
    });

    let (ran, faults) = (shift.start.elapsed(), faults.into_all());
    let kinds = count(&faults);
    let aftermath = rush.clamp(AFTERMATH.0, AFTERMATH.1);
    let waits = waits(&history, &faults, aftermath);
    let tries: u32 = history.iter().map(|seen| seen.tries).sum();
    let answers = history.len();
    let again = answers - history.iter().filter(|seen| seen.tries == 1).count();
    let vain = history.iter().filter(|seen| seen.task.is_empty()).count();
    let calm: Vec<u64> = (0..PLACES).map(|place| calm(&faults, place, ran)).collect();
    eprintln!(
        "{workers} workers at {PLACES} places for {ran:.1?}: {answers} calls, {tries} tries, {again} repeated, {vain} claims found nothing"
    );
    eprintln!("faults: {kinds:?}; percent of the time without one, by place: {calm:?}");
    eprintln!("longest wait: {}", waits.longest);
    eprintln!(
        "waits over 1 s: {} by a fault, {} right after one, {} by a stall or the rush at the start ({rush:.1?}); longest \
         without a fault {:.2?}, longest part of a wait after its fault {:.2?}",
        waits.explained, waits.aftermath, waits.stalled, waits.longest_calm, waits.longest_after
    );
    let events = check_events(&cluster, &schema, &history);
    let done = check_tasks(&cluster, &schema, &history, made);
    let shared = check_leases(&history);
    eprintln!(
        "{events} events without a gap; {done} of {made} tasks done, {shared} held by more than one worker in turn"
    );
    home.toft_with(home.path(), &[("TOFT_STORE", &store)], &["doctor"]).ok();
    assert!(wrong.is_empty(), "answers that no verb should give: {wrong:#?}");
    assert!(waits.unexplained.is_empty(), "waits without a fault: {:#?}", waits.unexplained);
    assert!(waits.longest_after < LONGEST_TRY + aftermath, "{:?} of a wait had no fault", waits.longest_after);
    let put_in = kinds.keys().filter(|kind| !matches!(kind, Kind::Rush | Kind::Stall)).count();
    assert!(put_in == 9 && again > 0 && shared > 0, "too little happened: {kinds:?}");
}
