//! A runner's observations of an attempt, and what they mean for the task.
//!
//! A commit or an explicit report is evidence. If an agent exits successfully without evidence, its task is not done.

use serde::{Deserialize, Serialize};

use crate::{
    flow::{Attempt, AttemptResult, Evidence, ProviderRefusal},
    schema::JsonSchema,
    verbs::finish::{How, WaitFor},
};

/// Maximum length of a command's output that is kept as the reason.
const REASON: usize = 400;

/// A runner's observations of the command that it started for an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// How the command ended.
    pub ending: Ending,
    /// How long it ran, in milliseconds.
    pub ran_ms: u64,
    /// The machine whose disk has the log.
    pub host: String,
    /// The path of the log with all of its output.
    pub log: String,
    /// The workspace it ran in, by name.
    pub workspace: String,
    /// The tokens that it used, if it reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Its provider refused to serve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<ProviderRefusal>,
}

impl Report {
    /// Whether the attempt says nothing about its task, and does not count.
    fn not_by_the_task(&self) -> bool {
        self.ending.not_by_the_task() || self.refused.is_some()
    }
}

/// The tokens that an agent used, as it reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited with this code.
    Exited(i32),
    /// It was ended by this signal, which the runner did not send.
    Signalled(i32),
    /// It had no output for this many seconds, and the runner ended it.
    Idle(u64),
    /// It ran longer than this many seconds, and the runner ended it.
    Overtime(u64),
    /// The runner was asked to stop, and ended it.
    Stopped,
    /// Its lease was lost, and the runner ended it.
    Lost,
}

impl Ending {
    /// Whether the command was ended for a reason that says nothing about its task, so that the attempt does not count.
    #[must_use]
    pub fn not_by_the_task(self) -> bool {
        matches!(self, Self::Stopped | Self::Lost)
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Signalled(signal) => write!(f, "was ended by signal {signal}"),
            Self::Idle(seconds) => write!(f, "said nothing for {seconds} s and was ended"),
            Self::Overtime(seconds) => write!(f, "took longer than {seconds} s and was ended"),
            Self::Stopped => f.write_str("was stopped with its runner"),
            Self::Lost => f.write_str("was ended when its lease was lost"),
        }
    }
}

/// An agent's report about its own attempt, in the file that `TOFT_REPORT` names. `toft finish` reports the same.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Word {
    /// The outcome; absent if it only reports usage or cost.
    pub outcome: Option<SaidOutcome>,
    pub message: String,
    /// Answers to the message that a person may choose from.
    pub choices: Vec<String>,
    /// The commit that is the evidence.
    pub evidence: Option<String>,
    /// The reason why no change was needed.
    pub no_change: Option<String>,
    pub cost: Option<f64>,
    /// The tokens that it used.
    pub usage: Option<Usage>,
}

/// The outcome that an agent reports for its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaidOutcome {
    /// Done.
    Done,
    /// The attempt failed.
    Failed,
    /// The task is released.
    Release,
    /// The task is released with a note for the next holder.
    Handoff,
    /// A person must answer the message.
    Waiting,
}

/// All observations of an attempt that its agent did not end itself.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How the command ended.
    pub ending: Ending,
    /// A commit that is in the workspace now and was not there before.
    pub commit: Option<String>,
    /// Number of changed files that are not committed.
    pub uncommitted: usize,
    /// The agent's own report.
    pub word: Word,
    /// Why the report could not be read, or the workspace not examined.
    pub problem: Option<String>,
    /// The last lines of output.
    pub said: String,
    /// Its provider refused to serve it.
    pub refused: Option<ProviderRefusal>,
    /// The command that did not verify the commit, and what it said.
    pub unverified: Option<String>,
    /// Its task reviews work; a verdict would have ended it.
    pub reviews: bool,
}

