//! setup, and hook.

use std::{
    fs,
    io::{IsTerminal as _, Read as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value, json};
use toft::{
    Config, Located, Toft,
    doctor::{Check, Health},
    hooks::{Heard, HookEvent, Reply, session_name},
    vcs::Vcs,
};

use super::{App, Done, said_yes, share};
use crate::{
    args::{Hook, Setup},
    exit::Failure,
    render::{GuardSet, Page, SetupShown},
    setup::{self, Dialect, Ground, Guard, HARNESSES, Harness, Stood},
};

/// What is said of a hook that somebody changed.
const CHANGED: &str = "differs from what toft writes, and is not run; toft setup writes it again";
/// A harness that does not close its end is not waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// A longer event is none.
const LONGEST: u64 = 16 << 20;
/// A hook answers by then, or not at all.
const LATEST: Duration = Duration::from_secs(2);
/// What went wrong is noted in a file that never gets longer than this.
const LONGEST_LOG: u64 = 64 << 10;

pub(super) fn setup(app: &App<'_>, args: &Setup) -> Done {
    if args.agents.iter().any(|name| name == "guard") {
        return guard(app, args);
    }
    if !args.user && !args.remove && !args.dry_run && contributes(app)? {
        return Err(Failure::invalid(
            "you are a contributor here, so project files are not changed",
            "toft setup --user writes to your home instead; -n shows what would change here",
        ));
    }
    let ground = match args.user {
        true => Ground::user(toft::home(), &toft::state_home()),
        false => project(&toft::locate(&app.config()?)?)?,
    };
    let harnesses = chosen(args, &ground)?;
    let all = match args.remove {
        true => setup::unwire(&ground, &harnesses)?,
        false => setup::wire(&ground, &harnesses)?,
    };
    let names: Vec<&str> = harnesses.iter().map(|harness| harness.title).collect();
    let write = !all.is_empty() && !args.dry_run && (args.yes || agreed(&all)?);
    if write {
        setup::apply(&ground, &all, !args.remove)?;
    }
    let store = toft::locate(&app.config()?).is_ok_and(|located| !located.store.missing());
    app.show(&SetupShown { all, names: names.join(", "), written: write, removed: args.remove, store })
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
    app.show(&GuardSet { said, changes: guard.changes(args.remove), written: write })
}

fn project(located: &Located) -> Result<Ground, Failure> {
    match &located.checkout {
        Some(checkout) => Ok(Ground::project(checkout.root.clone(), &toft::state_home())),
        None => Err(Failure::invalid("not in a checkout", "change to one, or run toft setup --user")),
    }
}

fn chosen(args: &Setup, ground: &Ground) -> Result<Vec<&'static Harness>, Failure> {
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
        chosen = if args.remove { HARNESSES.iter().collect() } else { setup::detected(ground, &toft::home()) };
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
fn agreed(all: &[setup::Changed]) -> Result<bool, Failure> {
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
    let health = if matches!(stood, Stood::Stands(_)) { Health::Ok } else { Health::Warn };
    Ok(Some(Check { what: "guard before pushes".into(), health, seen: stood.explained() }))
}

/// Runs every hook that is written down for this checkout or this user, as its agent would.
pub(super) fn hooks_fire(located: &Located) -> Result<Vec<Check>, Failure> {
    let Some(checkout) = &located.checkout else { return Ok(Vec::new()) };
    let grounds = [project(located)?, Ground::user(toft::home(), &toft::state_home())];
    let mut checks: Vec<Check> = Vec::new();
    for probe in setup::probes(&grounds)? {
        let fired = probe.ours.then(|| probe.fire(&checkout.root, &checkout.state_dir()));
        let (health, seen) = match fired.unwrap_or_else(|| Err(CHANGED.to_owned())) {
            Err(problem) if problem == CHANGED => {
                (Health::Warn, format!("{}: `{}` {CHANGED}", probe.file, probe.command))
            }
            Ok(()) => (Health::Ok, format!("{} works", probe.file)),
            Err(problem) => (Health::Fail, format!("{}: `{}`: {problem}", probe.file, probe.command)),
        };
        let what = format!("hooks of {}", probe.harness.title);
        match checks
            .iter_mut()
            .find(|check| check.what == what && check.health == health && check.seen.starts_with(&seen))
        {
            // Of many in one file that work, one line is enough.
            Some(check) => check.seen = format!("{seen}, all of them"),
            None => checks.push(Check { what, health, seen }),
        }
    }
    Ok(checks)
}

/// Whatever happens, the harness goes on as if nothing had.
pub(super) fn hook(app: &App<'_>, args: &Hook) -> Done {
    if args.event == "pre-push" {
        let mut said = String::new();
        // What git does not say is not pushed.
        let _ = std::io::stdin().lock().take(LONGEST).read_to_string(&mut said);
        return share::before_push(app, args.rest.first().map_or("origin", String::as_str), &said);
    }
    let harness = Harness::named(&args.harness);
    let dialect = harness.map_or(Dialect::Claude, |harness| harness.dialect);
    // A store that others keep busy is not waited for.
    let (told, hear) = mpsc::channel();
    let (config, event, name) = (app.config()?, args.event.clone(), args.harness.clone());
    std::thread::spawn(move || {
        // Nobody may be listening any more.
        let _ = told.send(answer(config, &event, &name));
    });
    let late = || Err(Failure::stopped("it took too long", ""));
    let reply = hear.recv_timeout(LATEST).unwrap_or_else(|_| late()).unwrap_or_else(|failure| {
        note(app, &format!("{} {}: {}", args.event, args.harness, failure.message));
        Reply::default()
    });
    let said = spoken(dialect, &args.event, reply);
    if !said.is_empty() {
        app.output.lines(&[said]);
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(mut config: Config, word: &str, harness: &str) -> Result<Reply, Failure> {
    let Some(moment) = HookEvent::from_word(word) else { return Ok(Reply::default()) };
    let event = heard();
    let text = |names: &[&str]| names.iter().find_map(|name| event[*name].as_str()).unwrap_or_default().to_owned();
    let heard = Heard {
        session: Some(text(&["session_id", "sessionId", "conversation_id"]))
            .filter(|id| !id.is_empty())
            .unwrap_or_else(
                // One that does not say which it is, is known by its process.
                || format!("process {}", toft::runner::harness_process().unwrap_or_default()),
            ),
        source: text(&["source", "reason"]),
        again: event["stop_hook_active"].as_bool().unwrap_or(false),
        harness: harness.to_owned(),
        process: toft::runner::harness_process(),
        known: false,
    };
    let dir = Some(text(&["cwd"])).filter(|dir| !dir.is_empty()).map(PathBuf::from).filter(|dir| dir.is_dir());
    config.dir = config.dir.take().or(dir);
    let named = config.agent.is_some() || std::env::var("TOFT_AGENT").is_ok_and(|name| !name.is_empty());
    if !named {
        config.agent = Some(session_name(&heard.session));
    }
    let located = match toft::locate(&config) {
        Ok(located) if !located.store.missing() => located,
        // There is no toft here: nothing to say.
        Ok(_) | Err(toft::Error::NoRepository { .. }) => return Ok(Reply::default()),
        Err(error) => return Err(error.into()),
    };
    if let Some(checkout) = &located.checkout
        && setup::answer_probe(&checkout.state_dir())
    {
        return Ok(Reply::default());
    }
    let actor = located.agent.clone();
    let known = named || moment == HookEvent::Start && tell_shell(&actor);
    Ok(Toft::at(located)?.hooks().hook(&actor, moment, &Heard { known, ..heard })?)
}

/// The event, if the harness says one.
fn heard() -> Value {
    if std::io::stdin().is_terminal() {
        return Value::Null;
    }
    let (told, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read was not said.
        let _ = std::io::stdin().lock().take(LONGEST).read_to_end(&mut bytes);
        let _ = told.send(bytes);
    });
    let bytes = hear.recv_timeout(PATIENCE).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Lets every command of a session know who it is, and whose life a lease follows, where the harness can; whether it could.
fn tell_shell(agent: &str) -> bool {
    let Some(file) = std::env::var_os("CLAUDE_ENV_FILE").filter(|file| !file.is_empty()) else { return false };
    let pid = toft::runner::harness_process().map(|pid| format!("export TOFT_PID={pid}\n")).unwrap_or_default();
    let lines = format!("export TOFT_AGENT={agent}\n{pid}");
    let known = fs::read_to_string(&file).is_ok_and(|text| text.contains("TOFT_AGENT="));
    let opened = fs::File::options().append(true).create(true).open(file);
    known || opened.and_then(|mut file| file.write_all(lines.as_bytes())).is_ok()
}

/// The reply as a harness reads it.
fn spoken(dialect: Dialect, event: &str, Reply { context, hold_on }: Reply) -> String {
    let said = match (dialect, context, hold_on) {
        (Dialect::Gemini, None, None) => json!({}),
        (_, None, None) => return String::new(),
        (Dialect::Plain, context, hold_on) => return context.or(hold_on).unwrap_or_default(),
        (Dialect::Gemini, _, Some(reason)) => json!({ "decision": "deny", "reason": reason }),
        (Dialect::Cursor, _, Some(reason)) => json!({ "followup_message": reason }),
        (_, _, Some(reason)) => json!({ "decision": "block", "reason": reason }),
        (Dialect::Cursor, Some(context), _) => json!({ "additional_context": context }),
        (Dialect::Copilot, Some(context), _) => json!({ "additionalContext": context }),
        (_, Some(context), _) => {
            json!({ "hookSpecificOutput": { "hookEventName": event, "additionalContext": context } })
        }
    };
    said.to_string()
}

/// Notes what went wrong where `toft doctor` finds it.
fn note(app: &App<'_>, text: &str) {
    let located = app.config().ok().and_then(|config| toft::locate(&config).ok());
    let Some(checkout) = located.and_then(|located| located.checkout) else { return };
    let path = checkout.state_dir().join("hooks.log");
    if fs::metadata(&path).is_ok_and(|meta| meta.len() > LONGEST_LOG) {
        // The newest is worth more than the oldest.
        let _ = fs::remove_file(&path);
    }
    if let Ok(mut file) = fs::File::options().append(true).create(true).open(path) {
        let _ = writeln!(file, "{text}");
    }
}
