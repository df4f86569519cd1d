//! The bare program as a process: `bare ready|claim DB LANE`, `bare worker DB LANE SECONDS`, `bare issue DB ID`,
//! `bare issues DB -`, `bare append DB FILE`.

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
        "issue" => {
            let query = "SELECT line FROM issues WHERE id = ?1";
            println!("{}", connection.query_row(query, [lane], |row| row.get::<_, String>(0))?);
        }
        "issues" => {
            let query = "SELECT line FROM issues INDEXED BY issues_ready WHERE opens <= 1 ORDER BY rank LIMIT 20";
            let mut query = connection.prepare(query)?;
            let lines = query.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
            println!("{}", lines.join("\n"));
        }
        "append" => {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(lane).expect("a file");
            std::io::Write::write_all(&mut file, format!("{}\n", "x".repeat(300)).as_bytes()).expect("a line");
            file.sync_data().expect("on disk");
            connection.execute_batch("CREATE TABLE IF NOT EXISTS bare_log (n INTEGER PRIMARY KEY, line TEXT); INSERT INTO bare_log (line) VALUES ('x')")?;
        }
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
