//! Workers far away, behind links that are slow, lose packets and break, while servers and the database are killed: what
//! was answered is done once, and nobody waits for ever.
//!
//! The test starts itself again in namespaces of its own, so nothing leaves the machine, and no process, link or
//! namespace stays behind. `TOFT_FAR_WORKERS`, `TOFT_FAR_SECONDS` and `TOFT_FAR_SEED` set the size and the dice.
#![cfg(target_os = "linux")]

use std::{env, net::SocketAddr};

use toft_stories::{
    far_faults::Faults,
    far_network::{PLACES, Place, prepare_hub, tell_alone},
    fleet_work::{History, RetryingClient, require_one_holder_at_a_time, work_from},
    prelude::*,
};

/// Set where the story is told.
const INSIDE: &str = "TOFT_FAR_INSIDE";
/// The ports of the two servers.
const PORTS: [u16; 2] = [7_801, 7_802];
/// How long a client waits for an answer before it asks the other server. No fault lasts longer.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a call may stay without an answer: several faults may follow one another at a place.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

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
    let seed = number("TOFT_FAR_SEED", u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()));
    eprintln!("seed {seed}");
    prepare_hub(&PORTS).unwrap();
    let mut cluster = Cluster::start();
    prepare_hub(&[PORTS[0], PORTS[1], cluster.port()]).unwrap();
    let home = Home::new();
    let store = new_store_on(&cluster.url());
    let listen = |port| FleetServer::listen(&home, &store, &format!("127.0.0.1:{port}"), &["--hold-from", "0"]);
    let mut servers = PORTS.map(listen);
    let token = servers[0].token(&home, "far", "admin");
    let places: Vec<Place> = (0..PLACES).map(|number| Place::new(number).unwrap()).collect();
    let ways: Vec<[SocketAddr; 2]> = places.iter().map(|place| PORTS.map(|port| place.proxy(port).unwrap())).collect();
    let client = |worker: usize| {
        let mut ways = ways[worker % PLACES].map(|way| way.to_string());
        // Half of the workers begin with the other server.
        ways.rotate_left(worker / PLACES % 2);
        RetryingClient::between(ways.into(), &token, PATIENCE)
    };

    let faults = Faults::new(seed, length);
    let (begun, clients) = (Instant::now(), (0..workers).map(client).collect());
    let work = work_from(
        clients,
        |worker| places[worker % PLACES].enter().unwrap(),
        || {
            let (faults, home, store) = (&faults, &home, &store);
            thread::scope(|trouble| {
                let database = &mut cluster;
                trouble.spawn(move || faults.of_the_database(database));
                for (number, place) in places.iter().enumerate() {
                    trouble.spawn(move || faults.of_a_place(place, number));
                }
                for (number, server) in servers.iter_mut().enumerate() {
                    trouble.spawn(move || faults.of_a_server(home, store, server, number as u64));
                }
            });
        },
    );
    let (ran, kinds) = (begun.elapsed(), faults.into_counts());
    let history = History::of(&servers[0], &token);
    history.require(&work, Instant::now());
    require_one_holder_at_a_time(&work);
    home.toft_with(home.path(), &[("TOFT_STORE", &store)], &["doctor"]).ok();
    let (told, retries, waited) = (work.acknowledged.len(), work.retries, work.longest_wait);
    eprintln!("{workers} workers at {PLACES} places for {ran:.1?}: {told} operations acknowledged; {retries:?}");
    eprintln!("faults: {kinds:?}; the longest wait was {waited:.1?}");
    assert!(waited < LONGEST_WAIT, "a client waited for {waited:.1?}");
    assert!(kinds.len() == 9 && retries.broken + retries.timed_out > 0, "too little happened: {kinds:?} {retries:?}");
}
