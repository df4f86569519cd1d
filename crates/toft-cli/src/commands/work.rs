//! The daily verbs.

use std::{collections::BTreeMap, path::PathBuf, sync::atomic::AtomicBool};

use serde_json::{Value, json};
use toft::{
    Toft,
    briefing::Here,
    checkpoint::CheckpointKind,
    flow::{Evidence, Verified},
    id::{CheckpointId, TaskId},
    lease::Fence,
    masked_in_attempt,
    message::InboxItem,
    runner::{CheckOrder, CheckProcess},
    time::parse_duration,
    verbs::{
        claim,
        finish::{self, How, WaitFor},
        inbox, log, ready, save, show,
    },
    views::StatusView,
    workspaces::Wanted,
};

use super::{App, Done, RepositorySource, plan, word, ws};
use crate::{
    args::{self, Claim},
    exit::Failure,
    render::{
        Claims, Names, view_agents, view_attempt_log, view_context, view_event, view_finish, view_flow, view_history,
        view_ready, view_reported_finish, view_save, view_state_value, view_status, view_task,
    },
};

pub(super) fn ready(app: &App<'_>, args: &args::Ready) -> Done {
    let mut all = ready::Outcome { ready: Vec::new(), more: false, not_ready: Vec::new() };
    let mut names = Names::default();
    for RepositorySource { toft, scope, name, ledgers, .. } in app.reach(&args.reach)? {
        let request = ready::Request {
            scope,
            labels: args.labels.clone(),
            limit: args.limit,
            explain: args.explain,
            ..ready::Request::default()
        };
        let mut outcome = if ledgers { toft.work().ready(request)? } else { toft.perform(request)? };
        outcome.ready.retain(|item| names.add(item.id(), name.as_ref()));
        app.heard(toft, name.as_ref());
        all.more |= outcome.more;
        all.ready.extend(outcome.ready);
        all.not_ready.extend(outcome.not_ready);
    }
    if args.reach.all_repos {
        all.ready.sort_by_cached_key(ready::Item::rank);
        all.more |= all.ready.len() > args.limit;
        all.ready.truncate(args.limit);
    }
    all.ready = all.ready.into_iter().map(ready::Item::without_rank).collect();
    let mut issues = Vec::new();
    if args.explain
        && !args.reach.all_repos
        && args.reach.worktree.is_none()
        && let Some(plan) = app.open()?.plan()?
    {
        issues = plan.not_ready(args.limit)?;
    }
    app.show(&view_ready(&all, &issues, &names))
}

/// A session that holds more than these is not told so at every claim.
const FEW_HOLDS: usize = 8;

pub(super) fn claim(app: &App<'_>, args: &Claim) -> Done {
    if !args.ws && (args.from.base.is_some() || args.from.clone || args.from.plain) {
        return Err(Failure::invalid("--base, --clone and --plain are for a workspace", "add --ws"));
    }
    if let Some(id) = args.id.as_deref().filter(|id| args.wait.is_some() && parse_duration(id).is_ok()) {
        return Err(Failure::invalid(format!("{id} is not an id"), &format!("--wait={id} waits this long")));
    }
    let toft = app.open()?;
    let holder = match args.pid {
        Some(pid) => Some(toft.machine().holder(pid).ok_or_else(|| {
            Failure::invalid(format!("--pid: no process {pid} runs here"), "name the process that does the work")
        })?),
        None => None,
    };
    let scope = super::scope_of(toft, args.worktree.as_deref());
    let request = claim::Request {
        id: args.id.clone(),
        offers: Vec::new(),
        count: args.count.unwrap_or(1),
        without: Vec::new(),
        labels: args.labels.clone(),
        scope,
        ttl: args.ttl,
        cap: args.cap,
        holder,
        take_over: args.take_over,
    };
    let (me, plan) = (&toft.located().agent, toft.plan()?);
    let outcome = match args.wait {
        Some(patience) => toft.work().claim_waiting(me, app.op().as_ref(), &request, patience)?,
        None => toft.work().claim(plan.as_ref(), me, app.op(), request)?,
    };
    let claim::Outcome { claims } = outcome;
    // At once: a workspace takes its time, and a command that is killed meanwhile leaves the session its hold.
    let held = toft.keep_holds(me, &claims);
    let (mut workspaces, mut kept, mut given_back) = (BTreeMap::new(), Vec::new(), Vec::new());
    for claimed in claims {
        if !args.ws {
            kept.push(claimed);
            continue;
        }
        let wanted = Wanted { rests: args.id.is_none(), ..ws::wanted(&args.from) };
        let given = toft.work().workspace_for(me, &claimed, wanted, |step| app.output.progress(step));
        app.output.progress("");
        match given {
            Ok(given) => {
                workspaces.insert(claimed.task.id.clone(), given);
                kept.push(claimed);
            }
            Err(error) => given_back.push((claimed.task.id, error)),
        }
    }
    if kept.is_empty()
        && let Some((_, error)) = given_back.pop()
    {
        return Err(error.into());
    }
    for (task, error) in given_back {
        toft.note(format!("{task} was released: {error}"));
    }
    // Who holds many knows.
    if args.count.is_none() && (2..=FEW_HOLDS).contains(&held) {
        // The claim is committed: if the holds cannot be read, there is no note.
        let held = toft.live_holds(me).map_or(0, |holds| holds.len());
        if held > 1 {
            toft.note(format!("you hold {held} tasks now: name one when you save or finish"));
        }
    }
    let _span = toft.engine().read_span();
    // The claim stands, whatever the plan can say of its issue now.
    let found = |id: &String| plan.as_ref()?.find_as_read(id).ok().map(|found| (id.clone(), found));
    let issues = kept.iter().filter_map(|claimed| found(claimed.issue.as_ref()?)).collect();
    let outcome = claim::Outcome { claims: kept };
    app.show(&Claims { outcome, issues, workspaces, many: args.count.is_some() }.view())
}

