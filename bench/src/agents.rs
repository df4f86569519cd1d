//! Running agents beside a bare shell loop, and asking over the protocol beside asking the library, in one run.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use toft::{ClaimQuery, Config, Toft};

use crate::toft_bin;

/// What an agent does: the least that counts as done.
const WORK: &str = "git commit -q --allow-empty -m done";
/// So many questions are asked over the protocol.
const QUESTIONS: usize = 300;

pub(crate) fn run(tasks: usize) {
    println!("| {tasks} trivial tasks, one slot | a task | on top of bare | aim |\n| --- | --- | --- | --- |");
    let bare = Field::new(tasks).bare(tasks);
    println!("| a shell loop in worktrees that are there | {bare:.2?} | | |");
    for (what, made, aim) in [
        ("`toft run`, workspaces that are there", Made::Each, "≤ 15 ms"),
        ("`toft run`, a pool made ahead", Made::Pool, ""),
        ("`toft run`, workspaces made as it goes", Made::None, ""),
    ] {
        let took = Field::new(tasks).toft(tasks, made);
        println!("| {what} | {took:.2?} | {:.2?} | {aim} |", took.saturating_sub(bare));
    }
    protocol();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Each,
    Pool,
    None,
}

/// A repository in a home of its own.
struct Field {
    dir: tempfile::TempDir,
}

impl Field {
    fn new(tasks: usize) -> Self {
        let field = Self { dir: tempfile::tempdir().expect("a directory") };
        fs::create_dir(field.repo()).expect("a directory");
        fs::write(field.repo().join("README.md"), "A repository.\n").expect("a file");
        for words in [&["init", "-q", "-b", "main"][..], &["add", "-A"], &["commit", "-q", "-m", "first"]] {
            field.run("git", words);
        }
        let toft = toft_bin().display().to_string();
        field.run(&toft, &["init"]);
        fs::write(field.repo().join(".git/toft/config.toml"), "[workspaces]\nmost = 10000\n").expect("a file");
        let names: String = (0..tasks).map(|n| format!("  - name: t{n}\n")).collect();
        let plan = field.dir.path().join("plan.yaml");
        fs::write(&plan, format!("title: Trivial things\ntasks:\n{names}")).expect("a file");
        field.run(&toft, &["flow", "new", "--file", &plan.display().to_string()]);
        field
    }

    fn repo(&self) -> PathBuf {
        self.dir.path().join("api")
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.repo()).env("HOME", self.dir.path()).stdin(Stdio::null());
        for (name, value) in [("NAME", "bench"), ("EMAIL", "bench@example.org")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command
    }

    fn run(&self, program: &str, words: &[&str]) -> String {
        let output = self.command(program, words).output().expect("a program that runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A task in a shell loop, in worktrees that are there.
    fn bare(&self, tasks: usize) -> Duration {
        let make =
            format!("for i in $(seq {tasks}); do git worktree add -q -b b$i ../bare/$i 2>/dev/null || exit 1; done");
        self.run("sh", &["-c", &make]);
        let all = format!("for i in $(seq {tasks}); do (cd ../bare/$i && sh -c '{WORK}' >/dev/null) || exit 1; done");
        let begun = Instant::now();
        self.run("sh", &["-c", &all]);
        begun.elapsed() / u32::try_from(tasks).unwrap_or(1)
    }

    fn toft(&self, tasks: usize, made: Made) -> Duration {
        let toft = toft_bin().display().to_string();
        match made {
            Made::Each => {
                for task in self.run(&toft, &["list", "tasks", "-q", "--limit", "100000"]).lines() {
                    self.run(&toft, &["ws", "create", task]);
                }
            }
            Made::Pool => drop(self.run(&toft, &["ws", "create", "--ahead", &tasks.to_string()])),
            Made::None => {}
        }
        let begun = Instant::now();
        let said = self.run(&toft, &["run", "--until-idle", "--", "sh", "-c", WORK]);
        let took = begun.elapsed() / u32::try_from(tasks).unwrap_or(1);
        assert!(said.contains(&format!("Finished: {tasks} done.")), "{}", said.lines().last().unwrap_or_default());
        took
    }
}

/// `ready` and `claim`, over the protocol and in the library.
fn protocol() {
    let field = Field::new(2 * QUESTIONS + 20);
    let mut server = field.command(&toft_bin().display().to_string(), &["mcp"]);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a server");
    let mut to = server.stdin.take().expect("its input");
    let mut from = BufReader::new(server.stdout.take().expect("its output"));
    let mut ask = |tool: &str| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
        writeln!(to, "{}", json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
            .expect("a line");
        let mut line = String::new();
        from.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["result"]["isError"], false, "{line}");
    };
    let toft = Toft::with(Config { dir: Some(field.repo()), ..Config::default() }).expect("a store");
    let worker = toft.agent("bench").register().expect("an agent");
    let look = toft::verbs::ready::Request { scope: toft.scope(), limit: 20, ..toft::verbs::ready::Request::default() };
    println!("\n| p50 | over the protocol | in the library | ratio |\n| --- | --- | --- | --- |");
    let ready = (middle(|| ask("ready")), middle(|| drop(toft.work().ready(look.clone()).expect("an answer"))));
    let claim = (middle(|| ask("claim")), middle(|| drop(worker.claim(ClaimQuery::ready()).expect("a job"))));
    for (what, (there, here)) in [("ready", ready), ("claim", claim)] {
        println!("| {what} | {there:.2?} | {here:.2?} | {:.1} |", there.as_secs_f64() / here.as_secs_f64());
    }
    drop(to);
    server.wait().expect("an end");
}

fn middle(mut each: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..QUESTIONS)
        .map(|_| {
            let begun = Instant::now();
            each();
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[QUESTIONS / 2]
}