impl Seen {
    /// How the hold ends, and in which words.
    #[must_use]
    pub fn judge(&self) -> (How, String) {
        if self.ending.not_by_the_task() {
            return (How::Release, self.ending.to_string());
        }
        let well = self.ending == Ending::Exited(0);
        let message = |otherwise: String| match self.word.message.trim() {
            "" => shorten(&otherwise),
            message => message.to_owned(),
        };
        match self.word.outcome {
            Some(SaidOutcome::Failed) => (How::Failed, message("the agent gave up".into())),
            Some(SaidOutcome::Release) => (How::Release, message("released by the agent".into())),
            Some(SaidOutcome::Handoff) if self.said.is_empty() => {
                (How::Handoff, message("handed over without a word".into()))
            }
            Some(SaidOutcome::Handoff) => (How::Handoff, message(self.said.clone())),
            Some(SaidOutcome::Waiting) if !self.word.message.trim().is_empty() => {
                (How::Waiting(WaitFor::Human), message(String::new()))
            }
            Some(SaidOutcome::Done | SaidOutcome::Waiting) | None if let Some(refused) = self.refusal() => {
                (How::Release, shorten(&refused.to_string()))
            }
            Some(SaidOutcome::Done | SaidOutcome::Waiting) | None if !well => {
                let said = if self.said.is_empty() { String::new() } else { format!(": {}", self.said) };
                (How::Failed, shorten(&format!("{}{said}", self.ending)))
            }
            Some(SaidOutcome::Done | SaidOutcome::Waiting) | None if self.reviews => {
                (How::Failed, "ended without a verdict: toft review … --approve, or --return".into())
            }
            Some(SaidOutcome::Done | SaidOutcome::Waiting) | None => match self.evidence() {
                Some(Evidence::Commit(_)) if let Some(why) = &self.unverified => (How::Failed, shorten(why)),
                Some(evidence) => (How::Done(evidence), message(self.said.clone())),
                None => (How::Failed, self.nothing_to_show()),
            },
        }
    }

    /// The refusal of the provider that ended the command.
    #[must_use]
    pub fn refusal(&self) -> Option<&ProviderRefusal> {
        self.refused.as_ref().filter(|_| matches!(self.ending, Ending::Exited(code) if code != 0))
    }

    /// The evidence: the one that the agent names, otherwise a commit in the workspace.
    fn evidence(&self) -> Option<Evidence> {
        let named = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let commit = named(&self.word.evidence).or_else(|| self.commit.clone());
        let reason = named(&self.word.no_change).filter(|_| self.uncommitted == 0);
        commit.map(Evidence::Commit).or(reason.map(Evidence::NoChange))
    }