/// Which task is meant, and under which hold of this session; a fence that was typed goes before.
pub(super) fn held(
    toft: &Toft,
    typed: Option<&String>,
    hold: &args::Hold,
) -> Result<(Option<String>, Option<Fence>), Failure> {
    let id = typed.map(|text| toft.work().whole_id(text)).transpose()?;
    if let Some(fence) = &hold.fence {
        return Ok((id, Some(fence.clone())));
    }
    Ok(toft.hold_of(&toft.located().agent, id.as_deref())?)
}

pub(super) fn save(app: &App<'_>, args: &args::Save) -> Done {
    let toft = app.open()?;
    let kind: CheckpointKind = word("kind", &args.kind)?;
    let detail = match &args.detail {
        Some(text) => {
            let value = serde_json::from_str(text).map_err(|error| {
                Failure::invalid(format!("--detail is not JSON: {error}"), "quote it, as in --detail '{\"step\":2}'")
            })?;
            Some(toft.detail(value)?)
        }
        None => None,
    };
    let state = args.key.clone().zip(args.value.as_deref().map(value));
    let commit = match (&args.commit, &args.message) {
        (None, Some(_)) => toft.work().commit_here()?,
        (given, _) => given.clone(),
    };
    // Words where an id was meant are what is to be said.
    let words = args.id.clone().filter(|text| args.message.is_none() && text.contains(' '));
    let typed = args.id.as_ref().filter(|_| words.is_none());
    let (id, fence) = held(toft, typed, &args.hold)?;
    let message = args.message.clone().or(words).map(|text| masked_in_attempt(&text));
    let request = save::Request {
        id,
        fence,
        message,
        kind,
        detail,
        files: args.files.clone(),
        commit,
        parent: args.parent.as_deref().map(CheckpointId::known),
        state,
        ttl: args.ttl,
    };
    let saved = app.perform(toft, request)?;
    let letters = said_meanwhile(toft, &saved.task);
    app.show(&view_save(&saved, &letters))
}

/// What was said to an agent: without hooks it hears it here. The checkpoint is saved whatever comes of this.
fn said_meanwhile(toft: &Toft, task: &TaskId) -> Vec<InboxItem> {
    let task = Some(task.clone());
    let peek = inbox::Peek { human: false, task: task.clone(), limit: LETTERS };
    match toft.perform(peek) {
        Ok(found) if !found.letters.is_empty() => {
            let take = inbox::Request { limit: LETTERS, task, ..inbox::Request::default() };
            toft.perform(take).map(|taken| taken.letters).unwrap_or_default()
        }
        // What cannot be read now is read the next time.
        _ => Vec::new(),
    }
}

/// Messages that a checkpoint brings along.
const LETTERS: usize = 10;

/// JSON, or else the text itself.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

