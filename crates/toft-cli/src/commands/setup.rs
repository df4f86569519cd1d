//! setup, and what `toft doctor` says of it.

use std::{collections::BTreeMap, fs, io::IsTerminal as _, path::Path, time::Duration};

use clap::ValueEnum as _;
use toft::{
    Located, Toft,
    doctor::{Check, Health},
    vcs::Vcs,
};

use super::{
    App, Done,
    hook::{HOOK_LOG, MAX_LOG_BYTES},
    said_yes, ws,
};
use crate::{
    args::{Setup, ShellKind},
    exit::Failure,
    render::{Page, SetupShown, view_push_guard},
    setup::{self, ClientAnswer, Guard, GuardStatus, HARNESSES, Harness, SetupTarget},
};

/// Failures of hooks are reported for this long.
const RECENT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn setup(app: &App<'_>, args: &Setup) -> Done {
    if args.agents.iter().any(|name| name == "guard") {
        return guard(app, args);
    }
    if let Some(("shell", kind)) = args.agents.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        let kind = kind.first().map(|kind| ShellKind::from_str(kind, false)).transpose();
        return ws::shell(app, kind.map_err(|_| Failure::invalid("that shell is not known", "bash, zsh or fish"))?);
    }
    if !args.user && !args.remove && !args.dry_run && contributes(app)? {
        return Err(Failure::invalid(
            "you are a contributor here, so project files are not changed",
            "toft setup --user writes to your home instead; -n shows what would change here",
        ));
    }
    let target = match args.user {
        true => at_home(toft::locate(&app.config()?).ok().as_ref()),
        false => project(&toft::locate(&app.config()?)?)?,
    };
    let harnesses = chosen(args, &target)?;
    let all = match args.remove {
        true => setup::unwire(&target, &harnesses)?,
        false => setup::wire(&target, &harnesses)?,
    };
    let names: Vec<&str> = harnesses.iter().map(|harness| harness.title).collect();
    let write = !all.is_empty() && !args.dry_run && (args.yes || agreed(&all)?);
    if write {
        setup::apply(&target, &all, !args.remove)?;
    }
    let located = toft::locate(&app.config()?).ok();
    let store = located.as_ref().is_some_and(|located| !located.store.missing());
    let dir = located.and_then(|located| located.checkout).map_or_else(toft::home, |checkout| checkout.root);
    let ask = |harness: &&'static Harness| (harness.title, harness.ask(&dir));
    let asked = if write && !args.remove { harnesses.iter().map(ask).collect() } else { Vec::new() };
    app.show(&SetupShown { all, names: names.join(", "), written: write, removed: args.remove, store, asked }.view())
}

/// The files at home; with the directory of this repository's store, which a client's sandbox has to let through.
fn at_home(located: Option<&Located>) -> SetupTarget {
    let store = located.and_then(|located| {
        let dir = located.store.file()?.parent()?;
        // Around a store elsewhere there are a user's own files.
        let own = located.checkout.as_ref().is_some_and(|checkout| checkout.state_dir() == dir);
        own.then(|| dir.to_owned())
    });
    SetupTarget::user(toft::home(), &toft::state_home(), store)
}

/// The hook that looks at what leaves.
fn guard(app: &App<'_>, args: &Setup) -> Done {
    let located = toft::locate(&app.config()?)?;
    let Some(checkout) = located.checkout.filter(|checkout| checkout.vcs == Vcs::Git && args.agents.len() == 1) else {
        return Err(Failure::invalid(
            "`guard` needs a git checkout and cannot be combined with agents",
            "toft setup guard, in a git checkout",
        ));
    };
    let Some(dir) = toft::vcs::exchange::hooks_dir(&checkout).map_err(toft::Error::from)? else {
        return Err(Failure::stopped(
            "core.hooksPath is set, so the hook cannot be installed in this repository",
            "run this in the pre-push hook there: toft hook pre-push \"$1\" \"$2\"",
        ));
    };
    let guard = Guard::at(dir)?;
    let said = guard.words(args.remove);
    let write = guard.changes(args.remove)
        && !args.dry_run
        && (args.yes || said_yes(&format!("{said}\n"), "Change the hook?")?);
    if write {
        guard.apply(args.remove)?;
    }
    app.show(&view_push_guard(&said, guard.changes(args.remove), write))
}

fn project(located: &Located) -> Result<SetupTarget, Failure> {
    match &located.checkout {
        Some(checkout) => Ok(SetupTarget::project(checkout.root.clone(), &toft::state_home())),
        None => Err(Failure::invalid("not in a checkout", "change to one, or run toft setup --user")),
    }
}

