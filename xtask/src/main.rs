//! The project's own chores. `cargo xtask check` is what CI runs.

#![expect(clippy::print_stderr, reason = "progress is for whoever waits")]

mod claims;
mod clients;
mod docs;
mod links;
mod pages;
mod promises;
mod servers;
mod size;
mod stories;
mod tidy;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::servers::Servers;

const HELP: &str = "\
cargo xtask check     fmt, clippy, unit tests, doc tests, deny, tidy
cargo xtask test ...  nextest with these arguments, and with the servers that tests run against
cargo xtask gate      what each landing runs: check, and the stories that are not marked
cargo xtask wide      what the gate leaves out: stories marked `wide`, stories behind a server, speed, size, the book, licences
cargo xtask long      all stories at full size
cargo xtask size      the size of the binary that is shipped, and the largest groups of functions in it
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
        ["test", rest @ ..] => test(rest),
        ["gate"] => gate(),
        ["wide"] => wide(),
        ["long"] => long(),
        ["size"] => size(),
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
    // Not where it was compiled, which may have been in another clone.
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from).join("..")
}

/// Where cargo builds.
fn build_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

const CLIPPY: [&str; 7] = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
/// Builds the programs that tests start, from the same compiled crates as the tests themselves.
const BUILD_PROGRAMS: [&str; 6] = ["build", "--workspace", "--all-features", "--bins", "--profile", "test"];
/// Runs tests. Always of the whole workspace: with fewer packages or features, cargo would compile most of it again.
const TEST: [&str; 5] = ["nextest", "run", "--workspace", "--all-features", "--no-fail-fast"];

fn check() -> Result<()> {
    check_code()?;
    let servers = Servers::start()?;
    cargo(&[&TEST[..], &["-E", "not package(toft-stories)"]].concat(), &servers.env())?;
    drop(servers);
    check_rest()
}

fn test(args: &[&str]) -> Result<()> {
    cargo(&BUILD_PROGRAMS, &[])?;
    let servers = Servers::start()?;
    cargo(&[&TEST[..], args].concat(), &servers.env())
}

/// Runs what each landing runs, with the binary of the dev profile: its dependencies are optimised, and it is there in a
/// tenth of the time.
fn gate() -> Result<()> {
    check_code()?;
    cargo(&BUILD_PROGRAMS, &[])?;
    let servers = Servers::start()?;
    // Every other one waits: for a disk, a time limit, a process that was told to end.
    let threads = (2 * thread::available_parallelism().map_or(1, usize::from)).to_string();
    cargo(&[&TEST[..], &["--test-threads", &threads]].concat(), &servers.env())?;
    behind_a_server(&servers, &[], &["-E", "binary(leases)"])?;
    drop(servers);
    check_docs()
}

fn check_code() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&CLIPPY, &[])
}

fn check_rest() -> Result<()> {
    check_docs()?;
    check_licences()
}

fn check_docs() -> Result<()> {
    cargo(&["test", "--workspace", "--doc", "--all-features"], &[])?;
    step("tidy", || tidy::run(&root()))
}

