//! The board over a large night: many issues, many agents at work, many changes, a large log.

#![cfg(unix)]

use toft_stories::browser::{Browser, ServedBoard};
use toft_stories::night::{Night, pictures};
use toft_stories::prelude::*;

/// Milliseconds until a page that is opened anew has rows, or a drawing.
fn first_rows(page: &mut Browser, url: &str) -> u64 {
    page.open(url);
    let rows = "new Promise((done) => { const look = () => document.querySelector('#main li[data-key], #main svg a') \
                ? done(Math.round(performance.now())) : setTimeout(look, 5); look(); })";
    page.evaluate(rows).as_u64().unwrap()
}

/// Megabytes of memory of a process.
fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Seconds of processor time of a process.
fn processor(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn screens(origin: &str) -> Vec<(&'static str, String)> {
    ["needs-you", "agents", "board", "queue", "graph", "history", "machines"]
        .into_iter()
        .map(|screen| (screen, format!("{origin}/?screen={screen}")))
        .collect()
}

#[test]
fn a_large_night_is_seen_quickly_and_for_hours() {
    let night = Night::new(sized(200, 2_000), sized(20, 200));
    let board = ServedBoard::start(&night.home, &night.repo, &[]);
    let origin = board.url.split("/#").next().unwrap().to_owned();
    let mut page = Browser::start(&night.home);
    page.open(&board.url);
    page.until("Round prices up");
    for (name, url) in screens(&origin) {
        let took = first_rows(&mut page, &url);
        println!("first rows of {name}: {took} ms");
        assert!(took < sized(3_000, 1_000) as u64, "{name}: {took} ms");
    }
    for scheme in ["light", "dark"] {
        for (width, height) in [(390, 844), (1024, 768), (1920, 1080)] {
            page.device((width, height), scheme);
            for (name, url) in screens(&origin) {
                first_rows(&mut page, &url);
                page.screenshot(&pictures().join(format!("night-{name}-{width}-{scheme}.png")));
            }
        }
    }
    // One change, from the end of its command to the page.
    page.open(&format!("{origin}/?screen=agents"));
    page.until(&night.at_work[0].0);
    let mut shown = Vec::new();
    for n in 0..10 {
        let message = night.change(1_000 + n);
        shown.push(page.until(&message));
        // The next is not shown together with this one.
        thread::sleep(Duration::from_millis(200));
    }
    println!("a change is shown after {shown:?} ms");
    // Many changes a second.
    let lasts = Duration::from_secs(sized(15, 3_600) as u64);
    let (begun, before) = (Instant::now(), processor(board.pid()));
    let (mut count, mut told, mut first) = (0_usize, Duration::ZERO, None);
    while begun.elapsed() < lasts {
        night.change(count);
        count += 1;
        if begun.elapsed() >= told {
            told += lasts / 12;
            let (heap, server) = (page.heap() >> 20, memory(board.pid()));
            println!("{:>5} s: {count} changes, heap {heap} MB, server {server} MB", begun.elapsed().as_secs());
            assert!(heap < 150, "{heap} MB");
            // What is cached is there after the first part.
            let bound = *first.get_or_insert(server).max(&mut 40);
            assert!(server < bound * 2, "from {bound} to {server} MB");
        }
        let next = Duration::from_millis(100) * u32::try_from(count).unwrap();
        thread::sleep(next.saturating_sub(begun.elapsed()));
    }
    let share = (processor(board.pid()) - before) / begun.elapsed().as_secs_f64();
    println!("{count} changes in {:?}, {share:.2} of a core", begun.elapsed());
    // The first agent is on the screen.
    let message = night.change(count * night.at_work.len());
    page.until(&message);
    let log: Value = night.home.toft(&night.repo, &["history", "--limit", "1", "--json"]).data();
    println!("the last event: {}", log[0]["seq"]);
    for (name, url) in screens(&origin) {
        let took = first_rows(&mut page, &url);
        println!("then first rows of {name}: {took} ms");
        assert!(took < sized(3_000, 1_000) as u64, "{name}: {took} ms");
    }
    assert_eq!(page.errors(), Vec::<String>::new());
}

#[test]
fn a_large_log_is_read_in_parts() {
    let (home, repo) = Home::with_repository("shop");
    let id = toft_stories::issues::add(&home, &repo, &["Talk a lot"]);
    let lines = sized(200_000, 2_500_000);
    let talk = format!(
        "seq -f 'line %.0f of what an agent says while it works on this, and more of it' {lines}; \
         echo '{{\"outcome\":\"done\",\"no_change\":\"it talked\"}}' > $TOFT_REPORT"
    );
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", &talk]).ok();
    let board = ServedBoard::start(&home, &repo, &[]);
    let origin = board.url.split("/#").next().unwrap().to_owned();
    let mut page = Browser::start(&home);
    page.open(&board.url);
    page.until("Needs you");
    page.open(&format!("{origin}/issue?id={id}"));
    let last = format!("out  line {lines} of");
    let took = page.until(&last);
    println!("the last line of {lines} is shown after {took} ms");
    let begun = Instant::now();
    page.evaluate("document.querySelector('board-text[kind=log] .text').scrollTop = 0");
    page.until_gone(&last);
    println!("the first one after {:?}", begun.elapsed());
    let (heap, server) = (page.heap() >> 20, memory(board.pid()));
    println!("heap {heap} MB, server {server} MB");
    assert!(heap < 150 && server < 200, "heap {heap} MB, server {server} MB");
}
