//! hook: what a harness says is understood, answered within two seconds, and said back in the harness's own form.
//!
//! A hook never fails: problems are written to `hooks.log`, and the harness continues. The rules of a session are in
//! `toft::hooks`.

use std::{
    fs,
    io::{IsTerminal as _, Read, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value, json};
use toft::{
    Config, Toft,
    hooks::{Heard, HookEvent, Reply, session_name},
};

use super::{App, Done, share};
use crate::{
    args::Hook,
    exit::Failure,
    setup::{self, Dialect, Harness},
};

/// How long to wait for a harness that does not close its end.
const PATIENCE: Duration = Duration::from_millis(500);
/// Maximum size of an event; a longer one is ignored.
const LONGEST: u64 = 16 << 20;
/// A hook answers within this time, or not at all.
const LATEST: Duration = Duration::from_secs(2);
/// Maximum size of the log of failures.
const LONGEST_LOG: u64 = 64 << 10;

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
    let (config, event, name) = (app.config()?, args.event.clone(), args.harness.clone());
    let reply = within(LATEST, move || answer(config, &event, &name)).unwrap_or_else(|failure| {
        note(app, &format!("{} {}: {}", args.event, args.harness, failure.message));
        Reply::default()
    });
    let said = spoken(dialect, &args.event, reply);
    if !said.is_empty() {
        app.output.lines(&[said]);
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer, if it comes in time: a store that others keep busy is not waited for.
fn within(
    latest: Duration,
    answer: impl FnOnce() -> Result<Reply, Failure> + Send + 'static,
) -> Result<Reply, Failure> {
    let (told, hear) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody may be listening any more.
        let _ = told.send(answer());
    });
    hear.recv_timeout(latest).unwrap_or_else(|_| Err(Failure::stopped("it took too long", "")))
}

fn answer(mut config: Config, word: &str, harness: &str) -> Result<Reply, Failure> {
    let Some(moment) = HookEvent::from_word(word) else { return Ok(Reply::default()) };
    let bytes = match std::io::stdin().is_terminal() {
        true => Vec::new(),
        false => event_from(std::io::stdin(), PATIENCE),
    };
    let (heard, dir) = understood(&bytes, harness, Heard::here());
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
    let shell = std::env::var_os("CLAUDE_ENV_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let tell = |file: &PathBuf| tell_shell(file, &actor, heard.process);
    let known = named || moment == HookEvent::Start && shell.as_ref().is_some_and(tell);
    Ok(Toft::at(located)?.hooks().hook(&actor, moment, &Heard { known, ..heard })?)
}

/// The event of a harness; empty if it does not come in time.
fn event_from(input: impl Read + Send + 'static, patience: Duration) -> Vec<u8> {
    let (told, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read was not said.
        let _ = input.take(LONGEST).read_to_end(&mut bytes);
        let _ = told.send(bytes);
    });
    hear.recv_timeout(patience).unwrap_or_default()
}

/// What an event says, whichever names its harness uses, added to what is known `here`; and its directory.
fn understood(event: &[u8], harness: &str, here: Heard) -> (Heard, Option<PathBuf>) {
    let event: Value = serde_json::from_slice(event).unwrap_or_default();
    let text = |names: &[&str]| names.iter().find_map(|name| event[*name].as_str()).unwrap_or_default().to_owned();
    let session = Some(text(&["session_id", "sessionId", "conversation_id"])).filter(|id| !id.is_empty());
    let heard = Heard {
        // A session that does not say its id is identified by its process.
        session: session.unwrap_or_else(|| format!("process {}", here.process.unwrap_or_default())),
        source: text(&["source", "reason"]),
        again: event["stop_hook_active"].as_bool().unwrap_or(false),
        harness: harness.to_owned(),
        ..here
    };
    let dir = Some(text(&["cwd"])).filter(|dir| !dir.is_empty()).map(PathBuf::from).filter(|dir| dir.is_dir());
    (heard, dir)
}

/// Adds the agent's name, and the process that its leases follow, to the variables of every command of a session;
/// returns whether they are there.
fn tell_shell(file: &Path, agent: &str, process: Option<u32>) -> bool {
    let pid = process.map(|pid| format!("export TOFT_PID={pid}\n")).unwrap_or_default();
    let lines = format!("export TOFT_AGENT={agent}\n{pid}");
    let known = fs::read_to_string(file).is_ok_and(|text| text.contains("TOFT_AGENT="));
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

/// Writes a failure to the log of this checkout.
fn note(app: &App<'_>, text: &str) {
    let located = app.config().ok().and_then(|config| toft::locate(&config).ok());
    if let Some(checkout) = located.and_then(|located| located.checkout) {
        append(&checkout.state_dir().join("hooks.log"), text);
    }
}

/// Adds a line to a log, which begins again when it is too long.
fn append(path: &Path, text: &str) {
    if fs::metadata(path).is_ok_and(|meta| meta.len() > LONGEST_LOG) {
        // The newest is worth more than the oldest.
        let _ = fs::remove_file(path);
    }
    if let Ok(mut file) = fs::File::options().append(true).create(true).open(path) {
        let _ = writeln!(file, "{text}");
    }
}
