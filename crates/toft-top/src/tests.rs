//! Screens, keys and sizes, without a terminal and without a store.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend};
use toft::{
    agent::Presence,
    issue::stage::IssueStage,
    landing::LandingState,
    time::Timestamp,
    views::{
        AgentRow, AgentsView, BoardColumn, BoardView, Card, CommandResult, DiffView, IssueView, Need, NeedKind,
        NeedsYouView, QueueRow, QueueView, RowAction, Screen, ScreenView,
    },
};

use crate::{
    draw::draw,
    refresh::{OpenIssue, Refreshed},
    state::{Effect, TopState},
};

const NOW: Timestamp = Timestamp(1_763_294_400_000);

fn minutes_ago(minutes: i64) -> Timestamp {
    Timestamp(NOW.0 - minutes * 60_000)
}

fn action(key: char, label: &'static str, command: &[&str], asks: Option<&'static str>) -> RowAction {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    RowAction {
        key,
        label: label.to_owned(),
        title: "Sell apples".to_owned(),
        command,
        dir: None,
        asks,
        prefix: String::new(),
        preview: None,
        needs_clone: false,
        verb: "",
    }
}

fn need(kind: NeedKind, id: &str, title: &str, text: &str, behind: u32) -> Need {
    Need {
        kind,
        repository: None,
        id: format!("{id}xxxxxxxxxxxx"),
        shown: id.to_owned(),
        title: title.to_owned(),
        from: Some("blue-heron".to_owned()),
        text: text.to_owned(),
        behind,
        since: Some(minutes_ago(12)),
        actions: vec![action('a', "answer", &["answer", &format!("{id}xxxxxxxxxxxx")], Some("Answer"))],
    }
}

fn needs_you() -> NeedsYouView {
    NeedsYouView {
        rows: vec![
            need(NeedKind::Question, "tf-a41c", "Pin the orders schema", "Which currency wins, euro or dollar?", 14),
            need(NeedKind::Review, "tf-b2", "Sell apples", "finished; into main", 0),
            need(NeedKind::Failed, "tf-c3", "Bake\u{1b}[31m bread\u{202e}", "the check failed three times", 2),
        ],
        working: 3,
        unlanded: 2,
        notes: Vec::new(),
    }
}

fn agents() -> AgentsView {
    let row = |name: &str, id: &str, title: &str, note: &str| AgentRow {
        name: name.to_owned(),
        presence: if id.is_empty() { Presence::Idle } else { Presence::Working },
        machine: "tower".to_owned(),
        runtime: Some("claude".to_owned()),
        repository: None,
        id: id.to_owned(),
        shown: id.to_owned(),
        title: title.to_owned(),
        workspace: Some("tf-a41c".to_owned()),
        since: (!id.is_empty()).then(|| minutes_ago(7)),
        silent_s: 4,
        lost: false,
        paused: false,
        waits: false,
        note: Some(note.to_owned()).filter(|note| !note.is_empty()),
        cost: None,
        actions: vec![
            action('t', "tell", &["tell", id], Some("Tell the agent")),
            action('s', "stop", &["stop", id], None),
        ],
    };
    AgentsView {
        budgets: Vec::new(),
        rows: vec![
            row("blue-heron", "tf-a41c", "Pin the orders schema", "schema drafted, tests next"),
            row("red-fox", "tf-d4", "Report prices in euros", ""),
            row("grey-owl", "", "", ""),
        ],
        offline: 4,
    }
}

fn board() -> BoardView {
    let card = |id: &str, title: &str, agent: Option<&str>, unblocks| Card {
        id: id.to_owned(),
        shown: id.to_owned(),
        title: title.to_owned(),
        priority: 2,
        agent: agent.map(str::to_owned),
        unblocks,
        ..Card::default()
    };
    let column = |stage, cards: Vec<Card>| BoardColumn { stage, total: cards.len(), cards };
    BoardView {
        columns: vec![
            column(IssueStage::Planned, vec![card("tf-e5", "Bake bread", None, 0)]),
            column(
                IssueStage::Ready,
                vec![card("tf-f6", "Sell apples", None, 3), card("tf-g7", "Sell pears", None, 0)],
            ),
            column(IssueStage::Working, vec![card("tf-a41c", "Pin the orders schema", Some("blue-heron"), 1)]),
            column(IssueStage::Review, Vec::new()),
            column(IssueStage::Landing, Vec::new()),
            column(IssueStage::Landed, vec![card("tf-h8", "Log in with a key", None, 0)]),
        ],
    }
}

