//! Nothing grows without bound: what is old is forgotten, whatever a clock once said, and its space is given back.

use toft_stories::prelude::*;

fn sql(home: &Home, repo: &Path, text: &str) -> String {
    home.run(repo, "sqlite3", &[".git/toft/toft.db", text])
}

fn size(repo: &Path) -> u64 {
    let of = |end: &str| fs::metadata(repo.join(format!(".git/toft/toft.db{end}"))).map_or(0, |meta| meta.len());
    of("") + of("-wal")
}

/// Rows as two hundred busy days leave them behind.
fn age(home: &Home, repo: &Path, rows: usize) {
    let old = "(strftime('%s','now') - 200*86400) * 1000";
    let when = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-200 days')";
    let task = sql(home, repo, "select id from task_states where status = 'done'");
    let task = task.trim();
    let numbers = format!("with recursive n(i) as (select 1 union all select i+1 from n where i < {rows})");
    let checkpoint = format!(
        "json_set((select body from checkpoints limit 1), '$.id', 'cp_' || i, '$.seq', i, '$.created', {when})"
    );
    sql(
        home,
        repo,
        &format!(
            "update events set at = at - 201*86400000;
             {numbers} insert into events(at,actor,entity,verb,detail,op,part)
               select {old} + i, 'w', 'tk_' || i, 'save', '{{\"summary\":\"some words of progress\"}}', 'op_x' || i, 0 from n;
             update checkpoints set seq = {rows} + 1;
             {numbers} insert into checkpoints select '{task}', i, {checkpoint} from n;
             {numbers} insert into agents select 'ag_' || i, 'slot-' || i,
               json_set((select body from agents limit 1), '$.id', 'ag_' || i, '$.name', 'slot-' || i, '$.seen', {when}) from n;
             {numbers} insert into receipts(op, actor, verb, outcome, at) select 'op_r' || i, 'w', 'claim', '{{}}', {old} from n;
             {numbers} insert into workspaces select 'ws_' || i, 'rp_x', {old}, 0,
               json_object('id', 'ws_' || i, 'repository', 'rp_x', 'name', 'n' || i, 'kind', 'worktree', 'path', '/x', 'host', 'h',
                 'source', '/y', 'state', 'removed', 'created', {when}, 'used', {when}) from n;"
        ),
    );
}

fn worked(home: &Home, name: &str) -> PathBuf {
    let repo = home.repo(name);
    home.toft(&repo, &["flow", "new", "F", "--task", "A", "--task", "B"]).ok();
    home.toft(&repo, &["--as", "w", "claim"]).ok();
    home.toft(&repo, &["--as", "w", "save", "-m", "half"]).ok();
    home.toft(&repo, &["--as", "w", "finish", "--no-change", "x"]).ok();
    repo
}

#[test]
fn what_is_old_is_forgotten_in_every_table_and_the_file_shrinks() {
    let home = Home::new();
    let rows = sized(5_000, 200_000);
    let repo = worked(&home, "api");
    age(&home, &repo, rows);
    let before = size(&repo);
    let gone = home.toft(&repo, &["gc", "--data", "--json"]).data();
    let after = size(&repo);
    eprintln!(
        "{rows} rows of each kind, {:.1} MB before, {:.1} MB after: {gone}",
        before as f64 / 1e6,
        after as f64 / 1e6
    );
    for kind in ["events", "checkpoints", "agents", "receipts", "workspaces"] {
        assert!(gone[kind].as_u64().unwrap_or_default() >= rows as u64 - 1, "{kind}: {gone}");
    }
    assert!(after * 5 < before, "{before} bytes before, {after} after");
    home.toft(&repo, &["doctor"]).ok();
    home.toft(&repo, &["--as", "v", "claim"]).ok();
    assert_eq!(sql(&home, &repo, "select count(*) from checkpoints").trim(), "1", "the newest stays");
    assert_eq!(sql(&home, &repo, "pragma auto_vacuum").trim(), "2");
}

#[test]
fn a_blob_that_nothing_refers_to_goes_and_others_stay() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "F", "--task", "A"]).ok();
    let task = home.toft(&repo, &["--as", "w", "claim", "-q"]).ok().trim().to_owned();
    for letter in ["x", "y"] {
        let detail = format!("\"{}\"", letter.repeat(20_000));
        home.toft(&repo, &["--as", "w", "save", "-m", letter, "--detail", &detail]).ok();
    }
    home.toft(&repo, &["--as", "w", "finish", "--no-change", "x"]).ok();
    let blobs = repo.join(".git/toft/blobs");
    let count = || fs::read_dir(&blobs).unwrap().count();
    assert_eq!(count(), 2);
    sql(&home, &repo, "update checkpoints set body = json_set(body, '$.created', '2020-01-01T00:00:00.000Z')");
    // Its checkpoint is forgotten; it was written just now, and somebody may be about to refer to it.
    home.toft(&repo, &["gc", "--data"]).ok();
    assert_eq!(count(), 2);
    for entry in fs::read_dir(&blobs).unwrap() {
        home.run(&repo, "touch", &["-d", "2 days ago", entry.unwrap().path().to_str().unwrap()]);
    }
    assert_eq!(home.toft(&repo, &["gc", "--data", "--json"]).data()["blobs"], 1);
    let shown = home.toft(&repo, &["show", &task, "--json"]).data();
    assert!(shown["checkpoints"].to_string().contains("yyyy"), "{shown}");
}

#[test]
fn an_event_under_a_wrong_clock_does_not_stop_forgetting() {
    let (home, repo) = Home::with_repository("api");
    let bin = toft_bin();
    let later = ["--exclude-monotonic", "-f", "+5y", bin.to_str().unwrap(), "flow", "new", "F", "--task", "A"];
    home.run(&repo, "faketime", &later);
    for n in 0..20 {
        home.toft(&repo, &["flow", "new", &format!("G{n}"), "--task", "x"]).ok();
    }
    // All of it is older than a second.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    home.toft(&repo, &["gc", "--data", "--older-than", "1s"]).ok();
    let left = home.toft(&repo, &["history", "--json", "--limit", "100"]).data();
    let left = left.as_array().unwrap();
    let year = |event: &serde_json::Value| event["at"].as_str().unwrap()[..4].parse::<u32>().unwrap();
    let newest = year(left.last().unwrap());
    let now: Vec<_> = left.iter().filter(|event| year(event) <= newest).collect();
    assert!(now.len() <= 2, "the last one before, and the forgetting itself: {left:#?}");
    assert!(left.len() > now.len(), "what is younger by its own time stays");
    home.toft(&repo, &["doctor"]).ok();
}

#[test]
fn a_sync_forgets_a_little_by_itself_once_a_day() {
    let home = Home::new();
    let repo = worked(&home, "api");
    age(&home, &repo, 100);
    let events = || sql(&home, &repo, "select count(*) from events").trim().parse::<usize>().unwrap();
    assert!(events() > 100);
    home.toft(&repo, &["sync"]);
    assert!(events() > 100, "where nobody wrote for long, nothing is forgotten unasked");
    fs::remove_file(repo.join(".git/toft/last-gc")).unwrap();
    home.toft(&repo, &["flow", "new", "today"]).ok();
    home.toft(&repo, &["sync"]);
    assert!(events() < 50, "{}", events());
    sql(&home, &repo, "update events set at = at - 201*86400000");
    let before = events();
    home.toft(&repo, &["sync"]);
    assert_eq!(events(), before, "not twice a day");
}
