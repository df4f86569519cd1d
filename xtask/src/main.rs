//! The project's own chores. `cargo xtask check` is what CI runs.

#![expect(clippy::print_stderr, reason = "progress is for whoever waits")]

mod clients;
mod docs;
mod links;
mod promises;
mod servers;
mod stories;
mod tidy;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::servers::Servers;

const HELP: &str = "\
cargo xtask check     fmt, clippy, unit tests, doc tests, deny, tidy
cargo xtask gate      what each landing runs: check, and the stories that are not marked
cargo xtask wide      what the gate leaves out: stories marked `wide`, stories on every store, speed, the book
cargo xtask long      all stories at full size
cargo xtask speed     the stories that measure time, with the binary that is installed
cargo xtask tidy      layering, queries, promises, prose, links
cargo xtask book      build docs/ as a book, in target/book/html
cargo xtask reference write docs/reference/ from the code
cargo xtask pictures  make the pictures of docs/images/ again, as the stories of the board see it
cargo xtask clients   print the table of coding agents: the versions that are pinned and the newest, and what works with each
cargo xtask fuzz N    any bytes as a ledger, and as two copies of one, for N seconds each (needs cargo-fuzz); what was found before is a test
cargo xtask bench     measure beside the bare engine; `cargo xtask bench long` for a million tasks";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["check"] => check(),
        ["tidy"] => tidy::run(&root()),
        ["book"] => book(),
        ["reference"] => reference(),
        ["gate"] => gate(),
        ["wide"] => wide(),
        ["long"] => long(),
        ["speed"] => install().and_then(|bin| speed(&bin)),
        ["pictures"] => pictures(),
        ["clients"] => cargo(&["build", "--package", "toft-cli"], &[]).and_then(|()| clients::table(&root(), &[])),
        ["fuzz", seconds] => fuzz(seconds),
        ["bench", rest @ ..] => bench(rest),
        _ => Err(anyhow::anyhow!("{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where cargo builds.
fn build_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

const CLIPPY: [&str; 7] = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
const TEST_WORKSPACE: [&str; 4] = ["nextest", "run", "--workspace", "--all-features"];

fn check() -> Result<()> {
    check_code()?;
    let servers = Servers::start()?;
    cargo(&[&TEST_WORKSPACE[..], &["--exclude", "toft-stories"]].concat(), &servers.env())?;
    drop(servers);
    check_rest()
}

/// Runs what each landing runs, with the binary of the dev profile: its dependencies are optimised, and it is there in a
/// tenth of the time.
fn gate() -> Result<()> {
    check_code()?;
    cargo(&["build", "--workspace", "--all-features", "--bins"], &[])?;
    let servers = Servers::start()?;
    cargo(&[&TEST_WORKSPACE[..], &["--no-fail-fast"]].concat(), &servers.env())?;
    on_each_server(&servers, &[], &[&STORIES[..], &["-E", "binary(leases)"]].concat())?;
    drop(servers);
    check_rest()
}

fn check_code() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&CLIPPY, &[])
}

fn check_rest() -> Result<()> {
    cargo(&["test", "--workspace", "--doc", "--all-features"], &[])?;
    cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"], &[])?;
    let rules = ["--manifest-path", BOOK, "--config", "xtask/book/deny.toml"];
    cargo(&[&["deny", "--offline"], &rules[..], &["check", "bans", "licenses", "sources"]].concat(), &[])?;
    step("tidy", || tidy::run(&root()))
}

const BOOK: &str = "xtask/book/Cargo.toml";

/// Its builder is not a member of the workspace: nothing else pays for compiling mdBook.
fn book() -> Result<()> {
    cargo(&["fmt", "--manifest-path", BOOK, "--check"], &[])?;
    let (root, target) = (root().display().to_string(), build_dir());
    let (tool, out) = (target.join("tools/book").display().to_string(), target.join("book").display().to_string());
    let run = ["run", "--quiet", "--locked", "--manifest-path", BOOK, "--target-dir", &tool];
    cargo(&[&run[..], &["--", &root, &out]].concat(), &[])
}

/// Writes what the command line, configuration and the log say of themselves.
fn reference() -> Result<()> {
    let to = root().join("docs/reference").display().to_string();
    cargo(&["run", "--quiet", "--package", "toft-cli", "--", "reference", "--dir", &to], &[])
}

const STORIES: [&str; 4] = ["nextest", "run", "--package", "toft-stories"];
/// Stories that are told on files, on PostgreSQL, behind `toft serve`, and on PostgreSQL behind a pooler.
const ON_EVERY_STORE: [&str; 4] = ["--run-ignored", "all", "-E", "binary(leases) | binary(everywhere)"];

