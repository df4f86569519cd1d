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
    time::{Duration, Instant},
};

use serde::{Deserialize, de::IgnoredAny};
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
const STDIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum size of an event; a longer one is ignored.
const MAX_INPUT_BYTES: u64 = 16 << 20;
/// A hook answers within this time, or not at all.
const HOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// The log of failures, below the state directory of a checkout; `toft doctor` reads it.
pub(super) const HOOK_LOG: &str = "hooks.log";
/// Maximum size of the log of failures.
pub(super) const MAX_LOG_BYTES: u64 = 64 << 10;

/// Whatever happens, the harness goes on as if nothing had.
pub(super) fn hook(app: &App<'_>, args: &Hook) -> Done {
    if args.event == "pre-push" {
        // Names of refs are bytes; only the commits beside them matter.
        let pushed = read_pushed_refs()?;
        let remote = args.rest.first().map_or("origin", String::as_str);
        return share::before_push(app, remote, &String::from_utf8_lossy(&pushed));
    }
    let harness = Harness::named(&args.harness);
    let dialect = harness.map_or(Dialect::Claude, |harness| harness.dialect);
    let (event, name) = (args.event.clone(), args.harness.clone());
    let answered = app.config().and_then(|config| within(HOOK_TIMEOUT, move || answer(config, &event, &name)));
    let reply = answered.unwrap_or_else(|failure| {
        note(app, &format!("{} {}: {}", args.event, args.harness, failure.message));
        Reply::default()
    });
    let said = spoken(dialect, &args.event, reply);
    if !said.is_empty() {
        app.output.lines(&[said]);
    }
    Ok(ExitCode::SUCCESS)
}