fn queue() -> QueueView {
    let row = |id: &str, state, waits: &str, conflicts: &[&str]| QueueRow {
        repository: None,
        id: id.to_owned(),
        shown: id.to_owned(),
        title: "Sell apples".to_owned(),
        author: "red-fox".to_owned(),
        target: "main".to_owned(),
        state,
        waits: waits.to_owned(),
        conflicts: conflicts.iter().map(|&file| file.to_owned()).collect(),
        against: None,
        sent_back: None,
        updated: minutes_ago(90),
        actions: vec![RowAction {
            preview: Some(vec!["land".into(), "-n".into()]),
            ..action('l', "land", &["land", id], None)
        }],
    };
    QueueView {
        rows: vec![
            row("tf-b2", LandingState::Queued, "ready to land", &[]),
            row("tf-i9", LandingState::Queued, "ready to land", &["src/prices.rs"]),
            row("tf-h8", LandingState::Landed, "landed as 0123456789", &[]),
        ],
        red: Vec::new(),
    }
}

fn issue() -> OpenIssue {
    let view = IssueView {
        repository: None,
        id: "tf-b2".to_owned(),
        shown: "tf-b2".to_owned(),
        title: "Sell apples".to_owned(),
        stage: Some(IssueStage::Review),
        priority: 2,
        labels: vec!["shop".to_owned()],
        agent: Some("red-fox".to_owned()),
        workspace: None,
        text: vec![(String::new(), "Apples are sold by weight.".to_owned())],
        why: Vec::new(),
        whole: Vec::new(),
        parts: Vec::new(),
        needs: Vec::new(),
        unblocks: Vec::new(),
        questions: Vec::new(),
        attempts: Vec::new(),
        conversation: Vec::new(),
        notes: vec![(minutes_ago(3), "weighed".to_owned())],
        landing: Some("waits for review".to_owned()),
        returnable: true,
        history: Vec::new(),
        actions: vec![
            action('a', "approve", &["review", "tf-b2", "--approve"], None),
            action('r', "return", &["review", "tf-b2", "--return", "--message="], Some("What has to change")),
        ],
    };
    let diff = "diff --git a/apples.rs b/apples.rs\n--- a/apples.rs\n+++ b/apples.rs\n@@ -1,1 +1,2 @@\n fn sell() {}\n+fn weigh() {}\n";
    OpenIssue { view, diff: DiffView::of(diff), log: Vec::new() }
}

fn top() -> TopState {
    let mut state = TopState::new("shop".to_owned(), true);
    state.clock = || NOW;
    for (screen, view) in [
        (Screen::NeedsYou, ScreenView::NeedsYou(needs_you())),
        (Screen::Agents, ScreenView::Agents(agents())),
        (Screen::Board, ScreenView::Board(board())),
        (Screen::Queue, ScreenView::Queue(queue())),
    ] {
        state.screens.insert(screen, view);
    }
    state
}