    fn nothing_to_show(&self) -> String {
        match self.uncommitted {
            _ if let Some(problem) = &self.problem => problem.clone(),
            0 => "ended without a commit, and without a reason why nothing had to change".into(),
            1 => "ended with 1 changed file that is not committed".into(),
            count => format!("ended with {count} changed files that are not committed"),
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(REASON) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Whether commits that earlier attempts left count for the next one. Those of attempts that were cut short do; an attempt
/// that failed is to be followed by something new.
#[must_use]
pub fn builds_on(earlier: &[Attempt]) -> bool {
    !earlier.iter().any(|attempt| attempt.result == Some(AttemptResult::Failed))
}

/// How often in a row agents of runners released a task. Attempts that a runner stopped, and releases by people, do not
/// count.
pub(crate) fn given_back(attempts: &[Attempt]) -> usize {
    let by_itself = |attempt: &&Attempt| {
        matches!(attempt.result, Some(AttemptResult::Released | AttemptResult::Handoff))
            && attempt.report.as_ref().is_some_and(|report| !report.not_by_the_task())
    };
    attempts.iter().rev().filter(|attempt| attempt.ended.is_some()).take_while(by_itself).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ending: Ending) -> Seen {
        Seen {
            ending,
            commit: None,
            uncommitted: 0,
            word: Word::default(),
            problem: None,
            said: "all good".into(),
            refused: None,
            unverified: None,
            reviews: false,
        }
    }

    #[test]
    fn a_review_ends_with_a_verdict_and_not_with_a_commit() {
        let seen = Seen { commit: Some("c0ffee".into()), reviews: true, ..seen(Ending::Exited(0)) };
        let (how, why) = seen.judge();
        assert!(matches!(how, How::Failed) && why.contains("without a verdict"), "{why}");
    }

    #[test]
    fn a_commit_is_evidence() {
        let seen = Seen { commit: Some("c0ffee".into()), ..seen(Ending::Exited(0)) };
        assert!(
            matches!(seen.judge(), (How::Done(Evidence::Commit(commit)), said) if commit == "c0ffee" && said == "all good")
        );
    }

    #[test]
    fn a_commit_that_was_not_verified_is_not_done() {
        let unverified = Some("`make test` exited with 2".to_owned());
        let seen = Seen { commit: Some("c0ffee".into()), unverified, ..seen(Ending::Exited(0)) };
        assert!(matches!(seen.judge(), (How::Failed, said) if said.contains("make test")));
        let word = Word { no_change: Some("it is there".into()), ..Word::default() };
        let unchanged = Seen { commit: None, word, ..seen };
        assert!(matches!(unchanged.judge().0, How::Done(Evidence::NoChange(_))));
    }

    #[test]
    fn an_empty_diff_without_a_reason_is_not_done() {
        let (how, message) = seen(Ending::Exited(0)).judge();
        assert!(matches!(how, How::Failed), "{message}");
        let word = Word { outcome: Some(SaidOutcome::Done), ..Word::default() };
        assert!(matches!(Seen { word, ..seen(Ending::Exited(0)) }.judge().0, How::Failed));
        let word = Word { no_change: Some("it was mended already".into()), ..Word::default() };
        let reasoned = Seen { word, ..seen(Ending::Exited(0)) };
        assert!(matches!(reasoned.judge().0, How::Done(Evidence::NoChange(_))));
        let left = Seen { uncommitted: 2, ..reasoned };
        assert!(matches!(left.judge(), (How::Failed, said) if said.contains("2 changed files")));
    }

    #[test]
    fn a_command_that_ends_badly_has_not_done_its_task_whatever_it_says() {
        let word = Word { outcome: Some(SaidOutcome::Done), evidence: Some("c0ffee".into()), ..Word::default() };
        for ending in [Ending::Exited(3), Ending::Signalled(9), Ending::Idle(60), Ending::Overtime(60)] {
            let seen = Seen { word: word.clone(), commit: Some("c0ffee".into()), ..seen(ending) };
            assert!(matches!(seen.judge().0, How::Failed), "{ending}");
        }
    }

    #[test]
    fn a_runner_that_stops_or_loses_the_lease_gives_the_task_back_without_counting_it() {
        assert!(matches!(seen(Ending::Stopped).judge().0, How::Release));
        assert!(matches!(seen(Ending::Lost).judge().0, How::Release));
    }

    #[test]
    fn a_refusal_of_the_provider_is_nobodys_failure() {
        let refused = Some(ProviderRefusal {
            kind: crate::flow::ProviderRefusalKind::RateLimit,
            message: "429".into(),
            wait_s: Some(60),
        });
        let limited = Seen { refused, ..seen(Ending::Exited(1)) };
        let (how, message) = limited.judge();
        assert!(matches!(how, How::Release) && message == "its provider refused (rate limit): 429", "{message}");
        let word = Word { outcome: Some(SaidOutcome::Failed), ..Word::default() };
        assert!(matches!(Seen { word, ..limited.clone() }.judge().0, How::Failed), "its own word stands");
        let went_on = Seen { ending: Ending::Exited(0), commit: Some("c0ffee".into()), ..limited };
        assert!(matches!(went_on.judge().0, How::Done(_)), "a client that went on has done its work");
    }

    #[test]
    fn a_question_is_asked_only_if_there_is_one() {
        let asks =
            |message: &str| Word { outcome: Some(SaidOutcome::Waiting), message: message.into(), ..Word::default() };
        let asked = Seen { word: asks("which colour?"), ..seen(Ending::Exited(0)) };
        assert!(matches!(asked.judge().0, How::Waiting(WaitFor::Human)));
        assert!(matches!(Seen { word: asks(" "), ..seen(Ending::Exited(0)) }.judge().0, How::Failed));
    }

    const ENDINGS: [Ending; 8] = [
        Ending::Exited(0),
        Ending::Exited(1),
        Ending::Exited(-1),
        Ending::Signalled(9),
        Ending::Idle(60),
        Ending::Overtime(60),
        Ending::Stopped,
        Ending::Lost,
    ];
    const OUTCOMES: [Option<SaidOutcome>; 6] = [
        None,
        Some(SaidOutcome::Done),
        Some(SaidOutcome::Failed),
        Some(SaidOutcome::Release),
        Some(SaidOutcome::Handoff),
        Some(SaidOutcome::Waiting),
    ];

    /// Every combination of how a command ended, what its agent says, and what there is to show.
    fn every_combination() -> Vec<Seen> {
        let texts = [None, Some(" ".to_owned()), Some("named".to_owned())];
        let mut all = Vec::new();
        for ending in ENDINGS {
            for outcome in OUTCOMES {
                for n in 0..(3 * 3 * 2 * 2 * 2 * 2_usize) {
                    let (evidence, n) = (texts[n % 3].clone(), n / 3);
                    let (no_change, n) = (texts[n % 3].clone(), n / 3);
                    let flag = |bit: usize| n >> bit & 1 == 1;
                    let message = if flag(0) { "in words".to_owned() } else { String::new() };
                    all.push(Seen {
                        ending,
                        commit: flag(1).then(|| "seen".to_owned()),
                        uncommitted: if flag(2) { 2 } else { 0 },
                        word: Word { outcome, message, evidence, no_change, ..Word::default() },
                        problem: flag(3).then(|| "its report cannot be read".to_owned()),
                        said: "the last words".into(),
                        refused: None,
                        unverified: None,
                        reviews: false,
                    });
                }
            }
        }
        all
    }

    /// What a result is called, and the evidence it is based on.
    fn called(how: &How) -> String {
        match how {
            How::Done(Evidence::Commit(commit)) => format!("done by {commit}"),
            How::Done(Evidence::NoChange(reason)) => format!("done without a change: {reason}"),
            How::Done(Evidence::Artifact(artifact)) => format!("done by the artifact {artifact:?}"),
            How::Failed => "failed".into(),
            How::Release => "released".into(),
            How::Handoff => "handed over".into(),
            How::Waiting(_) => "waits".into(),
        }
    }

    #[test]
    fn every_combination_has_the_one_meaning_that_the_rules_give_it() {
        let combinations = every_combination();
        assert_eq!(combinations.len(), 8 * 6 * 144);
        for seen in combinations {
            let given = |text: &Option<String>| text.as_deref() == Some("named");
            let asks = seen.word.outcome == Some(SaidOutcome::Waiting) && !seen.word.message.is_empty();
            let wanted = if matches!(seen.ending, Ending::Stopped | Ending::Lost) {
                "released"
            } else if let Some(SaidOutcome::Failed) = seen.word.outcome {
                "failed"
            } else if let Some(SaidOutcome::Release) = seen.word.outcome {
                "released"
            } else if let Some(SaidOutcome::Handoff) = seen.word.outcome {
                "handed over"
            } else if asks {
                "waits"
            } else if seen.ending != Ending::Exited(0) {
                "failed"
            } else if given(&seen.word.evidence) {
                "done by named"
            } else if seen.commit.is_some() {
                "done by seen"
            } else if given(&seen.word.no_change) && seen.uncommitted == 0 {
                "done without a change: named"
            } else {
                "failed"
            };
            let (how, message) = seen.judge();
            assert_eq!(called(&how), wanted, "{seen:?}");
            assert!(!message.trim().is_empty(), "nothing is said of {seen:?}");
        }
    }

    #[test]
    fn the_reason_is_what_helps_most() {
        let nothing = || seen(Ending::Exited(0));
        let says = |message: &str| Word { message: message.into(), ..Word::default() };
        let told = |seen: &Seen| seen.judge().1;
        assert_eq!(told(&seen(Ending::Stopped)), "was stopped with its runner");
        assert_eq!(told(&seen(Ending::Exited(3))), "exited with 3: all good", "with the last it said");
        assert_eq!(told(&Seen { said: String::new(), ..seen(Ending::Signalled(9)) }), "was ended by signal 9");
        assert_eq!(told(&seen(Ending::Idle(60))), "said nothing for 60 s and was ended: all good");
        assert_eq!(told(&seen(Ending::Overtime(90))), "took longer than 90 s and was ended: all good");
        assert_eq!(
            told(&Seen { word: says("it works"), ..seen(Ending::Exited(1)) }),
            "exited with 1: all good",
            "a bad end says more than the agent"
        );
        assert!(told(&nothing()).starts_with("ended without a commit"));
        assert_eq!(told(&Seen { uncommitted: 1, ..nothing() }), "ended with 1 changed file that is not committed");
        let problem = "`x`, which it names as evidence, is no commit here".to_owned();
        assert_eq!(told(&Seen { problem: Some(problem.clone()), uncommitted: 1, ..nothing() }), problem);
        let commit = Some("c0ffee".to_owned());
        assert_eq!(told(&Seen { commit: commit.clone(), word: says("did it"), ..nothing() }), "did it");
        let long = Seen { said: "é".repeat(1_000), commit, ..nothing() };
        assert_eq!(told(&long).chars().count(), REASON + 1, "cut between letters, and marked");
    }

    fn attempt(result: Option<AttemptResult>, ending: Option<Ending>) -> Attempt {
        let report = ending.map(|ending| Report {
            ending,
            ran_ms: 1,
            host: "here".into(),
            log: "log".into(),
            workspace: "one".into(),
            usage: None,
            refused: None,
        });
        Attempt {
            task: crate::id::TaskId::known("tk_1"),
            fence: 1,
            lease: crate::id::LeaseId::known("ls_1"),
            agent: crate::id::AgentId::known("ag_1"),
            place: crate::repository::Place::default(),
            started: crate::time::Timestamp(0),
            ended: result.map(|_| crate::time::Timestamp(1)),
            result,
            reason: None,
            cost: None,
            report,
        }
    }

    #[test]
    fn earlier_commits_count_until_an_attempt_failed() {
        let ended = |result| attempt(Some(result), None);
        assert!(builds_on(&[]));
        assert!(builds_on(&[ended(AttemptResult::Released), ended(AttemptResult::Handoff), attempt(None, None)]));
        assert!(!builds_on(&[ended(AttemptResult::Failed), ended(AttemptResult::Released)]));
    }

    #[test]
    fn only_what_agents_of_runners_give_back_by_themselves_is_counted_and_only_the_last_in_a_row() {
        let well = Some(Ending::Exited(0));
        let back = || attempt(Some(AttemptResult::Released), well);
        let cases = [
            (vec![], 0),
            (vec![back()], 1),
            (vec![back(), attempt(Some(AttemptResult::Handoff), well)], 2),
            (vec![back(), back(), attempt(None, None)], 2),
            (vec![back(), attempt(Some(AttemptResult::Failed), well), back()], 1),
            (vec![back(), attempt(Some(AttemptResult::Released), None)], 0),
            (vec![back(), attempt(Some(AttemptResult::Released), Some(Ending::Stopped))], 0),
            (vec![back(), attempt(Some(AttemptResult::Released), Some(Ending::Lost)), back()], 1),
        ];
        for (attempts, count) in cases {
            assert_eq!(given_back(&attempts), count, "{attempts:?}");
        }
        let mut refused = back();
        let refusal =
            ProviderRefusal { kind: crate::flow::ProviderRefusalKind::Quota, message: "no".into(), wait_s: None };
        refused.report.as_mut().unwrap().refused = Some(refusal);
        assert_eq!(given_back(&[back(), refused]), 0, "a refusal of the provider is not the agent's choice");
    }
}
