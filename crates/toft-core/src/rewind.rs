//! The plan as it was: issues, who worked on them and what waited to land, from what they are now and the events since.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use serde_json::Value;

use crate::{
    change::Event,
    issue::{
        IN_PROGRESS, Issue, Put,
        ready::{Node, Nodes, readiness},
        stage::{IssueStage, StageFacts},
    },
    json,
    landing::{LandingState, LandingWait},
    time::Timestamp,
};

/// How far the times of issues that are written together may be ahead of the clock.
const AHEAD_MS: i64 = 60_000;

/// Issues and the work on them, at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanState {
    /// By id.
    pub issues: BTreeMap<String, Issue>,
    /// Agents at work, by issue and task.
    pub at_work: BTreeMap<String, BTreeMap<String, String>>,
    /// Issues whose work waits: for an answer, a time or a decision.
    pub waiting: BTreeSet<String>,
    /// Issues with several tasks: one that nobody is on may be claimed while the issue is in progress.
    pub in_parts: BTreeSet<String>,
    /// Finished work that waits to land, by issue: whether it waits for a review.
    pub queued: BTreeMap<String, bool>,
}

impl PlanState {
    /// Goes back to before an event. Events come newest first; `about` is the issue of the task that an event is about, or the
    /// event's own entity.
    pub fn undo(&mut self, event: &Event, about: &str) {
        let text = |name: &str| event.detail.get(name).and_then(Value::as_str);
        match event.verb.as_str() {
            "issue.added" => drop(self.issues.remove(about)),
            "claim" => {
                let tasks = self.at_work.entry(about.to_owned()).or_default();
                tasks.remove(&event.entity);
                if tasks.is_empty() {
                    self.at_work.remove(about);
                }
            }
            "task.done" | "task.failed" | "task.released" | "task.handoff" | "task.waiting" | "task.stopped"
            | "lease.lost" | "lease.revoked" => {
                let agent = text("agent").unwrap_or(&event.actor);
                let tasks = self.at_work.entry(about.to_owned()).or_default();
                tasks.insert(event.entity.clone(), agent.to_owned());
                self.waiting.remove(about);
            }
            "task.answered" | "task.retried" => drop(self.waiting.insert(about.to_owned())),
            "land.queued" => drop(self.queued.remove(about)),
            "land.approved" => drop(self.queued.insert(about.to_owned(), true)),
            "land.bounced" => drop(self.queued.insert(about.to_owned(), text("reason") == Some("review"))),
            "land.withdrawn" if text("was") == Some("bounced") => {}
            "land.landed" | "land.withdrawn" => {
                self.queued.insert(about.to_owned(), text("was") == Some("review"));
            }
            _ => {
                let was = event.detail.get("was").cloned();
                let was = was.and_then(|was| json::from_value::<Vec<Put>>(&was).ok()).unwrap_or_default();
                if let Some(issue) = self.issues.get_mut(about) {
                    was.iter().for_each(|put| issue.put(put));
                }
            }
        }
    }

    /// Who works on an issue; the first of several.
    #[must_use]
    pub fn agent_on(&self, issue: &str) -> Option<&str> {
        self.at_work.get(issue)?.values().next().map(String::as_str)
    }

    /// Each issue with its stage, at that time. What was written later is left out.
    #[must_use]
    pub fn stages(&self, at: Timestamp) -> Vec<(&Issue, IssueStage)> {
        let until = Timestamp(at.0.saturating_add(AHEAD_MS));
        let known = self.issues.values().filter(move |issue| issue.written() <= until && issue.deleted.is_none());
        let nodes: BTreeMap<&str, Node> = known.clone().map(|issue| (issue.id.as_str(), Node::of(issue))).collect();
        let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
        for parent in nodes.values().filter(|node| node.unfinished()).filter_map(|node| node.parent.as_deref()) {
            *parts.entry(parent).or_default() += 1;
        }
        let blocked: BTreeSet<&str> =
            nodes.values().filter(|node| !node.needs.is_empty()).map(|node| &*node.id).collect();
        let mut seen = PastNodes { nodes: &nodes, parts: &parts, blocked: &blocked };
        let stage = |issue: &Issue| {
            let queued = self.queued.get(&issue.id);
            let review = queued.is_some_and(|review| *review).then_some(&LandingWait::Review);
            let Ok(found) = readiness(&mut seen, &nodes[issue.id.as_str()]);
            let (begun, in_parts) = (issue.status == IN_PROGRESS, self.in_parts.contains(&issue.id));
            StageFacts {
                closed: issue.closed.is_some(),
                held: self.at_work.contains_key(&issue.id) || begun && !in_parts && queued.is_none(),
                waiting: self.waiting.contains(&issue.id),
                ready: begun && in_parts || found.opens().is_some_and(|opens| opens <= at),
                landing: queued.map(|_| (LandingState::Queued, review)),
            }
            .stage()
        };
        let mut stage = stage;
        known.map(|issue| (issue, stage(issue))).collect()
    }
}

/// The facts of the ready rule, at one time.
struct PastNodes<'a> {
    nodes: &'a BTreeMap<&'a str, Node>,
    parts: &'a BTreeMap<&'a str, u64>,
    blocked: &'a BTreeSet<&'a str>,
}