/// Installs the binary as a user would, and runs every test that the gate leaves out. A test with
/// `#[ignore = "wide: …"]` is one of them.
fn wide() -> Result<()> {
    step(".ci/install wide", || run(Command::new("bash").args([".ci/install", "wide"])))?;
    let bin = install()?;
    let servers = Servers::start()?;
    let mut env = vec![("TOFT_BIN", bin.as_str())];
    env.extend(servers.env());
    cargo(&[&TEST_WORKSPACE[..], &["--no-fail-fast", "--run-ignored", "only"]].concat(), &env)?;
    on_each_server(&servers, &[("TOFT_BIN", &bin)], &[&STORIES[..], &["--no-fail-fast"], &ON_EVERY_STORE].concat())?;
    drop(servers);
    speed(&bin)?;
    book()
}

/// Tells every story at full size, with the installed binary.
fn long() -> Result<()> {
    let bin = install()?;
    let servers = Servers::start()?;
    let here = [("TOFT_BIN", bin.as_str()), ("TOFT_LONG", "1")];
    let at_full_size = ["--no-fail-fast", "--no-capture", "--test-threads", "1"];
    let all = [&STORIES[..], &at_full_size, &["--run-ignored", "all", "--ignore-default-filter"]].concat();
    cargo(&all, &[&here[..], &servers.env()].concat())?;
    on_each_server(&servers, &here, &[&STORIES[..], &at_full_size, &ON_EVERY_STORE].concat())?;
    step("clients", || clients::table(&root(), &here))
}

/// Tells the stories that measure time, one after the other.
fn speed(bin: &str) -> Result<()> {
    let measured = ["--ignore-default-filter", "--no-fail-fast", "--test-threads", "1", "-E", "binary(speed)"];
    cargo(&[&STORIES[..], &measured].concat(), &[("TOFT_BIN", bin)])
}

/// Tells stories on PostgreSQL, behind `toft serve` on it, and on PostgreSQL behind a pooler.
fn on_each_server(servers: &Servers, env: &[(&str, &str)], args: &[&str]) -> Result<()> {
    for (n, (_, url)) in servers.env().into_iter().enumerate() {
        let mut there = env.to_vec();
        there.push(("TOFT_STORY_SERVER", url));
        cargo(args, &there)?;
        if n == 0 {
            there.push(("TOFT_STORY_FLEET", "1"));
            cargo(args, &there)?;
        }
    }
    Ok(())
}

/// The pictures of the documentation, and the screens they are of.
const PICTURES: [(&str, &str); 4] = [
    ("board", "busy-board-1920-light"),
    ("board-issue", "busy-issue-0-1024-light"),
    ("board-agents", "busy-agents-1024-dark"),
    ("board-phone", "busy-needs-you-390-light"),
];

/// Takes a picture of every screen, and keeps those of the documentation.
fn pictures() -> Result<()> {
    let bin = install()?;
    let story = "every_screen_can_be_read_by_everyone_at_every_width";
    let args = ["--test", "screens", "--run-ignored", "all", story];
    cargo(&[&STORIES[..], &args].concat(), &[("TOFT_BIN", &bin)])?;
    for (name, screen) in PICTURES {
        let seen = build_dir().join("screens").join(format!("{screen}.png"));
        let to = root().join("docs/images").join(format!("{name}.png"));
        std::fs::copy(&seen, &to).with_context(|| format!("{} was not copied", seen.display()))?;
    }
    Ok(())
}

fn install() -> Result<String> {
    let to = build_dir().join("installed");
    let path = root().join("crates").join("toft-cli");
    let (to, path) = (to.display().to_string(), path.display().to_string());
    cargo(&["install", "--locked", "--quiet", "--force", "--path", &path, "--root", &to], &[])?;
    let bin = Path::new(&to).join("bin").join("toft");
    let bin = bin.canonicalize().with_context(|| format!("{} was not installed", bin.display()))?;
    Ok(bin.display().to_string())
}

/// Without a sanitizer: nothing here is unsafe.
fn fuzz(seconds: &str) -> Result<()> {
    let here = root().join("crates").join("toft-ledger").join("fuzz").display().to_string();
    let time = format!("-max_total_time={seconds}");
    for target in ["reader", "copies"] {
        let args = ["fuzz", "run", "--fuzz-dir", &here, "-s", "none", target, "--", "-max_len=4096", &time];
        cargo(&args, &[("RUSTC_BOOTSTRAP", "1")])?;
    }
    Ok(())
}

fn bench(rest: &[&str]) -> Result<()> {
    let bin = install()?;
    cargo(&["build", "--release", "--package", "toft-bench"], &[])?;
    let mut args = vec!["run", "--release", "--quiet", "--package", "toft-bench", "--bin", "toft-bench", "--"];
    args.extend(rest);
    cargo(&args, &[("TOFT_BIN", &bin)])
}

fn cargo(args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    step(&format!("cargo {}", args.join(" ")), || {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        run(Command::new(cargo).args(args).envs(env.iter().copied()))
    })
}

/// Runs a program in the workspace's root; it must succeed.
fn run(command: &mut Command) -> Result<()> {
    let status = command.current_dir(root()).status()?;
    if !status.success() {
        bail!("{command:?} failed");
    }
    Ok(())
}

fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    run()?;
    eprintln!("== {name}: {:.1?}", start.elapsed());
    Ok(())
}
