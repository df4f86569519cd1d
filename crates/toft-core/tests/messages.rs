//! Messages: whom they reach, in which order, and what is known of their delivery.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use toft_core::{
    message::MessageKind,
    refusal::{Refusal, VerbError},
    testing::Stage,
    verbs::{self, inbox, send},
};

fn tell(
    stage: &Stage,
    from: &str,
    to: &str,
    body: &str,
    priority: u8,
) -> Result<toft_core::message::Message, VerbError> {
    let request = send::Request { to: to.into(), body: body.into(), priority: Some(priority), ..Default::default() };
    stage.perform(from, request)
}

fn inbox(stage: &Stage, agent: &str, human: bool) -> Vec<String> {
    let request = inbox::Request { human, limit: 10, ..Default::default() };
    let letters = stage.perform(agent, request).unwrap().letters;
    letters.into_iter().map(|letter| letter.message.body).collect()
}

fn register(stage: &Stage, names: &[&str]) {
    for name in names {
        let request = verbs::agent::Register { name: Some((*name).into()), ..Default::default() };
        stage.perform(name, request).unwrap();
    }
}

#[test]
fn messages_reach_agents_holders_and_people() {
    let stage = Stage::memory();
    stage.flow("p", &["only"]);
    let task = stage.claim("blue").unwrap().task.id.to_string();
    tell(&stage, "ana", "blue", "low", 4).unwrap();
    tell(&stage, "ana", &task, "to the holder", 0).unwrap();
    let stop = tell(&stage, "ana", "nobody", "x", 2).unwrap_err();
    assert!(matches!(stop, VerbError::Refused(Refusal::NotFound { .. })), "{stop}");
    assert_eq!(inbox(&stage, "blue", false), ["to the holder", "low"], "urgent first");
    assert!(inbox(&stage, "blue", false).is_empty(), "each is read once");
    tell(&stage, "blue", "human", "look at this", 2).unwrap();
    assert_eq!(inbox(&stage, "ana", true), ["look at this"]);
    assert!(inbox(&stage, "ana", true).is_empty());
}

#[test]
fn a_message_has_a_subject_an_answer_and_a_time_when_it_was_read() {
    let stage = Stage::memory();
    register(&stage, &["bob", "amy"]);
    let subject = Some("The colour".to_owned());
    let request = send::Request { to: "bob".into(), body: "which one?".into(), subject, ..Default::default() };
    let sent = stage.perform("amy", request).unwrap();
    let peek = inbox::Peek { limit: 10, ..Default::default() };
    assert_eq!(stage.perform("bob", peek).unwrap().letters[0].read_at, None);
    assert_eq!(inbox(&stage, "bob", false), ["which one?"]);
    let all = inbox::Request { all: true, limit: 10, ..Default::default() };
    assert!(stage.perform("bob", all).unwrap().letters[0].read_at.is_some());
    let reply_to = Some(sent.id.clone());
    let reply = send::Request { to: "amy".into(), body: "red".into(), reply_to, ..Default::default() };
    let reply = stage.perform("bob", reply).unwrap();
    assert_eq!((reply.reply_to.as_ref(), &reply.thread), (Some(&sent.id), &sent.id));
    assert_eq!(reply.subject.as_deref(), Some("The colour"));
    inbox(&stage, "amy", false);
    // To everyone but the sender, and to the person.
    assert_eq!(tell(&stage, "amy", "all", "the build is red", 2).unwrap().kind, MessageKind::Broadcast);
    assert_eq!(inbox(&stage, "bob", false), ["the build is red"]);
    assert_eq!(inbox(&stage, "amy", true), ["the build is red"]);
    assert!(inbox(&stage, "amy", false).is_empty());
    let taken = verbs::agent::Register { name: Some("all".into()), ..Default::default() };
    assert!(stage.perform("eve", taken).is_err(), "nobody is called everybody");
}