fn chosen(args: &Setup, target: &SetupTarget) -> Result<Vec<&'static Harness>, Failure> {
    if args.all {
        return Ok(HARNESSES.iter().collect());
    }
    let known: Vec<&str> = HARNESSES.iter().map(|harness| harness.name).collect();
    let mut chosen = Vec::new();
    for name in &args.agents {
        let plain = name.trim_end_matches("-code").trim_end_matches("-cli").trim_end_matches("-agent");
        let harness = Harness::named(plain)
            .ok_or_else(|| Failure::invalid(format!("unknown agent `{name}`"), &format!("use {}", known.join(", "))))?;
        chosen.push(harness);
    }
    if args.agents.is_empty() {
        // What was written once is taken away wherever it is.
        chosen = if args.remove { HARNESSES.iter().collect() } else { setup::detected(target, &toft::home()) };
    }
    if chosen.is_empty() {
        return Err(Failure::nothing(
            "no coding agent was found here",
            &format!("name one: toft setup {}", known.join("|")),
        ));
    }
    Ok(chosen)
}

/// Asks the person at the terminal; without one, nobody agreed.
fn agreed(all: &[setup::FileChange]) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    let mut page = Page::new(false);
    SetupShown::diffs(all, &mut page);
    said_yes(page.text(), "Write these changes?")
}

/// Whether others keep the project's own ledger.
fn kept_by_others(toft: &Toft) -> Result<bool, Failure> {
    Ok(toft.plan()?.is_some_and(|plan| plan.ledgers().iter().any(|ledger| ledger.kept_by_others)))
}

fn contributes(app: &App<'_>) -> Result<bool, Failure> {
    app.open_if_any()?.map_or(Ok(false), kept_by_others)
}

/// A contributor's pushes are looked at, or it is said why not.
pub(super) fn guarded(toft: &Toft) -> Result<Option<Check>, Failure> {
    let Some(checkout) = &toft.located().checkout else { return Ok(None) };
    if !kept_by_others(toft)? {
        return Ok(None);
    }
    let stood = setup::stand(checkout, false)?;
    let health = if matches!(stood, GuardStatus::Installed(_)) { Health::Ok } else { Health::Warn };
    Ok(Some(Check { what: "guard before pushes".into(), health, seen: stood.explained() }))
}

/// Asks every client that toft was set up for, and that can be asked.
fn client_checks(root: &Path, targets: &[SetupTarget]) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    for harness in &HARNESSES {
        if !setup::is_wired(harness, targets)? {
            continue;
        }
        let (health, seen) = match harness.ask(root) {
            ClientAnswer::Unknown => continue,
            ClientAnswer::Connected => (Health::Ok, "it uses toft's MCP server".to_owned()),
            ClientAnswer::NeedsTrust(said, step) => (Health::Warn, format!("{step}; it says: {said}")),
            ClientAnswer::Failed(said) => (Health::Fail, format!("it cannot use toft's MCP server: {said}")),
        };
        checks.push(Check { what: harness.title.to_owned(), health, seen });
    }
    Ok(checks)
}

/// Runs every hook that is configured for this checkout or this user, as its agent would: one line for each file whose
/// hooks all work, and one for each hook that does not.
pub(super) fn hook_checks(located: &Located) -> Result<Vec<Check>, Failure> {
    let Some(checkout) = &located.checkout else { return Ok(Vec::new()) };
    let targets = [project(located)?, at_home(Some(located))];
    let mut files: BTreeMap<(String, String), Vec<(Health, String)>> = BTreeMap::new();
    for probe in setup::probes(&targets)? {
        let run = match probe.ours {
            true => probe.fire(&checkout.root, &checkout.state_dir()).map_err(|problem| (Health::Fail, problem)),
            false => Err((
                Health::Warn,
                "differs from what toft writes, and is not run; toft setup writes it again".to_owned(),
            )),
        };
        let seen = match run {
            Ok(()) => (Health::Ok, String::new()),
            Err((health, problem)) => (health, format!("{}: `{}`: {problem}", probe.file, probe.command)),
        };
        files.entry((format!("hooks of {}", probe.harness.title), probe.file)).or_default().push(seen);
    }
    let mut checks = client_checks(&checkout.root, &targets)?;
    for ((what, file), runs) in files {
        let working = runs.iter().filter(|(health, _)| *health == Health::Ok).count();
        if working == runs.len() {
            checks.push(Check { what, health: Health::Ok, seen: format!("{file}: all {working} hooks work") });
            continue;
        }
        let broken = runs.into_iter().filter(|(health, _)| *health != Health::Ok);
        checks.extend(broken.map(|(health, seen)| Check { what: what.clone(), health, seen }));
    }
    let log = checkout.state_dir().join(HOOK_LOG);
    let meta = fs::symlink_metadata(&log).ok().filter(|meta| meta.is_file() && meta.len() <= MAX_LOG_BYTES * 2);
    let age = meta.and_then(|meta| meta.modified().ok()).and_then(|at| at.elapsed().ok());
    if age.is_some_and(|age| age < RECENT)
        && let Ok(text) = fs::read(&log)
    {
        let last = String::from_utf8_lossy(&text).lines().last().unwrap_or_default().to_owned();
        let seen = format!("a hook failed within a day: {last}; all failures: {}", log.display());
        checks.push(Check { what: "hook errors".into(), health: Health::Warn, seen });
    }
    Ok(checks)
}
