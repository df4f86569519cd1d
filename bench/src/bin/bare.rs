//! The bare program as a process: `bare ready|claim DB LANE`, `bare worker DB LANE SECONDS`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use toft_bench::bare;

fn main() -> rusqlite::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, what, path, lane, rest @ ..] = args.as_slice() else { panic!("bare WHAT DB LANE [SECONDS]") };
    let connection = bare::open(Path::new(path), if what == "worker" { 1_000 } else { 0 })?;
    match what.as_str() {
        "ready" => println!("{}", bare::ready(&connection, lane, 20)?.join("\n")),
        "claim" => println!("{:?}", bare::claim(&connection, lane, 0)?),
        "worker" => {
            let seconds = rest.first().and_then(|text| text.parse().ok()).unwrap_or(5);
            let until = Instant::now() + Duration::from_secs(seconds);
            let mut done = 0u64;
            while Instant::now() < until {
                let Some(task) = bare::claim(&connection, lane, done * 2)? else { break };
                bare::finish(&connection, &task, lane, done * 2 + 1)?;
                done += 1;
            }
            println!("{done}");
        }
        other => panic!("{other}?"),
    }
    Ok(())
}
