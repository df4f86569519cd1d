//! Sessions against a store on this disk: what a harness said, the environment and the time are made up.

use std::{path::Path, thread};

use toft_core::{
    agent::{Agent, AgentState, Role},
    change::Write,
    flow::WorkflowPlan,
    id::{MessageId, TaskId},
    lease::Lease,
    store::{self, Access, LeasesOf},
    verbs::{claim, send, stop},
};
use toft_session::{
    config::{Config, StoreLocation},
    session::Session,
};

use super::*;

/// When the first call is made.
const NOON: u64 = 1_800_000_000_000;
const SECOND: u64 = 1_000;

/// A checkout that no git ever sees, with the repository's own store, as one session of a harness finds it.
struct HookedRepository {
    dir: tempfile::TempDir,
    session: Session,
    /// The agent name of the session.
    me: String,
    heard: Heard,
}

impl HookedRepository {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["objects", "refs", "toft"] {
            fs::create_dir_all(dir.path().join(".git").join(name)).unwrap();
        }
        fs::write(dir.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let store = Some(StoreLocation::new_path(dir.path().join(".git/toft/toft.db")));
        let me = session_name(None, "s-1");
        let config = Config { store, dir: Some(dir.path().into()), agent: Some(me.clone()), ..Config::default() };
        let heard = Heard { session: "s-1".into(), harness: "claude".into(), at: NOON, ..Heard::default() };
        Self { session: Session::with(config).unwrap(), dir, me, heard }
    }

    fn hooks(&self) -> Hooks<'_> {
        Hooks::of(Work::of(&self.session))
    }

    /// An event of the session.
    fn hear(&self, moment: HookEvent) -> Reply {
        self.hear_as(moment, &self.heard)
    }

    fn hear_as(&self, moment: HookEvent, heard: &Heard) -> Reply {
        self.hooks().hook(&self.me, moment, heard).unwrap()
    }

    /// The same event, some time after the first call.
    fn later(&self, moment: HookEvent, ms: u64) -> Reply {
        self.hear_as(moment, &Heard { at: NOON + ms, ..self.heard.clone() })
    }

    fn add(&self, title: &str) -> TaskId {
        let plan = WorkflowPlan::single(title);
        let source = toft_core::flow::Source::Prompt { text: title.into() };
        let new = toft_core::verbs::flow::New { plan, source, hold: false };
        self.session.perform_as("planner", None, new).unwrap().tasks.remove(0).id
    }

    /// Claims a task as `actor`; only this session's own claims are kept for it.
    fn claim_as(&self, actor: &str, task: &TaskId, kept: bool) {
        let request = claim::Request { id: Some(task.to_string()), ..claim::Request::default() };
        let claims = Work::of(&self.session).claim(None, actor, None, request).unwrap().claims;
        if kept {
            self.session.keep_holds(actor, &claims);
        }
    }

    /// A task that this session holds.
    fn held(&self, title: &str) -> TaskId {
        let task = self.add(title);
        self.claim_as(&self.me, &task, true);
        task
    }

    fn send(&self, text: &str, needs_ack: bool) -> MessageId {
        let request = send::Request { to: self.me.clone(), body: text.into(), needs_ack, ..send::Request::default() };
        self.session.perform_as("boss", None, request).unwrap().id
    }

    fn agent(&self, name: &str) -> Option<Agent> {
        store::ask(self.session.store().unwrap(), |tx| tx.agent_named(name)).unwrap()
    }

    fn lease(&self, task: &TaskId) -> Option<Lease> {
        let all = store::ask(self.session.store().unwrap(), |tx| tx.leases(&LeasesOf::Repository(None))).unwrap();
        all.into_iter().find(|lease| lease.task == *task)
    }

    /// What a person stops or pauses comes from a coordinator here.
    fn lead(&self) -> &'static str {
        let lead =
            agent::Register { name: Some("lead".into()), role: Some(Role::Coordinator), ..agent::Register::default() };
        self.session.perform_as("lead", None, lead).unwrap();
        "lead"
    }

    fn tell(&self, state: AgentState) {
        let tell = agent::Tell { agent: Some(self.me.clone()), state, note: None, drained: false };
        self.session.perform_as(self.lead(), None, tell).unwrap();
    }

    /// The summaries of a task's checkpoints, newest first.
    fn checkpoints(&self, task: &TaskId) -> Vec<String> {
        let found = store::ask(self.session.store().unwrap(), |tx| tx.checkpoints(task, 100)).unwrap();
        assert!(found.iter().all(|checkpoint| checkpoint.kind == CheckpointKind::Progress), "{found:?}");
        found.into_iter().map(|checkpoint| checkpoint.summary).collect()
    }

    fn sessions(&self) -> PathBuf {
        self.dir.path().join(".git/toft/sessions")
    }
}

