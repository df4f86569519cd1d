//! Doctor: checks that this installation works.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use toft_core::{
    lease::{Liveness, Processes},
    store::{Access, StoreError, ask},
    verbs::{audit, facts, issue::Pending},
    workspace::WorkspaceState,
};
use toft_runner::{Network, Sandbox};
use toft_session::{
    engine::{Engine, Open},
    error::Error,
};
use toft_store::{SqliteStore, sqlite::SCHEMA_VERSION};
use toft_vcs::{exchange::ExchangeError, workspace::WorkspaceBackend};
use toft_work::workspaces::SeenWorkspace;

use crate::Toft;

/// Maximum number of items of a kind that are listed.
const SHOWN: usize = 5;
/// A plan with more unfinished issues than this is too long to be useful.
const MANY_OPEN: u64 = 1_000;
/// Time limit for contacting the remotes of ledgers.
const ASKING: Duration = Duration::from_secs(5);

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub what: String,
    /// The result.
    pub health: Health,
    /// What was found.
    pub seen: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It works.
    Ok,
    /// It works, with a warning.
    Warn,
    /// It does not work.
    Fail,
}

/// Checks everything that toft relies on, with the real store. Nothing is kept.
pub fn examine(toft: &Toft) -> Vec<Check> {
    let mut checks = match toft.engine() {
        Engine::File(store) => vec![
            check("sqlite", || Ok(format!("{}, schema {SCHEMA_VERSION}", SqliteStore::engine()))),
            check("file", || integrity(store)),
            permissions(store),
        ],
        #[cfg(feature = "postgres")]
        Engine::Server(store) => server(store),
        Engine::Remote(_) => vec![check("server", || asked(toft))],
    };
    if !matches!(toft.engine(), Engine::Remote(_)) {
        checks.push(check("write", || write_and_forget(toft)));
        checks.push(check("shared", || two_connections(toft)));
    }
    checks.extend([check("invariants", || invariants(toft)), check("processes", || processes(toft))]);
    checks.extend(ledgers(toft));
    checks.extend(sharing(toft));
    checks.extend(workspaces(toft));
    checks.push(sandbox());
    checks
}

/// What `toft run --sandbox` would enforce.
fn sandbox() -> Check {
    let sandbox = Sandbox { network: Network::Closed, ..Sandbox::default() };
    let seen = match sandbox.kind() {
        Ok(kind) => format!("offline by {}", sandbox.promise(kind)),
        Err(error) => format!("{error}; --sandbox cannot be used"),
    };
    Check { what: "sandbox".into(), health: Health::Ok, seen }
}

/// Whether store, version control and disk agree about workspaces, and no operation was interrupted.
fn workspaces(toft: &Toft) -> Option<Check> {
    let all = toft.workspaces().ok()?;
    let seen = || -> Result<_, Error> { Ok((all.list(false, 0)?, all.unknown()?)) };
    let (health, text) = match seen() {
        Err(error) => (Health::Fail, error.to_string()),
        Ok((seen, unknown)) => {
            let mut odd: Vec<String> = Vec::new();
            for SeenWorkspace { listed, trouble, help, .. } in &seen {
                let workspace = &listed.workspace;
                let hint = help.as_deref().unwrap_or("toft ws list");
                odd.extend(trouble.iter().map(|trouble| format!("{}: {trouble} ({hint})", workspace.name)));
                if workspace.state != WorkspaceState::Ready {
                    let state = workspace.state.as_str();
                    odd.push(format!("{} is {state}; toft ws gc completes that", workspace.name));
                }
            }
            odd.extend(unknown.iter().map(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                match WorkspaceBackend::written_unmounted(&name) {
                    true => format!(
                        "{} was written while the workspace was not mounted; copy what you need",
                        path.display()
                    ),
                    false => format!("{} is not a workspace; toft does not change it", path.display()),
                }
            }));
            let made_as = all.made_as().map(|how| format!("; new ones are created as {how}")).unwrap_or_default();
            let well = match seen.len() {
                1 => format!("1 workspace, none damaged{made_as}"),
                count => format!("{count} workspaces, none damaged{made_as}"),
            };
            if odd.is_empty() { (Health::Ok, well) } else { (Health::Warn, format!("{}{made_as}", odd.join("; "))) }
        }
    };
    Some(Check { what: "workspaces".into(), health, seen: text })
}