pub(super) fn finish(app: &App<'_>, args: &args::Finish) -> Done {
    let (id, outcome) = match args.words.as_slice() {
        [] => (None, "done"),
        [word] if is_outcome(word) => (None, word.as_str()),
        [id] => (Some(id.clone()), "done"),
        [id, word] if is_outcome(word) => (Some(id.clone()), word.as_str()),
        [word, id] if is_outcome(word) => (Some(id.clone()), word.as_str()),
        [_, other, ..] => {
            return Err(Failure::invalid(
                format!("`{other}` is not an outcome"),
                "use done, failed, release, handoff or waiting",
            ));
        }
    };
    if let Some(flag) = misplaced(outcome, args) {
        return Err(Failure::invalid(format!("{flag} does not go with {outcome}"), "leave one of the two out"));
    }
    let how = match outcome {
        "failed" => How::Failed,
        "release" => How::Release,
        "handoff" => How::Handoff,
        "waiting" => How::Waiting(wait_for(args)),
        _ => How::Done(evidence(args)),
    };
    let toft = app.open()?;
    let (id, fence) = held(toft, id.as_ref(), &args.hold).map_err(|failure| match id {
        // An issue that no task was made for yet.
        Some(id) if failure.code == "not_found" && id.starts_with(toft::issue::PREFIX) => Failure::invalid(
            format!("{id} is not claimed, so there is no task to finish"),
            &format!("toft close {id} -m \"…\" closes the issue; toft claim {id} claims it"),
        ),
        _ => failure,
    })?;
    let (message, cost) = (masked_in_attempt(&args.message), args.cost);
    let choices = args.choices.iter().map(|choice| masked_in_attempt(choice)).collect();
    let mut verified = Vec::new();
    let mut how = how;
    if let (How::Done(Evidence::Commit(text)), false) = (&mut how, toft.located().verify.commands.is_empty()) {
        if let Some(report) = report_of_attempt() {
            let word = json!({ "outcome": "done", "message": message, "evidence": text, "cost": cost });
            toft::runner::write_report(&report, &word.to_string()).map_err(|error| {
                Failure::stopped(format!("the report {} could not be written: {error}", report.display()), "")
            })?;
            return app.show(&view_reported_finish());
        }
        (*text, verified) = verify_here(app, toft, text)?;
    }
    let request = finish::Request { id, fence, how, message, choices, cost, report: None, offer: None, verified };
    let (outcome, workspace) = toft.work().finish_and_tidy(&toft.located().agent, app.op(), request)?;
    app.show(&view_finish(&outcome, workspace.as_ref()))
}

/// The file in which an agent of a runner reports its outcome, for the runner to verify it.
fn report_of_attempt() -> Option<PathBuf> {
    let attempt = std::env::var_os("TOFT_ATTEMPT").filter(|attempt| !attempt.is_empty());
    attempt.and(std::env::var_os("TOFT_REPORT")).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Runs the commands that verify work in this checkout; returns the commit and what ran.
fn verify_here(app: &App<'_>, toft: &Toft, text: &str) -> Result<(String, Vec<Verified>), Failure> {
    let located = toft.located();
    located.require_trusted_verification()?;
    let Some(checkout) = &located.checkout else { return Ok((text.to_owned(), Vec::new())) };
    let backend = toft::vcs::workspace::WorkspaceBackend::of(checkout);
    let missing = || Failure::invalid(format!("`{text}` is no commit here"), "commit first, then --evidence HEAD");
    let commit = backend.commit_at(&checkout.root, text).map_err(toft::Error::from)?.ok_or_else(missing)?;
    let log = tempfile::NamedTempFile::new()
        .map_err(|error| Failure::stopped(format!("no log can be written: {error}"), ""))?;
    let mut verified = Vec::new();
    for command in &located.verify.commands {
        app.output.progress(&format!("verifying: {command}"));
        let order = CheckOrder {
            dir: checkout.root.clone(),
            commands: vec![command.clone()],
            around: Vec::new(),
            timeout_ms: u64::try_from(located.land.timeout.as_millis()).unwrap_or(u64::MAX),
            log: log.path().to_owned(),
        };
        let end = CheckProcess::start(&order)?.wait(&AtomicBool::new(false))?;
        if !end.passed {
            app.output.progress("");
            return Err(Failure::unverified(&end.message));
        }
        verified.push(Verified { command: command.clone(), exit: 0, commit: commit.clone() });
    }
    app.output.progress("");
    Ok((commit, verified))
}

fn is_outcome(word: &str) -> bool {
    matches!(word, "done" | "failed" | "release" | "handoff" | "waiting")
}

/// A flag that belongs to another outcome.
fn misplaced(outcome: &str, args: &args::Finish) -> Option<&'static str> {
    let flags = [
        ("--evidence", "done", args.evidence.is_some()),
        ("--artifact", "done", args.artifact.is_some()),
        ("--no-change", "done", args.no_change.is_some()),
        ("--choice", "waiting", !args.choices.is_empty()),
        ("--for", "waiting", args.for_time.is_some()),
        ("--on", "waiting", args.on.is_some()),
        ("--command", "waiting", args.command.is_some()),
    ];
    flags.into_iter().find(|(_, goes_with, given)| *given && *goes_with != outcome).map(|(flag, ..)| flag)
}