fn said(reply: &Reply) -> &str {
    assert_eq!(reply.hold_on, None);
    reply.context.as_deref().unwrap_or_default()
}

fn held_back(reply: &Reply) -> &str {
    assert_eq!(reply.context, None);
    reply.hold_on.as_deref().unwrap_or_default()
}

const SILENCE: Reply = Reply { context: None, hold_on: None };

const EVERY: [HookEvent; 6] =
    [HookEvent::Start, HookEvent::Prompt, HookEvent::Tools, HookEvent::Compact, HookEvent::Stop, HookEvent::End];

#[test]
fn a_session_has_one_readable_name() {
    assert_eq!(session_name(None, "abc"), session_name(None, "abc"));
    assert_ne!(session_name(None, "abc"), session_name(None, "abd"));
    toft_core::agent::check_name(&session_name(None, "abc")).unwrap();
}

#[test]
fn every_harness_names_its_moments_in_its_own_way() {
    let names = [
        (HookEvent::Start, "SessionStart sessionStart session.created"),
        (HookEvent::Prompt, "UserPromptSubmit userPromptSubmitted beforeSubmitPrompt BeforeAgent prompt"),
        (HookEvent::Tools, "PostToolBatch PostToolUse postToolUse AfterTool tools"),
        (HookEvent::Compact, "PreCompact preCompact PreCompress compact"),
        (HookEvent::Stop, "Stop stop agentStop AfterAgent session.idle session-idle"),
        (HookEvent::End, "SessionEnd sessionEnd session.deleted end"),
    ];
    for (moment, words) in names {
        for word in words.split(' ') {
            assert_eq!(HookEvent::from_word(word), Some(moment), "{word}");
        }
    }
    for word in ["PreToolUse", "SubagentStop", "Notification", "Starts", "", "…"] {
        assert_eq!(HookEvent::from_word(word), None, "{word}");
    }
}

#[test]
fn a_session_that_starts_is_registered_and_told_what_is_ready() {
    let repo = HookedRepository::new();
    repo.add("Pin the schema");
    let reply = repo.hear(HookEvent::Start);
    let text = said(&reply);
    assert!(text.contains(&format!("you are {}", repo.me)) && text.contains("Pin the schema"), "{text}");
    let agent = repo.agent(&repo.me).unwrap();
    assert_eq!((agent.state, agent.runtime.as_deref()), (AgentState::Active, Some("claude")));
}

#[test]
fn a_session_is_told_to_say_its_name_unless_its_commands_know_it() {
    let repo = HookedRepository::new();
    let hint = format!("Say `--as {me}` with every toft command, or set TOFT_AGENT={me}.", me = repo.me);
    assert!(said(&repo.hear(HookEvent::Start)).contains(&hint));
    let known = repo.hear_as(HookEvent::Start, &Heard { known: true, ..repo.heard.clone() });
    assert!(!said(&known).contains("--as") && said(&known).contains("you are"), "{known:?}");
}

#[test]
fn the_agent_of_a_runner_is_told_about_its_task_only_after_it_forgot() {
    let repo = HookedRepository::new();
    let task = repo.held("Pin the schema");
    repo.add("Something else");
    let heard = Heard { task: Some(task.to_string()), in_attempt: true, ..repo.heard.clone() };
    let from = |source: &str| repo.hear_as(HookEvent::Start, &Heard { source: source.into(), ..heard.clone() });
    assert_eq!(from("startup"), SILENCE, "its runner has just briefed it");
    assert_eq!(repo.agent(&repo.me).unwrap().runtime, None, "what runs it is the runner");
    for source in ["compact", "resume", "clear", ""] {
        let reply = from(source);
        let text = said(&reply);
        assert!(text.contains("Pin the schema") && text.contains("## How to work"), "{source}: {text}");
        assert!(!text.contains("Something else") && !text.contains("you are"), "{source}: {text}");
    }
}