impl Nodes for PastNodes<'_> {
    type Error = Infallible;

    fn node(&mut self, id: &str) -> Result<Option<Node>, Infallible> {
        Ok(self.nodes.get(id).cloned())
    }

    fn open_children(&mut self, id: &str) -> Result<u64, Infallible> {
        Ok(self.parts.get(id).copied().unwrap_or_default())
    }

    fn may_circle(&mut self, id: &str) -> bool {
        self.blocked.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{id::OpId, issue::Stamp, repository::Place};

    fn event(seq: u64, verb: &str, entity: &str, actor: &str, detail: Value) -> Event {
        let at = Timestamp(i64::try_from(seq).unwrap() * 1000);
        let (place, op) = (Place::default(), OpId::known("op_1"));
        Event { seq, at, actor: actor.into(), place, entity: entity.into(), verb: verb.into(), detail, op, part: 0 }
    }

    fn issue(id: &str, status: &str) -> Issue {
        let created = Some(Stamp { at: Timestamp(500), by: "ana".into() });
        Issue { id: id.into(), title: id.into(), status: status.into(), created, ..Issue::default() }
    }

    #[test]
    fn the_stages_of_an_evening_are_those_that_were_seen() {
        let status = |was: &str, now: &str| json!({ "was": [{ "field": ["status", was] }], "now": [{ "field": ["status", now] }] });
        let closed = json!({ "was": [{ "field": ["status", "in_progress"] }, { "field": ["closed", null] }] });
        let evening = [
            event(1, "issue.added", "a", "ana", json!({ "title": "a" })),
            event(2, "claim", "a", "bo", json!({})),
            event(3, "issue.started", "a", "toft", status("open", "in_progress")),
            event(4, "task.waiting", "a", "bo", json!({ "message": "which?" })),
            event(5, "issue.released", "a", "toft", status("in_progress", "open")),
            event(6, "task.answered", "a", "ana", json!({})),
            event(7, "claim", "a", "kim", json!({})),
            event(8, "issue.started", "a", "toft", status("open", "in_progress")),
            event(9, "task.done", "a", "kim", json!({})),
            event(10, "land.queued", "a", "kim", json!({})),
            event(11, "land.approved", "a", "ana", json!({})),
            event(12, "land.landed", "a", "ana", json!({})),
            event(13, "issue.closed", "a", "toft", closed),
        ];
        let mut a = issue("a", "closed");
        a.put(&Put::Field("closed".into(), Some(json!({ "at": Timestamp(13_000), "by": "toft" }))));
        assert!(a.closed.is_some());
        let mut plan = PlanState { issues: [("a".to_owned(), a)].into(), ..PlanState::default() };
        let mut seen = Vec::new();
        for event in evening.iter().rev() {
            let stage = plan.stages(Timestamp(100_000)).first().map_or("", |(_, stage)| stage.as_str());
            seen.push((event.seq, stage, plan.agent_on("a").unwrap_or_default().to_owned()));
            plan.undo(event, &event.entity);
        }
        seen.reverse();
        let seen: Vec<String> = seen.iter().map(|(seq, stage, agent)| format!("{seq} {stage} {agent}")).collect();
        assert_eq!(
            seen,
            [
                "1 ready ",
                "2 working bo",
                "3 working bo",
                "4 working ",
                "5 working ",
                "6 ready ",
                "7 working kim",
                "8 working kim",
                "9 working ",
                "10 review ",
                "11 landing ",
                "12 working ",
                "13 landed ",
            ]
        );
        assert_eq!(plan, PlanState::default(), "at the beginning there was nothing");
    }

    #[test]
    fn withdrawn_work_waited_as_its_event_says() {
        for (was, wanted) in [("review", "review"), ("queued", "landing"), ("bounced", "ready")] {
            let issues = [("a".to_owned(), issue("a", "open"))].into();
            let mut plan = PlanState { issues, ..PlanState::default() };
            plan.undo(&event(1, "land.withdrawn", "a", "ana", json!({ "was": was })), "a");
            assert_eq!(plan.stages(Timestamp(3_000))[0].1.as_str(), wanted, "{was}");
        }
    }

    #[test]
    fn what_waits_for_another_issue_is_ready_when_that_was_closed() {
        let (mut a, b) = (issue("a", "closed"), issue("b", "open"));
        a.put(&Put::Field("closed".into(), Some(json!({ "at": Timestamp(2_000), "by": "toft" }))));
        let b = Issue { deps: vec![crate::issue::Dep { on: "a".into(), kind: "blocks".into() }], ..b };
        let later = Issue { created: Some(Stamp { at: Timestamp(90_000), by: String::new() }), ..issue("c", "open") };
        let issues = [("a".to_owned(), a), ("b".to_owned(), b), ("c".to_owned(), later)];
        let mut plan = PlanState { issues: issues.into(), ..PlanState::default() };
        let words = |plan: &PlanState| {
            plan.stages(Timestamp(3_000)).into_iter().map(|(_, stage)| stage.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(words(&plan), ["landed", "ready"]);
        let was = json!({ "was": [{ "field": ["status", "open"] }, { "field": ["closed", null] }, { "label": ["hot", true] }] });
        plan.undo(&event(2, "issue.closed", "a", "toft", was), "a");
        assert_eq!(words(&plan), ["ready", "planned"]);
        assert_eq!(plan.issues["a"].labels, ["hot"]);
    }
}