/// What git tells its pre-push hook. A push that cannot be read whole is held.
fn read_pushed_refs() -> Result<Vec<u8>, Failure> {
    let mut pushed = Vec::new();
    let read = std::io::stdin().lock().take(MAX_INPUT_BYTES + 1).read_to_end(&mut pushed);
    read.map_err(|error| Failure::held(format!("cannot read which refs are pushed: {error}"), "push again"))?;
    match pushed.len() as u64 > MAX_INPUT_BYTES {
        true => Err(Failure::held("too many refs in one push", "push fewer refs at once")),
        false => Ok(pushed),
    }
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
        false => event_from(std::io::stdin(), MAX_INPUT_BYTES, STDIN_TIMEOUT),
    };
    let (heard, dir) = understood(&bytes, harness, Heard::here());
    // Through a socket there is one workspace, whatever the event says.
    config.dir = config.dir.take().or(dir.filter(|_| !super::confined::is()));
    let named = config.agent.is_some() || std::env::var("TOFT_AGENT").is_ok_and(|name| !name.is_empty());
    let located = match toft::locate(&config) {
        Ok(located) if !located.store.missing() => match named {
            true => located,
            false => {
                let name = session_name(located.owner().as_deref(), &heard.session);
                located.named(name)
            }
        },
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

/// The first `longest` bytes of what a harness says. A harness may leave its end open: a whole event is enough, and after
/// `patience` what has come.
fn event_from(mut input: impl Read + Send + 'static, longest: u64, patience: Duration) -> Vec<u8> {
    let (told, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let mut part = vec![0; 64 << 10];
        // What cannot be read was not said.
        while let Ok(length @ 1..) = input.read(&mut part) {
            if told.send(part[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    let (until, mut bytes) = (Instant::now() + patience, Vec::new());
    while let Ok(part) = hear.recv_timeout(until.saturating_duration_since(Instant::now())) {
        bytes.extend(part);
        let whole = bytes.trim_ascii_end().ends_with(b"}") && serde_json::from_slice::<IgnoredAny>(&bytes).is_ok();
        if whole || bytes.len() as u64 >= longest {
            break;
        }
    }
    bytes.truncate(usize::try_from(longest).unwrap_or(usize::MAX));
    bytes
}

/// The fields of an event that matter, of any type. All others are skipped without being decoded: the output of a tool
/// may be nested deeply, be no UTF-8, or end in half a surrogate pair, and the event counts all the same.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HarnessEvent {
    session_id: Value,
    #[serde(rename = "sessionId")]
    camel_session_id: Value,
    conversation_id: Value,
    source: Value,
    reason: Value,
    stop_hook_active: Value,
    cwd: Value,
}

/// What an event says, whichever names its harness uses, added to what is known `here`; and its directory.
fn understood(event: &[u8], harness: &str, here: Heard) -> (Heard, Option<PathBuf>) {
    let event: HarnessEvent = serde_json::from_slice(event).unwrap_or_default();
    let text = |names: &[&Value]| names.iter().find_map(|name| name.as_str()).unwrap_or_default().to_owned();
    let session = text(&[&event.session_id, &event.camel_session_id, &event.conversation_id]);
    let heard = Heard {
        // A session that does not say its id is identified by its process.
        session: match session.is_empty() {
            true => format!("process {}", here.process.unwrap_or_default()),
            false => session,
        },
        source: text(&[&event.source, &event.reason]),
        again: event.stop_hook_active.as_bool().unwrap_or(false),
        harness: harness.to_owned(),
        ..here
    };
    let dir = Some(text(&[&event.cwd])).filter(|dir| !dir.is_empty()).map(PathBuf::from).filter(|dir| dir.is_dir());
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
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        append(&checkout.state_dir().join(HOOK_LOG), &format!("{now} {text}"));
    }
}

/// Adds a line to a log, which begins again when it is too long.
fn append(path: &Path, text: &str) {
    let meta = fs::symlink_metadata(path);
    if meta.as_ref().is_ok_and(|meta| !meta.is_file()) {
        // A pipe would keep the harness waiting, and a link may lead anywhere.
        return;
    }
    if meta.is_ok_and(|meta| meta.len() > MAX_LOG_BYTES) {
        // The newest is worth more than the oldest.
        let _ = fs::remove_file(path);
    }
    if let Ok(mut file) = fs::File::options().append(true).create(true).open(path) {
        // A log that cannot be written stays as it is.
        let _ = writeln!(file, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use toft::hooks::HookEvent::{Compact, End, Prompt, Start, Stop, Tools};

    use super::*;
    use crate::setup::HARNESSES;

    const DIALECTS: [Dialect; 5] =
        [Dialect::Claude, Dialect::Gemini, Dialect::Cursor, Dialect::Copilot, Dialect::Plain];

    fn context() -> Reply {
        Reply { context: Some("know \"this\"\n".into()), hold_on: None }
    }

    fn hold_on() -> Reply {
        Reply { context: None, hold_on: Some("not yet".into()) }
    }

    /// An event of a harness whose process is 7.
    fn heard(event: &[u8]) -> (Heard, Option<PathBuf>) {
        understood(event, "claude", Heard { process: Some(7), ..Heard::default() })
    }

    #[test]
    fn each_harness_is_answered_in_its_own_form() {
        let nested = |event: &str| json!({ "hookSpecificOutput": { "hookEventName": event, "additionalContext": "know \"this\"\n" } });
        let cases = [
            ("claude", "PostToolUse", nested("PostToolUse"), json!({ "decision": "block", "reason": "not yet" })),
            (
                "codex",
                "UserPromptSubmit",
                nested("UserPromptSubmit"),
                json!({ "decision": "block", "reason": "not yet" }),
            ),
            ("gemini", "BeforeAgent", nested("BeforeAgent"), json!({ "decision": "deny", "reason": "not yet" })),
            ("antigravity", "SessionStart", nested("SessionStart"), json!({ "decision": "deny", "reason": "not yet" })),
            (
                "cursor",
                "sessionStart",
                json!({ "additional_context": "know \"this\"\n" }),
                json!({ "followup_message": "not yet" }),
            ),
            (
                "copilot",
                "sessionStart",
                json!({ "additionalContext": "know \"this\"\n" }),
                json!({ "decision": "block", "reason": "not yet" }),
            ),
        ];
        for (name, event, told, held) in cases {
            let dialect = Harness::named(name).unwrap().dialect;
            let json = |reply: Reply| serde_json::from_str::<Value>(&spoken(dialect, event, reply)).unwrap();
            assert_eq!((json(context()), json(hold_on())), (told, held), "{name}");
        }
        let plain = Harness::named("opencode").unwrap().dialect;
        assert_eq!(spoken(plain, "tools", context()), "know \"this\"\n");
        assert_eq!(spoken(plain, "session.idle", hold_on()), "not yet");
    }

    #[test]
    fn with_nothing_to_say_a_hook_is_silent_except_where_json_is_demanded() {
        for dialect in DIALECTS {
            let wanted = if dialect == Dialect::Gemini { "{}" } else { "" };
            assert_eq!(spoken(dialect, "Stop", Reply::default()), wanted, "{dialect:?}");
        }
    }

    #[test]
    fn every_event_that_setup_writes_is_understood() {
        let all = [Start, Prompt, Tools, Compact, Stop, End];
        for harness in &HARNESSES {
            let moments: Vec<_> = harness.events().iter().map(|event| HookEvent::from_word(event).unwrap()).collect();
            let wanted: Vec<_> = match harness.name {
                "codex" => vec![Start, Prompt, Tools, Stop],
                "cursor" => vec![Start, Tools, Compact, Stop, End],
                _ => all.to_vec(),
            };
            assert_eq!(moments, wanted, "{}", harness.name);
        }
    }

    #[test]
    fn an_event_is_understood_whichever_names_its_harness_uses() {
        let here = std::env::temp_dir();
        let event = json!({ "session_id": "s1", "source": "resume", "stop_hook_active": true, "cwd": here });
        let (said, dir) = heard(event.to_string().as_bytes());
        assert_eq!((said.session.as_str(), said.source.as_str(), said.again), ("s1", "resume", true));
        assert_eq!((said.harness.as_str(), said.process, dir), ("claude", Some(7), Some(here)));
        assert!(!said.known);
        for (event, session, source) in [
            (json!({ "sessionId": "s2", "reason": "exit" }), "s2", "exit"),
            (json!({ "conversation_id": "s3", "stop_hook_active": false }), "s3", ""),
            (json!({ "conversation_id": "other", "sessionId": "other", "session_id": "s4" }), "s4", ""),
            (json!({ "session_id": "s5", "reason": "other", "source": "clear" }), "s5", "clear"),
            (json!({ "session_id": "naïve 🪁", "cwd": "" }), "naïve 🪁", ""),
        ] {
            let (said, dir) = heard(event.to_string().as_bytes());
            assert_eq!((said.session.as_str(), said.source.as_str()), (session, source), "{event}");
            assert_eq!((said.again, dir), (false, None), "{event}");
        }
    }

    #[test]
    fn what_the_environment_says_is_not_lost() {
        let here = Heard { task: Some("tk_1".into()), in_attempt: true, at: 5, process: None, ..Heard::default() };
        let (said, _) = understood(b"{\"task\":\"tk_2\",\"at\":9}", "codex", here);
        assert_eq!((said.task.as_deref(), said.in_attempt, said.at), (Some("tk_1"), true, 5));
        assert_eq!((said.session.as_str(), said.harness.as_str()), ("process 0", "codex"));
    }

    #[test]
    fn a_malformed_event_is_one_of_a_session_known_by_its_process() {
        let malformed: [&[u8]; 10] = [
            b"",
            b"\xff\xfe",
            b"{",
            b"null",
            b"7",
            b"\"session_id\"",
            b"[{\"session_id\":\"x\"}]",
            b"{\"session_id\":\"x\",",
            b"{\"session_id\":7,\"source\":[],\"stop_hook_active\":\"yes\",\"cwd\":{}}",
            b"{\"session_id\":\"\",\"cwd\":\"/no/such/directory\"}",
        ];
        for bytes in malformed {
            let (said, dir) = heard(bytes);
            let text = String::from_utf8_lossy(bytes);
            assert_eq!((said.session.as_str(), said.source.as_str()), ("process 7", ""), "{text}");
            assert_eq!((said.again, dir), (false, None), "{text}");
        }
    }

    /// Tools have output that is no text, and harnesses cut it in the middle of a character.
    #[test]
    fn an_event_is_understood_whatever_its_tool_had_to_say() {
        let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        let responses: [&[u8]; 5] = [b"\"cut \\ud83d\"", b"\"\\udc00\"", b"\"\xff\xfe\"", deep.as_bytes(), b"1e999"];
        for response in responses {
            let parts: [&[u8]; 3] = [b"{\"tool_response\":", response, b",\"session_id\":\"s1\"}"];
            let event = parts.concat();
            assert_eq!(heard(&event).0.session, "s1", "{}", String::from_utf8_lossy(&event));
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_none() {
        let event = r#"{"session_id":"s1","tool_response":"as long as you like"}"#;
        let length = event.len() as u64;
        let read = |longest| event_from(std::io::Cursor::new(event), longest, Duration::from_secs(60));
        assert_eq!(heard(&read(length)).0.session, "s1");
        assert_eq!(heard(&read(length - 1)).0.session, "process 7");
        assert_eq!(event_from(std::io::repeat(b' '), length, Duration::from_secs(60)), b" ".repeat(event.len()));
    }

    #[test]
    fn a_harness_that_does_not_close_its_end_is_not_waited_for() {
        let (reader, writer) = std::io::pipe().unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(5));
            drop(writer);
        });
        let begun = Instant::now();
        assert_eq!(event_from(reader, MAX_INPUT_BYTES, Duration::from_millis(10)), b"");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        for (said, patience) in [("{\"session_id\":\"s1\"}", 60_000), ("{\"session_id\":\"s1", 10)] {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(said.as_bytes()).unwrap();
            assert_eq!(event_from(reader, MAX_INPUT_BYTES, Duration::from_millis(patience)), said.as_bytes());
        }
    }

    #[test]
    fn an_answer_that_comes_too_late_is_none() {
        let (release, wait) = mpsc::channel::<()>();
        let late = within(Duration::from_millis(10), move || {
            let _ = wait.recv();
            Ok(context())
        });
        assert_eq!(late.map_err(|failure| failure.message), Err("it took too long".to_owned()));
        drop(release);
        let soon = |answer: fn() -> Result<Reply, Failure>| within(Duration::from_secs(60), answer);
        assert_eq!(soon(|| Ok(hold_on())).ok(), Some(hold_on()));
        let failed = soon(|| Err(Failure::stopped("the store is broken", "")));
        assert_eq!(failed.map_err(|failure| failure.message), Err("the store is broken".to_owned()));
    }

    #[test]
    fn the_shell_of_a_session_is_told_its_name_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("env.sh");
        fs::write(&file, "export MINE=1\n").unwrap();
        for _ in 0..2 {
            assert!(tell_shell(&file, "blue-heron", Some(7)));
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text, "export MINE=1\nexport TOFT_AGENT=blue-heron\nexport TOFT_PID=7\n");
        }
        let new = dir.path().join("new.sh");
        assert!(tell_shell(&new, "blue-heron", None));
        assert_eq!(fs::read_to_string(&new).unwrap(), "export TOFT_AGENT=blue-heron\n");
        assert!(!tell_shell(dir.path(), "blue-heron", None), "a directory takes no lines");
    }

    #[test]
    fn the_log_of_failures_stays_short() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("hooks.log");
        append(&log, "first");
        append(&log, "second");
        assert_eq!(fs::read_to_string(&log).unwrap(), "first\nsecond\n");
        fs::write(&log, vec![b'x'; MAX_LOG_BYTES as usize]).unwrap();
        append(&log, "over");
        assert_eq!(fs::metadata(&log).unwrap().len(), MAX_LOG_BYTES + 5);
        append(&log, "newest");
        assert_eq!(fs::read_to_string(&log).unwrap(), "newest\n");
        append(&dir.path().join("no/such/directory"), "lost");
    }
}