/// Not in the gate: a machine that has no cargo-deny compiles it for five minutes.
fn check_licences() -> Result<()> {
    cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"], &[])?;
    let rules = ["--manifest-path", BOOK, "--config", "xtask/book/deny.toml"];
    cargo(&[&["deny", "--offline"], &rules[..], &["check", "bans", "licenses", "sources"]].concat(), &[])
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

/// Writes what the types, the command line, configuration and the log say of themselves.
fn reference() -> Result<()> {
    cargo(&[&TEST[..], &["-E", "test(/checked_in_schema/)"]].concat(), &[("TOFT_BLESS", "1")])?;
    cargo(&BUILD_PROGRAMS, &[])?;
    run(Command::new(build_dir().join("debug/toft")).args(["reference", "--dir"]).arg(root().join("docs/reference")))
}

/// Stories that are told on files, and behind `toft serve` on PostgreSQL.
const ON_EVERY_STORE: [&str; 4] = ["--run-ignored", "all", "-E", "binary(leases) | binary(everywhere)"];

/// Runs, with the binary that is shipped, every test that the gate leaves out. A test with
/// `#[ignore = "wide: …"]` is one of them.
fn wide() -> Result<()> {
    let bin = install()?;
    let servers = Servers::start()?;
    let here = [("TOFT_BIN", bin.as_str())];
    let env = [&here[..], &servers.env()].concat();
    let not_long = format!("not ({})", stories::long_filter(&tidy::sources(&root())?));
    // It takes an hour: a part that fails does not keep the others from being run.
    let mut parts = vec![
        cargo(&[&TEST[..], &["--run-ignored", "only", "-E", &not_long]].concat(), &env),
        behind_a_server(&servers, &here, &ON_EVERY_STORE),
    ];
    drop(servers);
    parts.extend([speed(&bin), size::check(Path::new(&bin)), book(), check_licences()]);
    let failed: Vec<String> = parts.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(())
}

/// Tells every story at full size, with the binary that is shipped.
fn long() -> Result<()> {
    let bin = install()?;
    let servers = Servers::start()?;
    let here = [("TOFT_BIN", bin.as_str()), ("TOFT_LONG", "1")];
    let at_full_size = ["--no-capture", "--test-threads", "1"];
    let stories = ["--run-ignored", "all", "--ignore-default-filter", "-E", "package(toft-stories)"];
    cargo(&[&TEST[..], &at_full_size, &stories].concat(), &[&here[..], &servers.env()].concat())?;
    behind_a_server(&servers, &here, &[&at_full_size[..], &ON_EVERY_STORE].concat())?;
    step("clients", || clients::table(&root(), &here))
}

/// Tells the stories that measure time, one after the other.
fn speed(bin: &str) -> Result<()> {
    let measured = ["--ignore-default-filter", "--test-threads", "1", "-E", "binary(speed)"];
    cargo(&[&TEST[..], &measured].concat(), &[("TOFT_BIN", bin)])
}

/// Tells stories behind `toft serve` on PostgreSQL, where it is installed.
fn behind_a_server(servers: &Servers, env: &[(&str, &str)], args: &[&str]) -> Result<()> {
    let Some((_, url)) = servers.env().into_iter().next() else { return Ok(()) };
    cargo(&[&TEST[..], args].concat(), &[env, &[("TOFT_STORY_SERVER", url)]].concat())
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
    let filter = format!("binary(screens) & test({story})");
    cargo(&[&TEST[..], &["--run-ignored", "all", "-E", &filter]].concat(), &[("TOFT_BIN", &bin)])?;
    for (name, screen) in PICTURES {
        let seen = build_dir().join("screens").join(format!("{screen}.png"));
        let to = root().join("docs/images").join(format!("{name}.png"));
        std::fs::copy(&seen, &to).with_context(|| format!("{} was not copied", seen.display()))?;
    }
    Ok(())
}

/// Installs the binary as it is shipped.
fn install() -> Result<String> {
    let to = build_dir().join("installed");
    let path = root().join("crates").join("toft-cli");
    let (to, path) = (to.display().to_string(), path.display().to_string());
    let args = ["install", "--locked", "--quiet", "--force", "--profile", "dist", "--path", &path, "--root", &to];
    cargo(&args, &[])?;
    let bin = Path::new(&to).join("bin").join("toft");
    let bin = bin.canonicalize().with_context(|| format!("{} was not installed", bin.display()))?;
    Ok(bin.display().to_string())
}

/// Builds what is shipped, and the same with symbols.
fn size() -> Result<()> {
    let shipped = install()?;
    let release =
        ["build", "--locked", "--package", "toft-cli", "--profile", "dist", "--config", "profile.dist.strip=false"];
    cargo(&release, &[])?;
    size::print_groups(&build_dir().join("dist/toft"))?;
    size::check(Path::new(&shipped))
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
        let mut command = Command::new(cargo);
        // What cargo tells this program of itself: a build script that looks at it would run again in each clone, and with
        // it ring and everything that uses TLS.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|own| name.to_string_lossy().starts_with(own)) {
                command.env_remove(name);
            }
        }
        run(command.args(args).envs(env.iter().copied()))
    })
}

/// Runs a program in the workspace's root; it must succeed.
fn run(command: &mut Command) -> Result<()> {
    let status = command.current_dir(root()).status()?;
    if !status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        bail!("{} {} failed", command.get_program().to_string_lossy(), words.join(" "));
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
