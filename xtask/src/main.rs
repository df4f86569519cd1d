//! The project's own chores. `cargo xtask check` is what CI runs.

#![expect(clippy::print_stderr, reason = "progress is for whoever waits")]

mod clients;
mod docs;
mod links;
mod promises;
mod servers;
mod tidy;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::servers::Servers;

const HELP: &str = "\
cargo xtask check     fmt, clippy, tests, doc tests, deny, tidy, book
cargo xtask tidy      layering, queries, promises, prose, links
cargo xtask book      build docs/ as a book, in target/book/html
cargo xtask reference write docs/reference/ from the code
cargo xtask stories   install the binary and tell the whole-product stories, at the size for CI
cargo xtask long      the same stories at full size
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
        ["stories"] => stories(false),
        ["long"] => stories(true),
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

fn check() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"], &[])?;
    let servers = Servers::start()?;
    let tests = ["nextest", "run", "--workspace", "--all-features", "--exclude", "toft-stories"];
    cargo(&tests, &servers.env())?;
    drop(servers);
    cargo(&["test", "--workspace", "--doc", "--all-features"], &[])?;
    cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"], &[])?;
    let rules = ["--manifest-path", BOOK, "--config", "xtask/book/deny.toml"];
    cargo(&[&["deny", "--offline"], &rules[..], &["check", "bans", "licenses", "sources"]].concat(), &[])?;
    step("tidy", || tidy::run(&root()))?;
    book()
}

const BOOK: &str = "xtask/book/Cargo.toml";

/// Its builder is not a member of the workspace: nothing else pays for compiling mdBook.
fn book() -> Result<()> {
    cargo(&["fmt", "--manifest-path", BOOK, "--check"], &[])?;
    let (root, target) = (root().display().to_string(), root().join("target"));
    let (tool, out) = (target.join("tools/book").display().to_string(), target.join("book").display().to_string());
    let run = ["run", "--quiet", "--locked", "--manifest-path", BOOK, "--target-dir", &tool];
    cargo(&[&run[..], &["--", &root, &out]].concat(), &[])
}

/// Writes what the command line, configuration and the log say of themselves.
fn reference() -> Result<()> {
    let to = root().join("docs/reference").display().to_string();
    cargo(&["run", "--quiet", "--package", "toft-cli", "--", "reference", "--dir", &to], &[])
}

/// Stories that are told on files, on PostgreSQL, behind `toft serve`, and on PostgreSQL behind a pooler.
const EVERYWHERE: &str = "binary(one_winner) | binary(fenced) | binary(linear) | binary(commands) | binary(issues) | binary(runner) | binary(judged) | binary(landing)";

/// Installs the binary as a user would and tells every story with it.
fn stories(long: bool) -> Result<()> {
    let bin = install()?;
    let servers = Servers::start()?;
    let mut env = vec![("TOFT_BIN", bin.as_str())];
    let mut args = vec!["nextest", "run", "--package", "toft-stories", "--no-fail-fast"];
    if long {
        env.push(("TOFT_LONG", "1"));
        args.extend(["--no-capture", "--test-threads", "1"]);
    }
    let mut all = env.clone();
    all.extend(servers.env());
    cargo(&args, &all)?;
    args.extend(["-E", EVERYWHERE]);
    for (n, (_, url)) in servers.env().into_iter().enumerate() {
        let mut there = env.clone();
        there.push(("TOFT_STORY_SERVER", url));
        cargo(&args, &there)?;
        if n == 0 {
            // The same behind `toft serve`.
            there.push(("TOFT_STORY_FLEET", "1"));
            cargo(&args, &there)?;
        }
    }
    if long {
        step("clients", || clients::table(&root(), &env))?;
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
    cargo(&["nextest", "run", "--package", "toft-stories", "--test", "board", story], &[("TOFT_BIN", &bin)])?;
    for (name, screen) in PICTURES {
        let seen = root().join("target/screens").join(format!("{screen}.png"));
        let to = root().join("docs/images").join(format!("{name}.png"));
        std::fs::copy(&seen, &to).with_context(|| format!("{} was not copied", seen.display()))?;
    }
    Ok(())
}

fn install() -> Result<String> {
    let to = root().join("target").join("installed");
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
        let status = Command::new(cargo).args(args).envs(env.iter().copied()).current_dir(root()).status()?;
        if !status.success() {
            bail!("cargo {} failed", args.join(" "));
        }
        Ok(())
    })
}

fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    run()?;
    eprintln!("== {name}: {:.1?}", start.elapsed());
    Ok(())
}
