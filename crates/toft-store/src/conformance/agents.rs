//! Agents, inboxes, gates, tokens, templates.

use toft_core::{
    change::Write,
    flow::{Template, WorkflowPlan},
    gate::{Gate, Opened},
    id::{TaskId, TemplateId},
    message::{Delivery, DeliveryState},
    repository::Scope,
    store::Access,
    token::{Token, TokenJob, TokenRole},
};

use super::{
    Pair,
    fields::{agent, at, base, gate, message},
};

pub fn an_agents_name_is_unique(pair: &Pair) {
    pair.write(&[Write::Agent(agent("ag_1", "blue")), Write::Agent(agent("ag_2", "amber"))]);
    let names: Vec<_> = pair.read(|tx| tx.agents()).into_iter().map(|agent| agent.name).collect();
    assert_eq!(names, ["amber", "blue"]);
    assert_eq!(pair.read(|tx| tx.agent_named("blue")), Some(agent("ag_1", "blue")));
    let mut tx = pair.writer.begin(Access::Write).unwrap();
    assert!(tx.write_derived(&[Write::Agent(agent("ag_3", "blue"))]).is_err());
}

pub fn an_inbox_is_read_urgent_first_then_oldest_first(pair: &Pair) {
    pair.write(&base());
    for (id, priority, created, state) in [
        ("msg_late", 2, 20, DeliveryState::Queued),
        ("msg_early", 2, 10, DeliveryState::Queued),
        ("msg_urgent", 0, 30, DeliveryState::Queued),
        ("msg_read", 0, 1, DeliveryState::Read),
    ] {
        let message = message(id, priority, created);
        let rank = format!("{priority}{created:05}");
        let delivery = Delivery { message: message.id.clone(), recipient: "ag_1".into(), state, rank, read_at: None };
        pair.write(&[Write::Message(message), Write::Delivery(delivery)]);
    }
    let inbox = |who: &str, unread, limit| {
        let rows = pair.read(|tx| tx.inbox(who, unread, limit));
        rows.into_iter().map(|letter| letter.message.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(inbox("ag_1", true, 0), ["msg_urgent", "msg_early", "msg_late"]);
    assert_eq!(inbox("ag_1", false, 2), ["msg_read", "msg_urgent"]);
    assert!(inbox("ag_2", false, 0).is_empty());
}

pub fn gates_nobody_opened_are_found(pair: &Pair) {
    pair.write(&base());
    let open = Opened { at: at(1), by: "boss".into(), answer: "yes".into() };
    pair.write(&[
        Write::Gate(Gate { created: at(2), ..gate("gt_b", "tk_1") }),
        Write::Gate(Gate { created: at(1), ..gate("gt_a", "tk_1") }),
    ]);
    let unopened = || {
        let rows = pair.read(|tx| tx.unopened_gates(&Scope::default(), 9));
        rows.into_iter().map(|gate| gate.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(unopened(), ["gt_a", "gt_b"]);
    pair.write(&[Write::Gate(Gate { created: at(1), opened: Some(open), ..gate("gt_a", "tk_1") })]);
    assert_eq!(unopened(), ["gt_b"]);
    let scope = Scope { repository: Some(toft_core::id::RepositoryId::known("rp_z")), worktree: None };
    assert!(pair.read(|tx| tx.unopened_gates(&scope, 9)).is_empty());
}

pub fn tokens_are_found_by_digest_and_listed_by_name(pair: &Pair) {
    let token = |digest: &str, name: &str| Token {
        digest: digest.into(),
        name: name.into(),
        role: TokenRole::Job,
        host: Some("here".into()),
        job: Some(TokenJob { task: TaskId::known("tk_1"), fence: "3.ls_x".parse().unwrap() }),
        created: at(1),
        by: "eve".into(),
        expires: Some(at(9)),
        revoked: None,
    };
    let all = [token("d3", "ana"), token("d1", "bob"), token("d2", "ana")];
    pair.write(&all.clone().map(Write::Token));
    assert_eq!(pair.read(|tx| tx.token("d1")).as_ref(), Some(&all[1]));
    assert_eq!(pair.read(|tx| tx.token("d9")), None);
    assert_eq!(pair.read(|tx| tx.tokens()), [all[2].clone(), all[0].clone(), all[1].clone()]);
    let revoked = Token { revoked: Some(at(5)), ..all[1].clone() };
    pair.write(&[Write::Token(revoked.clone())]);
    assert_eq!(pair.read(|tx| tx.token("d1")), Some(revoked));
}

pub fn templates_come_in_their_newest_version(pair: &Pair) {
    let version = |name: &str, version| Template {
        id: TemplateId::known(format!("tmpl_{name}{version}")),
        name: name.into(),
        version,
        description: None,
        removed: None,
        extends: None,
        variables: Default::default(),
        plan: WorkflowPlan::single("t"),
        created: at(0),
    };
    pair.write(&[
        Write::Template(version("ship", 1)),
        Write::Template(version("ship", 10)),
        Write::Template(version("ship", 2)),
        Write::Template(version("fix", 1)),
    ]);
    assert_eq!(pair.read(|tx| tx.template("ship", None)), Some(version("ship", 10)));
    assert_eq!(pair.read(|tx| tx.template("ship", Some(2))), Some(version("ship", 2)));
    assert_eq!(pair.read(|tx| tx.template("ship", Some(3))), None);
    assert_eq!(pair.read(|tx| tx.templates()), [version("fix", 1), version("ship", 10)]);
}