#[test]
fn a_message_is_delivered_once_and_only_to_its_recipient() {
    let repo = HookedRepository::new();
    repo.hear(HookEvent::Start);
    repo.send("use the new index", false);
    let other = Heard { session: "s-2".into(), ..repo.heard.clone() };
    assert_eq!(repo.hooks().hook(&session_name(None, "s-2"), HookEvent::Prompt, &other).unwrap(), SILENCE);
    let reply = repo.hear(HookEvent::Prompt);
    let text = said(&reply);
    assert!(text.starts_with(&format!("Messages for you ({}) from toft:\n\n<data from=", repo.me)), "{text}");
    assert!(text.contains("use the new index") && text.contains("by boss"), "{text}");
    assert_eq!(repo.hear(HookEvent::Prompt), SILENCE);
}

#[test]
fn a_message_that_wants_to_be_confirmed_is_said_once_and_stays_in_the_inbox() {
    let repo = HookedRepository::new();
    repo.hear(HookEvent::Start);
    let id = repo.send("stop using the old index", true);
    let reply = repo.hear(HookEvent::Prompt);
    assert!(said(&reply).contains(&format!("toft agent inbox --ack {id}")), "{reply:?}");
    assert_eq!(repo.hear(HookEvent::Prompt), SILENCE);
    repo.send("and the build is red", false);
    let reply = repo.hear(HookEvent::Prompt);
    assert!(said(&reply).contains("red") && !said(&reply).contains("old index"), "{reply:?}");
    let peek = inbox::Peek { human: false, task: None, limit: 10 };
    assert_eq!(repo.session.perform_as(&repo.me, None, peek).unwrap().letters[0].message.id, id);
}

#[test]
fn many_messages_come_ten_at_a_time_behind_those_that_wait_to_be_confirmed() {
    let repo = HookedRepository::new();
    repo.hear(HookEvent::Start);
    let count = |reply: &Reply| said(reply).matches("<data from=").count();
    (0..LETTERS).for_each(|_| drop(repo.send("confirm this", true)));
    assert_eq!(count(&repo.hear(HookEvent::Prompt)), 10);
    (0..12).for_each(|_| drop(repo.send("and read this", false)));
    assert_eq!([(); 3].map(|()| count(&repo.hear(HookEvent::Prompt))), [10, 2, 0]);
}

#[test]
fn tool_calls_look_for_messages_every_second_and_prompts_always() {
    let repo = HookedRepository::new();
    repo.hear(HookEvent::Start);
    let calls = [
        (HookEvent::Tools, 0, true),
        (HookEvent::Tools, 999, false),
        (HookEvent::Prompt, 999, true),
        (HookEvent::Prompt, 999, true),
        (HookEvent::Tools, 1_998, false),
        (HookEvent::Tools, 1_999, true),
    ];
    for (moment, ms, looks) in calls {
        repo.send("news", false);
        assert_eq!(!said(&repo.later(moment, ms)).is_empty(), looks, "{moment:?} after {ms} ms");
    }
}

#[test]
fn prompts_and_tool_calls_renew_the_lease_every_half_minute() {
    let repo = HookedRepository::new();
    let task = repo.held("Pin the schema");
    let calls = [
        (HookEvent::Tools, 0, true),
        (HookEvent::Tools, 5 * SECOND, false),
        (HookEvent::Prompt, 30 * SECOND - 1, false),
        (HookEvent::Prompt, 30 * SECOND, true),
        (HookEvent::Tools, 60 * SECOND - 1, false),
        (HookEvent::Tools, 65 * SECOND, true),
    ];
    for (moment, ms, beats) in calls {
        let before = repo.lease(&task).unwrap().renewed;
        thread::sleep(Duration::from_millis(2));
        assert_eq!(repo.later(moment, ms), SILENCE);
        assert_eq!(repo.lease(&task).unwrap().renewed > before, beats, "{moment:?} after {ms} ms");
    }
}