fn wait_for(args: &args::Finish) -> WaitFor {
    match (args.for_time, &args.on, &args.command) {
        (Some(span), ..) => WaitFor::Timer(span),
        (_, Some(task), _) => WaitFor::Task(task.clone()),
        (_, _, Some(command)) => WaitFor::Command(command.clone()),
        _ => WaitFor::Human,
    }
}

fn evidence(args: &args::Finish) -> Evidence {
    match (&args.evidence, &args.artifact, &args.no_change) {
        (_, Some(name), _) => Evidence::Artifact(name.clone()),
        (_, _, Some(reason)) => Evidence::NoChange(reason.clone()),
        (commit, ..) => Evidence::Commit(commit.clone().unwrap_or_default()),
    }
}

pub(super) fn show(app: &App<'_>, args: &args::Show) -> Done {
    if args.diff {
        return ws::diff(app, args);
    }
    let toft = app.open()?;
    if args.context {
        let id = toft.work().whole_id(&args.id)?;
        let here = toft.work().workspace_here()?.map(|found| found.workspace);
        let here = here.as_ref().map(|workspace| Here { workspace, notes: &[] });
        return app.show(&view_context(&toft.briefing().context(&toft.located().agent, &id, here, args.budget)?));
    }
    if let Some(attempt) = args.log {
        let id = toft.work().whole_id(&args.id)?;
        let log = toft.attempts().attempt_log(&toft.located().agent, &id, attempt)?;
        return app.show(&view_attempt_log(&log, args.raw));
    }
    if args.id != "@"
        && args.state.is_none()
        && let Some(plan) = toft.plan()?
    {
        if let Some(when) = &args.at {
            let past = plan.at(when)?;
            let found = past.find(&args.id)?;
            return plan::show(app, toft, &past, found, args);
        }
        if let Some(found) = plan.named(&args.id)? {
            return plan::show(app, toft, &plan, found, args);
        }
    }
    let request = show::Request { id: args.id.clone(), why: args.why, state: args.state.clone(), limit: args.limit };
    match app.perform(toft, request)? {
        show::Outcome::Task(mut shown) => {
            for checkpoint in &mut shown.checkpoints {
                if let Some(detail) = &checkpoint.detail {
                    checkpoint.detail = Some(toft::checkpoint::Detail::Inline(toft.load_detail(detail)?));
                }
            }
            app.show(&view_task(&shown))
        }
        show::Outcome::Workflow(shown) => app.show(&view_flow(&shown)),
        show::Outcome::Agent(shown) => app.show(&view_agents(&[*shown])),
        show::Outcome::State { task, key, value } => {
            let outcome = serde_json::json!({ "task": task, "key": key, "value": value });
            app.show(&view_state_value(&outcome, &value))
        }
    }
}

pub(super) fn status(app: &App<'_>, args: &args::Status) -> Done {
    let sources = app.reach(&args.reach)?;
    let view = StatusView::of(&sources, args.limit)?;
    sources.iter().for_each(|source| app.heard(source.toft, source.name.as_ref()));
    app.show(&view_status(&view))
}

pub(super) fn log(app: &App<'_>, args: &args::Log) -> Done {
    let (mut events, mut past) = (Vec::new(), Vec::new());
    for RepositorySource { toft, scope, .. } in app.reach(&args.reach)? {
        let plan = toft.plan()?;
        let issue = match (&args.id, &plan) {
            (Some(id), Some(plan)) => plan.named(id)?.map(|found| found.issue.id),
            _ => None,
        };
        if let (Some(id), Some(plan)) = (&issue, &plan) {
            past.extend(plan.past(id, args.limit)?);
        }
        let id = args.id.clone().filter(|_| issue.is_none());
        let request = log::Request { id, issue, scope: scope.clone(), after: args.after, limit: args.limit };
        let found = app.perform(toft, request)?;
        if !args.follow {
            events.extend(found);
            continue;
        }
        let cursor = found.last().map_or(args.after.unwrap_or(0), |event| event.seq);
        for event in found {
            app.show(&view_event(&event))?;
        }
        let mut stream = toft.events(cursor).scope(scope);
        if let Some(patience) = args.timeout {
            stream = stream.patience(patience);
        }
        for event in stream {
            app.show(&view_event(&event?))?;
        }
    }
    if args.follow { Ok(std::process::ExitCode::SUCCESS) } else { app.show(&view_history(&events, &past)) }
}