/// Whether every line of the ledgers can be read, and every dependency exists.
fn ledgers(toft: &Toft) -> Option<Check> {
    let told = |health, seen| Some(Check { what: "ledgers".into(), health, seen });
    let examined = || -> Result<_, Error> {
        let Some(plan) = toft.plan()? else { return Ok(None) };
        let untold = toft.perform(Pending { scope: toft.scope() })?.len();
        let (bad, circles) = (plan.unreadable()?, plan.circles(SHOWN)?);
        Ok(Some((bad, plan.troubles()?, plan.dangling(SHOWN)?, untold, plan.counts()?, plan.orphans()?, circles)))
    };
    let (bad, troubles, dangling, untold, (issues, open), orphans, circles) = match examined() {
        Ok(Some(found)) => found,
        Ok(None) => return None,
        Err(error) => return told(Health::Fail, error.to_string()),
    };
    let mut wrong: Vec<String> = bad.iter().map(|(name, why)| format!("`{name}` cannot be read: {why}")).collect();
    if !troubles.is_empty() {
        let all: Vec<_> = troubles
            .iter()
            .take(SHOWN)
            .map(|found| format!("{}:{}: {}", found.file, found.line, found.problem))
            .collect();
        let hint = match troubles.iter().any(|found| found.conflict) {
            true => "`toft gc --ledgers` removes the conflict markers; correct other lines in the file",
            false => "correct these lines in the file; until then toft ignores them and uses the rest",
        };
        wrong.push(format!("{} ({hint})", all.join("; ")));
    }
    if !wrong.is_empty() {
        let fails = !bad.is_empty() || troubles.iter().any(|found| found.conflict);
        return told(if fails { Health::Fail } else { Health::Warn }, wrong.join("; "));
    }
    let mut odd: Vec<String> =
        dangling.iter().map(|(id, on)| format!("{id} needs {on}, which is in no ledger here")).collect();
    odd.extend(circles.iter().map(|circle| {
        let first = circle.first().map_or("", String::as_str);
        format!(
            "{} need each other; {first} can start first, and toft edit ID --unneeds ID breaks the cycle",
            circle.join(", ")
        )
    }));
    if open > MANY_OPEN {
        odd.push(format!(
            "{open} issues are open, and toft recommends at most {MANY_OPEN}: close or defer some (toft list --limit 50), or \
             move some to another ledger (toft move --to LEDGER --filter …)"
        ));
    }
    odd.extend(orphans.iter().take(SHOWN).map(|(found, orphan)| format!("{} {}", found.issue.id, orphan.explained())));
    if untold > 0 {
        odd.push(format!(
            "{untold} issues have changes that are not in their ledgers yet; the next command writes them"
        ));
    }
    match odd.is_empty() {
        true => told(Health::Ok, format!("{issues} issues, {open} open; no unreadable lines")),
        false => told(Health::Warn, odd.join("; ")),
    }
}

/// Whether ledgers can be exchanged: every remote is contacted, and nothing is fetched or sent.
fn sharing(toft: &Toft) -> Option<Check> {
    let plan = toft.plan().ok()??;
    let (mut health, mut seen) = (Health::Ok, Vec::new());
    for (ledger, asked) in plan.ask_others(ASKING) {
        seen.push(match asked {
            Ok(Some(remote)) => format!("ledger {ledger}: {remote} answers"),
            Ok(None) => format!("ledger {ledger}: not shared (no remote)"),
            Err(ExchangeError::Offline { remote, .. }) => format!("ledger {ledger}: {remote} does not answer"),
            Err(error) => {
                health = Health::Warn;
                format!("ledger {ledger}: {error}")
            }
        });
    }
    Some(Check { what: "sharing".into(), health, seen: seen.join("; ") })
}

/// Whether the server keeps acknowledged writes, and whether anything slows it down.
#[cfg(feature = "postgres")]
fn server(store: &toft_store::PostgresStore) -> Vec<Check> {
    let health = match store.health() {
        Ok(health) => health,
        Err(error) => return vec![Check { what: "postgres".into(), health: Health::Fail, seen: error.to_string() }],
    };
    let told = |what: &str, ill: Health, wrong: Vec<String>, well: String| {
        let (health, seen) = if wrong.is_empty() { (Health::Ok, well) } else { (ill, wrong.join("; ")) };
        Check { what: what.into(), health, seen }
    };
    let standbys = match health.standbys {
        0 if !health.sees_others => "standbys are not visible to this role".to_owned(),
        0 => "no synchronous standby: a lost server loses what is not in its backup".to_owned(),
        n => format!("commits wait for {n} standby"),
    };
    let version = format!("{}.{}", health.version / 10_000, health.version % 10_000);
    let well = format!("{version} at {}; commits wait for the disk; {standbys}", store.shown());
    let snapshot = format!(
        "oldest snapshot {} s, at most {} dead rows in a table",
        health.oldest_snapshot.as_secs(),
        health.dead_rows
    );
    vec![
        told("postgres", Health::Fail, health.faults(), well),
        told("upkeep", Health::Warn, health.warnings(), snapshot),
    ]
}

