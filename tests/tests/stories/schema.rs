//! Schemas: nobody works on one that it does not know, and a server is upgraded only when somebody asks for it.

use toft_stories::prelude::*;

/// A process of this toft waits for work while a newer one upgrades the store below it.
fn upgraded_below(home: &Home, repo: &Path, upgrade: impl FnOnce()) {
    home.toft(repo, &["flow", "new", "F", "--task", "A", "--task", "B"]).ok();
    home.toft(repo, &["--as", "v", "claim"]).ok();
    home.toft(repo, &["--as", "w", "claim"]).ok();
    let mut waiter = home.command(repo, toft_bin(), &["--as", "z", "claim", "--wait=20s"]);
    let waiter = waiter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Nothing shows that it waits.
    thread::sleep(Duration::from_millis(700));
    let start = Instant::now();
    upgrade();
    let said = waiter.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(8), "{text}");
    assert!(text.starts_with("error[newer_store]"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert!(home.toft(repo, &["doctor", "--upgrade"]).fails(8).contains("newer_store"));
}

#[test]
fn a_running_process_refuses_a_store_that_was_upgraded_below_it() {
    let (home, repo) = Home::with_repository("api");
    let store = repo.join(".git/toft/toft.db");
    upgraded_below(&home, &repo, || {
        drop(home.run(&repo, "sqlite3", &[store.to_str().unwrap(), "pragma user_version=99"]))
    });
}

#[test]
fn only_an_explicit_migration_upgrades_a_server() {
    let Some(cluster) = postgresql() else { return };
    let mut home = Home::new();
    home.use_store(&format!("{}?schema=old", cluster.url()));
    let repo = home.git("api");
    // A schema with fewer migrations than this toft has: none.
    cluster.psql(
        "SET ROLE toft; CREATE SCHEMA old; SET search_path = old;
         CREATE TABLE migrations (number bigint PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT now());",
    );
    let schema = || cluster.psql("SELECT coalesce(max(number), 0) FROM old.migrations").trim().parse::<i64>().unwrap();
    for args in [&["doctor"][..], &["token", "list"]] {
        let said = home.toft(&repo, args).fails(8);
        assert!(said.starts_with("error[older_store]") && said.contains("toft doctor --upgrade"), "{args:?}: {said}");
    }
    for args in [&["ready"][..], &["init"], &["flow", "new", "X", "--task", "t"], &["--as", "w", "claim"]] {
        let said = home.toft(&repo, args).fails(2);
        assert!(said.starts_with("error[opened_by_server]") && said.contains("toft login"), "{args:?}: {said}");
    }
    let program = toft_bin();
    let serve = ["10", program.to_str().unwrap(), "serve", "--listen", "127.0.0.1:0"];
    let said = home.command(&repo, "timeout", &serve).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(8), "{text}");
    assert!(text.starts_with("error[older_store]") && text.contains("toft doctor --upgrade"), "{text}");
    assert_eq!(schema(), 0, "nothing upgraded it");
    let done = home.toft(&repo, &["doctor", "--upgrade", "--json"]).data();
    assert_eq!((done["from"].as_i64(), done["to"].as_i64()), (Some(0), Some(schema())), "{done}");
    home.behind_a_server(Some(&format!("{}?schema=old", cluster.url())));
    home.toft(&repo, &["init"]).ok();
    home.toft(&repo, &["flow", "new", "X", "--task", "t"]).ok();
    home.toft(&repo, &["--as", "w", "claim"]).ok();
}

#[test]
fn a_migration_says_from_which_schema_to_which() {
    let (home, repo) = Home::with_repository("api");
    assert!(home.toft(&repo, &["doctor", "--upgrade"]).ok().contains("nothing to do"));
    home.toft(home.path(), &["--store", "missing.db", "doctor", "--upgrade"]).fails(3);
    let Some(cluster) = postgresql() else { return };
    let url = new_store_on(&cluster.url());
    home.toft(&repo, &["--store", &url, "doctor", "--upgrade"]).fails(3);
    home.toft(&repo, &["--store", &url, "token", "create", "ana", "--role", "admin"]).ok();
    assert!(home.toft(&repo, &["--store", &url, "doctor", "--upgrade"]).ok().contains("nothing to do"));
}

/// A newer toft on the same schema added a field to every agent and workflow; this one works on.
fn work_on_rows_with_more_fields(home: &Home, repo: &Path, ask: impl Fn(&str) -> String, add: &str) {
    home.toft(repo, &["flow", "new", "F", "--task", "A", "--task", "B"]).ok();
    home.toft(repo, &["--as", "w", "claim"]).ok();
    for table in ["agents", "workflows", "tasks"] {
        ask(&format!("UPDATE {table} SET body = {add}"));
    }
    home.toft(repo, &["--as", "w", "save", "-m", "half"]).ok();
    home.toft(repo, &["--as", "w", "finish", "--no-change", "x"]).ok();
    home.toft(repo, &["--as", "w", "claim"]).ok();
    home.toft(repo, &["--as", "w", "finish", "--no-change", "x"]).ok();
    for table in ["agents", "workflows", "tasks"] {
        let lost = ask(&format!("SELECT count(*) FROM {table} WHERE body NOT LIKE '%from_later%'"));
        assert_eq!(lost.trim(), "0", "{table}");
    }
}

#[test]
fn what_a_newer_toft_wrote_besides_survives_the_work_of_this_one() {
    let (home, repo) = Home::with_repository("api");
    let store = repo.join(".git/toft/toft.db").display().to_string();
    let ask = |sql: &str| home.run(&repo, "sqlite3", &[&store, sql]);
    work_on_rows_with_more_fields(&home, &repo, ask, "json_set(body, '$.from_later', 1)");
}