#[test]
fn an_agent_is_reminded_once_of_each_lease() {
    let repo = HookedRepository::new();
    repo.hear(HookEvent::Start);
    assert_eq!(repo.hear(HookEvent::Stop), SILENCE, "it holds nothing");
    let one = repo.held("Pin the schema");
    let before = repo.lease(&one).unwrap().renewed;
    thread::sleep(Duration::from_millis(2));
    let reply = repo.hear(HookEvent::Stop);
    let text = held_back(&reply);
    assert!(text.starts_with(&format!("You still hold {one} \"Pin the schema\". Finish it (toft finish")), "{text}");
    assert!(repo.lease(&one).unwrap().renewed > before);
    assert_eq!(repo.hear(HookEvent::Stop), SILENCE);
    let two = repo.held(&"x".repeat(500));
    let reply = repo.hear(HookEvent::Stop);
    assert!(held_back(&reply).contains(one.as_str()) && held_back(&reply).contains(two.as_str()), "{reply:?}");
    assert!(!held_back(&reply).contains(&"x".repeat(100)), "a long name is cut");
    assert_eq!(repo.hear(HookEvent::Stop), SILENCE);
    let fence = repo.lease(&one).unwrap().fence;
    let release = finish::Request { id: Some(one.to_string()), fence: Some(fence), ..finish::Request::default() };
    repo.hooks().finish(&repo.me, None, release).unwrap();
    repo.claim_as(&repo.me, &one, true);
    assert!(held_back(&repo.hear(HookEvent::Stop)).contains(one.as_str()), "the same task under another lease");
}

#[test]
fn an_agent_that_goes_on_because_of_a_hook_is_not_held_back_again() {
    let repo = HookedRepository::new();
    repo.held("Pin the schema");
    let again = Heard { again: true, ..repo.heard.clone() };
    assert_eq!(repo.hear_as(HookEvent::Stop, &again), SILENCE);
    assert_ne!(repo.hear(HookEvent::Stop), SILENCE, "it was not reminded yet");
}

#[test]
fn before_the_context_is_cut_a_checkpoint_repeats_the_last_one() {
    let repo = HookedRepository::new();
    let task = repo.held("Pin the schema");
    assert_eq!(repo.hear(HookEvent::Compact), SILENCE);
    assert_eq!(repo.checkpoints(&task), [format!("{CUT}there was no checkpoint before")]);
    let fence = Some(repo.lease(&task).unwrap().fence);
    let half = save::Request { fence, message: Some("half of it".into()), ..save::Request::default() };
    repo.session.perform_as(&repo.me, None, save::Request { id: Some(task.to_string()), ..half }).unwrap();
    for _ in 0..3 {
        repo.hear(HookEvent::Compact);
        assert_eq!(repo.checkpoints(&task)[0], format!("{CUT}the checkpoint before says: half of it"));
    }
    let other = repo.held("Another");
    repo.hear(HookEvent::Compact);
    assert_eq!((repo.checkpoints(&task).len(), repo.checkpoints(&other).len()), (6, 1), "one for each");
}

#[test]
fn a_session_that_ends_releases_what_it_holds() {
    let repo = HookedRepository::new();
    let tasks = [repo.held("One"), repo.held("Two")];
    repo.hear(HookEvent::Stop);
    assert_eq!(fs::read_dir(repo.sessions()).unwrap().count(), 1);
    assert_eq!(repo.hear(HookEvent::End), SILENCE);
    for task in &tasks {
        assert_eq!(repo.lease(task), None);
        let attempts = store::ask(repo.session.store().unwrap(), |tx| tx.attempts(task)).unwrap();
        assert_eq!(attempts[0].reason.as_deref(), Some("its session ended"));
    }
    assert_eq!(fs::read_dir(repo.sessions()).unwrap().count(), 0, "its state is deleted");
    assert_eq!(repo.hear(HookEvent::End), SILENCE, "once more changes nothing");
}