fn press(state: &mut TopState, keys: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    for key in keys.split(' ') {
        let code = match key {
            "Enter" => KeyCode::Enter,
            "Esc" => KeyCode::Esc,
            "Down" => KeyCode::Down,
            "Right" => KeyCode::Right,
            "Tab" => KeyCode::Tab,
            "Space" => KeyCode::Char(' '),
            text => {
                for sign in text.chars() {
                    effects.extend(state.key(KeyEvent::new(KeyCode::Char(sign), KeyModifiers::NONE)));
                }
                continue;
            }
        };
        effects.extend(state.key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    effects
}

fn drawn(state: &mut TopState, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let shown = terminal.backend().to_string();
    let lines = shown.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn run(command: &[&str], preview: bool) -> Effect {
    Effect::Run { arguments: command.iter().map(|&word| word.to_owned()).collect(), preview }
}

#[test]
fn screens_look_as_they_did() {
    let mut state = top();
    insta::assert_snapshot!("needs_you", drawn(&mut state, 80, 24));
    press(&mut state, "2");
    insta::assert_snapshot!("agents", drawn(&mut state, 120, 26));
    press(&mut state, "3");
    insta::assert_snapshot!("board_narrow", drawn(&mut state, 80, 16));
    press(&mut state, "Right");
    insta::assert_snapshot!("board", drawn(&mut state, 160, 20));
    press(&mut state, "4");
    insta::assert_snapshot!("queue", drawn(&mut state, 200, 20));
    press(&mut state, "?");
    insta::assert_snapshot!("keys", drawn(&mut state, 90, 30));
}

#[test]
fn an_issue_looks_as_it_did() {
    let mut state = top();
    assert_eq!(press(&mut state, "Down Enter"), [Effect::Refresh]);
    state.see(Refreshed {
        request: state.wanted(),
        screens: vec![Ok(ScreenView::NeedsYou(needs_you()))],
        issue: Some(Ok(issue())),
        notes: Vec::new(),
    });
    insta::assert_snapshot!("issue", drawn(&mut state, 80, 18));
    press(&mut state, "d Down Down Down Down Down");
    insta::assert_snapshot!("issue_changes", drawn(&mut state, 80, 16));
}

#[test]
fn nothing_breaks_at_any_size() {
    let mut state = top();
    for (width, height) in [(1, 1), (3, 4), (20, 6), (80, 24), (300, 80)] {
        for screen in ["1", "2", "3", "4", "5", "?", "Esc", ":"] {
            press(&mut state, screen);
            drawn(&mut state, width, height);
        }
        press(&mut state, "Esc");
    }
}

#[test]
fn text_from_outside_controls_nothing() {
    let mut state = top();
    press(&mut state, "Down Down");
    let shown = drawn(&mut state, 100, 30);
    assert!(shown.contains("bread"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
}

#[test]
fn a_key_runs_the_command_that_is_shown() {
    let mut state = top();
    assert!(drawn(&mut state, 80, 24).contains("toft answer tf-a41c …"));
    assert_eq!(press(&mut state, "a"), []);
    press(&mut state, "the Space euro");
    assert!(drawn(&mut state, 80, 24).contains("toft answer tf-a41c 'the euro'"));
    let answer = ["answer", "tf-a41cxxxxxxxxxxxx", "the euro"];
    assert_eq!(press(&mut state, "Enter"), [run(&answer, false)]);
    // One at a time, and nobody leaves it alone.
    assert_eq!(press(&mut state, "q"), []);
    state.ran(&answer.map(str::to_owned), false, &CommandResult { succeeded: true, text: "Answered\n".to_owned() });
    assert_eq!(state.said.as_deref(), Some("Answered"));
    assert_eq!(press(&mut state, "q"), [Effect::Leave]);
}

#[test]
fn a_dangerous_key_asks_first() {
    let mut state = top();
    press(&mut state, "2");
    assert_eq!(press(&mut state, "s"), []);
    assert!(drawn(&mut state, 80, 24).contains("toft stop tf-a41c (Sell apples)? Enter does it"));
    assert_eq!(press(&mut state, "Esc x"), []);
    assert_eq!(press(&mut state, "s Enter"), [run(&["stop", "tf-a41c"], false)]);
}

#[test]
fn landing_and_undoing_show_what_would_happen_first() {
    let mut state = top();
    press(&mut state, "4");
    assert_eq!(press(&mut state, "l"), [run(&["land", "-n"], true)]);
    // Another command ends meanwhile.
    state.ran(&["add".to_owned()], false, &CommandResult { succeeded: true, text: String::new() });
    let preview = CommandResult { succeeded: true, text: "tf-b2  Sell apples  ready to land\n".to_owned() };
    state.ran(&["land".to_owned(), "-n".to_owned()], true, &preview);
    assert!(drawn(&mut state, 80, 24).contains("ready to land"));
    assert_eq!(press(&mut state, "Enter"), [run(&["land", "tf-b2"], false)]);
    state.ran(&["land".to_owned()], false, &CommandResult { succeeded: true, text: String::new() });
    assert_eq!(press(&mut state, "u"), [run(&["undo", "-n"], true)]);
    state.ran(&[], true, &CommandResult { succeeded: true, text: "would undo".to_owned() });
    assert_eq!(press(&mut state, "Esc"), [], "it was not wanted");
    assert!(state.popup.is_none());
}

#[test]
fn comments_on_lines_go_back_with_the_work() {
    let mut state = top();
    press(&mut state, "Down Enter");
    let (request, screens) = (state.wanted(), vec![Ok(ScreenView::NeedsYou(needs_you()))]);
    state.see(Refreshed { request, screens, issue: Some(Ok(issue())), notes: Vec::new() });
    press(&mut state, "d Down Down Down Down Down");
    press(&mut state, "c unused Enter");
    assert!(drawn(&mut state, 80, 20).contains("+fn weigh() {}   ← unused"));
    press(&mut state, "r weigh Space them");
    let back = ["review", "tf-b2", "--return", "--at", "apples.rs:2", "unused", "--message=weigh them"];
    assert_eq!(press(&mut state, "Enter"), [run(&back, false)]);
}

#[test]
fn escape_and_a_key_soon_after_it_are_two_keys() {
    let mut state = top();
    press(&mut state, "?");
    let effects = state.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT));
    assert!(state.popup.is_none());
    assert_eq!(effects, [Effect::Leave]);
}

#[test]
fn rows_are_filtered_as_one_types() {
    let mut state = top();
    press(&mut state, "/ apples");
    assert_eq!(state.table().unwrap().rows.len(), 1);
    press(&mut state, "Enter");
    assert_eq!(state.row().unwrap().shown, "tf-b2");
    press(&mut state, "Esc");
    assert_eq!(state.table().unwrap().rows.len(), 3);
}

#[test]
fn a_store_that_cannot_be_read_is_said_and_what_was_seen_stays() {
    let mut state = top();
    let screens = vec![Err("http://127.0.0.1:7878 does not answer".to_owned())];
    state.see(Refreshed { request: state.wanted(), screens, issue: None, notes: Vec::new() });
    let shown = drawn(&mut state, 100, 24);
    assert!(shown.contains("not up to date: http://127.0.0.1:7878") && shown.contains("Sell apples"), "{shown}");
    // It comes back.
    let screens = vec![Ok(ScreenView::NeedsYou(needs_you()))];
    state.see(Refreshed { request: state.wanted(), screens, issue: None, notes: Vec::new() });
    let shown = drawn(&mut state, 100, 24);
    assert!(!shown.contains("not up to date"), "{shown}");
}