fn check(what: &str, run: impl FnOnce() -> Result<String, Error>) -> Check {
    let (health, seen) = match run() {
        Ok(seen) => (Health::Ok, seen),
        Err(error) => (Health::Fail, error.to_string()),
    };
    Check { what: what.into(), health, seen }
}

fn failed(doing: &str, cause: String) -> Error {
    StoreError::Failed { doing: doing.into(), cause }.into()
}

fn integrity(store: &SqliteStore) -> Result<String, Error> {
    let found = store.check()?;
    if found.is_empty() { Ok("integrity check passed".into()) } else { Err(failed("check the file", found.join("; "))) }
}

/// Checks that only the owner can read the store, which contains prompts and notes.
fn permissions(store: &SqliteStore) -> Check {
    let (health, seen) = match mode(store.path()) {
        Some(mode) if mode & 0o077 != 0 => (Health::Warn, format!("others can read the store (mode {mode:o})")),
        Some(mode) => (Health::Ok, format!("mode {mode:o}")),
        None => (Health::Ok, "unknown on this system".into()),
    };
    Check { what: "private".into(), health, seen }
}

fn mode(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).ok().map(|meta| meta.permissions().mode() & 0o777)
}

/// How long a server takes to answer.
fn asked(toft: &Toft) -> Result<String, Error> {
    let start = Instant::now();
    toft.perform(facts::Clock {})?;
    Ok(format!("{} answered in {:.1} ms", toft.located().store, start.elapsed().as_secs_f64() * 1e3))
}

/// Acquires the write lock, and releases it without writing.
fn write_and_forget(toft: &Toft) -> Result<String, Error> {
    let start = Instant::now();
    toft.store()?.begin(Access::Write)?.now()?;
    Ok(format!("write lock acquired in {:.1} ms", start.elapsed().as_secs_f64() * 1e3))
}

/// A second connection must see the same store while the first holds the write lock.
fn two_connections(toft: &Toft) -> Result<String, Error> {
    let other = Engine::open(&toft.located().store, Open::Briefly)?;
    let held = toft.store()?.begin(Access::Write)?;
    let ids = ask(other.store()?, |tx| tx.ids("", 1))?;
    drop(held);
    let mine = ask(toft.store()?, |tx| tx.ids("", 1))?;
    if ids == mine {
        Ok("a second connection reads while the first writes".into())
    } else {
        Err(failed("compare two connections", "they read different data".into()))
    }
}

fn invariants(toft: &Toft) -> Result<String, Error> {
    let outcome = toft.perform(audit::Request { events: 10_000 })?;
    if outcome.broken.is_empty() {
        Ok(format!("checked {} open tasks, no violation", outcome.tasks))
    } else {
        Err(failed("audit the invariants", outcome.broken.join("; ")))
    }
}

/// Whether this machine can distinguish live and dead processes, which leases rely on.
fn processes(toft: &Toft) -> Result<String, Error> {
    let machine = toft.machine();
    let me = machine.this_process().ok_or_else(|| failed("look at this process", "it cannot be seen".into()))?;
    let gone = toft_core::lease::Holder { started: me.started.wrapping_add(1), ..me.clone() };
    match (machine.liveness(&me), machine.liveness(&gone)) {
        (Liveness::Alive, Liveness::Dead) => {
            Ok(format!("leases follow processes on host {}; a lease lasts {}", machine.host(), span(toft)))
        }
        (Liveness::Alive, _) => Ok("process start times are unknown; leases end by time only".into()),
        _ => Err(failed("look at this process", "it counts as dead".into())),
    }
}

fn span(toft: &Toft) -> String {
    let ttl: Duration = toft.located().policy.ttl;
    format!("{} s", ttl.as_secs())
}