#[test]
fn the_end_of_a_session_releases_nothing_that_a_runner_or_another_session_decides_about() {
    let repo = HookedRepository::new();
    let task = repo.held("Pin the schema");
    let run = Heard { task: Some(task.to_string()), in_attempt: true, ..repo.heard.clone() };
    repo.hear_as(HookEvent::End, &run);
    assert!(repo.lease(&task).is_some(), "its runner decides");
    let named = Heard { session: "another session that was given this name".into(), ..repo.heard.clone() };
    repo.hear_as(HookEvent::End, &named);
    assert!(repo.lease(&task).is_some(), "the name may be shared");
    repo.hear(HookEvent::End);
    assert_eq!(repo.lease(&task), None);
}

#[test]
fn leases_of_another_session_of_the_same_name_are_left_alone() {
    let repo = HookedRepository::new();
    let task = repo.add("Pin the schema");
    repo.claim_as(&repo.me, &task, false);
    let before = repo.lease(&task).unwrap();
    thread::sleep(Duration::from_millis(2));
    for (n, moment) in EVERY.into_iter().enumerate().skip(1) {
        assert_eq!(repo.later(moment, n as u64 * 60 * SECOND), SILENCE, "{moment:?}");
    }
    assert_eq!(repo.lease(&task), Some(before));
    assert_eq!(repo.checkpoints(&task), [""; 0]);
}

#[test]
fn a_session_that_lost_its_lease_leaves_the_next_holder_alone() {
    let repo = HookedRepository::new();
    let task = repo.held("Pin the schema");
    let order = stop::Request { id: task.to_string(), park: false, reason: "enough".into() };
    Work::of(&repo.session).stop(repo.lead(), order).unwrap();
    assert_eq!(repo.hear(HookEvent::Stop), SILENCE, "nobody holds it now");
    repo.claim_as("bob", &task, false);
    let before = repo.lease(&task).unwrap();
    thread::sleep(Duration::from_millis(2));
    for (n, moment) in EVERY.into_iter().enumerate().skip(1) {
        assert_eq!(repo.later(moment, n as u64 * 60 * SECOND), SILENCE, "{moment:?}");
    }
    assert_eq!(repo.lease(&task), Some(before));
    assert_eq!(repo.checkpoints(&task), [""; 0]);
}

#[test]
fn a_session_that_was_never_registered_is_not_registered_by_other_events() {
    let repo = HookedRepository::new();
    for moment in EVERY.into_iter().skip(1) {
        assert_eq!(repo.hear(moment), SILENCE, "{moment:?}");
    }
    assert_eq!(repo.agent(&repo.me), None);
}

#[test]
fn outside_of_a_checkout_a_session_has_no_state_and_is_told_everything() {
    let repo = HookedRepository::new();
    let outside = tempfile::tempdir().unwrap();
    let store = Some(StoreLocation::path(repo.dir.path().join(".git/toft/toft.db")));
    let config = Config { store, dir: Some(outside.path().into()), agent: Some(repo.me.clone()), ..Config::default() };
    let session = Session::with(config).unwrap();
    let hook = |moment| Hooks::of(Work::of(&session)).hook(&repo.me, moment, &repo.heard).unwrap();
    assert!(said(&hook(HookEvent::Start)).contains("you are"));
    repo.send("use the new index", false);
    assert!(said(&hook(HookEvent::Tools)).contains("use the new index"));
    assert_eq!(hook(HookEvent::End), SILENCE);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn state_that_cannot_be_read_is_empty() {
    let repo = HookedRepository::new();
    repo.held("Pin the schema");
    for text in ["", "{", "[]", "{\"reminded\": 7}", "{}", "{\"added\": \"by a newer toft\"}"] {
        let path = repo.hooks().memory_of(&repo.heard).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        assert_ne!(repo.hear(HookEvent::Stop), SILENCE, "after {text}");
        assert_eq!(repo.hear(HookEvent::Stop), SILENCE, "after {text}");
    }
}

#[test]
fn the_state_of_a_session_is_forgotten_after_a_week() {
    let repo = HookedRepository::new();
    fs::create_dir_all(repo.sessions()).unwrap();
    let day = Duration::from_secs(86_400);
    for (name, age) in [("old", day * 8), ("young", day * 6)] {
        let file = fs::File::create(repo.sessions().join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }
    repo.hear(HookEvent::Start);
    let left = |name: &str| Path::new(&repo.sessions()).join(name).exists();
    assert_eq!((left("old"), left("young")), (false, true));
}

#[test]
fn everything_that_a_harness_started_knows_its_session() {
    let repo = HookedRepository::new();
    let pid = std::process::id();
    let own = repo.hooks().name_of_process(pid).unwrap();
    assert_ne!(own, repo.me);
    assert_eq!(repo.hooks().name_of_process(pid), Some(own), "always the same");
    repo.hear_as(HookEvent::Start, &Heard { process: Some(pid), ..repo.heard.clone() });
    assert_eq!(repo.hooks().name_of_process(pid), Some(repo.me.clone()));
    assert_eq!(repo.hooks().name_of_process(u32::MAX), None, "there is no such process");
}

#[test]
fn a_session_that_holds_nothing_is_seen_all_the_same() {
    let repo = HookedRepository::new();
    repo.hear(HookEvent::Start);
    let silent = |repo: &HookedRepository| {
        let agent = repo.agent(&repo.me).unwrap();
        let seen = agent.created.minus(Duration::from_secs(3_600));
        let mut tx = repo.session.store().unwrap().begin(Access::Write).unwrap();
        tx.write_derived(&[Write::Agent(Agent { seen, ..agent })]).unwrap();
        tx.commit().unwrap();
    };
    for (moment, ms, beats) in [
        (HookEvent::Tools, 0, true),
        (HookEvent::Prompt, 30 * SECOND - 1, false),
        (HookEvent::Prompt, 30 * SECOND, true),
        (HookEvent::Tools, 60 * SECOND, true),
    ] {
        silent(&repo);
        assert_eq!(repo.later(moment, ms), SILENCE);
        let agent = repo.agent(&repo.me).unwrap();
        assert_eq!(agent.seen >= agent.created, beats, "{moment:?} after {ms} ms");
    }
}

#[test]
fn a_paused_session_stays_paused_and_a_removed_one_comes_back() {
    let repo = HookedRepository::new();
    repo.hear(HookEvent::Start);
    repo.tell(AgentState::Draining);
    for source in ["compact", "resume", "startup"] {
        repo.hear_as(HookEvent::Start, &Heard { source: source.into(), ..repo.heard.clone() });
        assert_eq!(repo.agent(&repo.me).unwrap().state, AgentState::Draining, "{source}");
    }
    repo.send("wait for the release", false);
    assert!(said(&repo.hear(HookEvent::Prompt)).contains("wait for the release"));
    repo.session.perform_as(repo.lead(), None, agent::Remove { agent: Some(repo.me.clone()) }).unwrap();
    repo.hear(HookEvent::Start);
    assert_eq!(repo.agent(&repo.me).unwrap().state, AgentState::Active);
}

#[test]
fn a_clock_that_was_set_back_silences_nothing() {
    let repo = HookedRepository::new();
    let task = repo.held("Pin the schema");
    repo.later(HookEvent::Tools, 3_600 * SECOND);
    let before = repo.lease(&task).unwrap().renewed;
    thread::sleep(Duration::from_millis(2));
    repo.send("use the new index", false);
    assert!(said(&repo.later(HookEvent::Tools, 0)).contains("use the new index"));
    assert!(repo.lease(&task).unwrap().renewed > before);
}

#[test]
fn a_message_that_was_taken_is_said_even_if_the_state_cannot_be_written() {
    let repo = HookedRepository::new();
    repo.hear(HookEvent::Start);
    repo.send("use the new index", false);
    fs::write(repo.sessions(), "a file where a directory should be").unwrap();
    assert!(said(&repo.hear(HookEvent::Prompt)).contains("use the new index"));
    repo.hooks().hook(&repo.me, HookEvent::Prompt, &repo.heard).unwrap_err();
    repo.held("Pin the schema");
    repo.hooks().hook(&repo.me, HookEvent::Stop, &repo.heard).unwrap_err();
}
