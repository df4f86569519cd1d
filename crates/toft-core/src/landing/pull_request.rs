//! Pull requests: how a forge tells whether work landed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::BounceReason;

use crate::schema::JsonSchema;

/// How many characters of each text of a forge an agent is told.
const TOLD: usize = 2_000;

/// The pull request of a landing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PullRequest {
    pub number: u64,
    pub url: String,
    /// The remote that has its branch.
    pub remote: String,
    /// Its branch there.
    pub branch: String,
    /// The commit that was pushed to its branch.
    pub tip: String,
}

/// What a forge says of a pull request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullRequestFacts {
    pub state: PullRequestState,
    /// The newest commit of its branch.
    pub head: String,
    /// Checks of that commit that failed, each with its name and what it says.
    pub failed: Vec<(String, String)>,
    /// A reviewer asked for changes.
    pub changes_requested: bool,
    /// What reviewers say.
    pub comments: Vec<PullRequestComment>,
}

/// How far a pull request is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PullRequestState {
    /// Not merged yet.
    #[default]
    Open,
    /// The forge merged it, as this commit of the target.
    Merged { commit: String },
    /// It was closed and not merged.
    Closed,
}

/// A comment of a reviewer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullRequestComment {
    pub by: String,
    pub file: Option<String>,
    pub line: Option<u64>,
    pub text: String,
}

/// A review on a forge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullRequestReview {
    pub by: String,
    /// The reviewer belongs to the project.
    pub by_member: bool,
    /// The commit that was reviewed.
    pub commit: String,
    /// Whether it asks for changes; absent if it only comments.
    pub asks: Option<bool>,
    pub text: String,
}

/// What follows from the facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullRequestVerdict {
    /// The forge merged it, in any way: its number is the record.
    Landed { commit: String },
    /// It goes back to an agent.
    Bounced {
        reason: BounceReason,
        message: String,
        files: Vec<String>,
        /// A person decides first.
        asks: bool,
    },
    /// Its branch has other commits than the work.
    Outdated,
    /// Nothing yet.
    Waits,
}

impl PullRequestFacts {
    /// Takes the reviews up, oldest first: of each member of the project the last one counts, and only if it is of the newest
    /// commit.
    pub fn take_reviews(&mut self, reviews: Vec<PullRequestReview>) {
        let mut last = BTreeMap::new();
        for review in reviews.into_iter().filter(|review| review.by_member) {
            let asks_now = review.asks == Some(true) && review.commit == self.head;
            if review.asks.is_some() {
                last.insert(review.by.clone(), asks_now);
            }
            if asks_now && !review.text.trim().is_empty() {
                let comment = PullRequestComment { by: review.by, text: review.text, ..PullRequestComment::default() };
                self.comments.push(comment);
            }
        }
        self.changes_requested = last.into_values().any(|asks| asks);
    }

    /// What follows for work whose newest commit is `tip`, and whose commit `pushed` was pushed last.
    #[must_use]
    pub fn verdict(&self, tip: &str, pushed: &str) -> PullRequestVerdict {
        let comments: Vec<String> = self.comments.iter().map(PullRequestComment::line).collect();
        let mut files: Vec<String> = self.comments.iter().filter_map(|comment| comment.file.clone()).collect();
        files.sort();
        files.dedup();
        let review = |what: &str, asks: bool| {
            let message = std::iter::once(what.to_owned()).chain(comments.clone()).collect::<Vec<_>>().join("\n");
            PullRequestVerdict::Bounced { reason: BounceReason::Review, message, files: files.clone(), asks }
        };
        match &self.state {
            // Older commits were merged, or closed: what was finished since is another pull request.
            _ if pushed != tip => PullRequestVerdict::Outdated,
            PullRequestState::Merged { .. } if !self.head.is_empty() && self.head != tip => {
                PullRequestVerdict::Outdated
            }
            PullRequestState::Merged { commit } => PullRequestVerdict::Landed { commit: commit.clone() },
            PullRequestState::Closed => review("The pull request was closed and not merged.", true),
            // Another pushed to the branch: what is said of their commits is for them.
            PullRequestState::Open if self.head != tip => PullRequestVerdict::Waits,
            PullRequestState::Open if !self.failed.is_empty() => {
                let failed = self.failed.iter().map(|(name, said)| format!("{name} failed.\n{}", end_of(said)));
                let message = failed.collect::<Vec<_>>().join("\n");
                PullRequestVerdict::Bounced { reason: BounceReason::Check, message, files: Vec::new(), asks: false }
            }
            PullRequestState::Open if self.changes_requested => review("A reviewer asks for changes.", false),
            PullRequestState::Open => PullRequestVerdict::Waits,
        }
    }
}

impl PullRequestComment {
    fn line(&self) -> String {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            (Some(file), None) => format!("{file}: "),
            (None, _) => String::new(),
        };
        format!("{place}{} ({})", end_of(self.text.trim()), self.by)
    }
}

/// The end of a long text.
fn end_of(text: &str) -> String {
    let count = text.chars().count();
    match count > TOLD {
        true => format!("…{}", text.chars().skip(count - TOLD).collect::<String>()),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_forge_says_of_older_commits_sends_nothing_back() {
        let failed = PullRequestFacts {
            head: "old".into(),
            failed: vec![("test".into(), "two tests failed".into())],
            changes_requested: true,
            ..PullRequestFacts::default()
        };
        assert_eq!(failed.verdict("new", "old"), PullRequestVerdict::Outdated);
        assert_eq!(failed.verdict("new", "new"), PullRequestVerdict::Waits, "another pushed to its branch");
        let now = PullRequestFacts { head: "new".into(), ..failed.clone() };
        assert!(matches!(now.verdict("new", "new"), PullRequestVerdict::Bounced { reason: BounceReason::Check, .. }));
        let merged = PullRequestFacts { state: PullRequestState::Merged { commit: "m".into() }, ..failed };
        assert_eq!(merged.verdict("new", "new"), PullRequestVerdict::Outdated, "the forge merged before the push");
        assert_eq!(merged.verdict("old", "old"), PullRequestVerdict::Landed { commit: "m".into() });
        assert_eq!(merged.verdict("new", "old"), PullRequestVerdict::Outdated, "what was mended is not in it");
    }

    #[test]
    fn of_each_member_the_last_review_of_the_newest_commit_counts() {
        let review = |by: &str, by_member, commit: &str, asks| PullRequestReview {
            by: by.into(),
            by_member,
            commit: commit.into(),
            asks,
            text: "why".into(),
        };
        let requested = |reviews: Vec<PullRequestReview>| {
            let mut facts = PullRequestFacts { head: "new".into(), ..PullRequestFacts::default() };
            facts.take_reviews(reviews);
            (facts.changes_requested, facts.comments.len())
        };
        assert_eq!(requested(vec![review("eve", true, "new", Some(true))]), (true, 1));
        assert_eq!(requested(vec![review("eve", true, "old", Some(true))]), (false, 0));
        assert_eq!(requested(vec![review("stranger", false, "new", Some(true))]), (false, 0));
        let changed = vec![review("eve", true, "new", Some(true)), review("eve", true, "new", Some(false))];
        assert!(!requested(changed).0, "the reviewer approved since");
        let commented = vec![review("eve", true, "new", Some(true)), review("eve", true, "new", None)];
        assert!(requested(commented).0, "a comment takes nothing back");
        let two = vec![review("eve", true, "new", Some(true)), review("bob", true, "new", Some(false))];
        assert!(requested(two).0, "another's approval takes nothing back");
    }

    #[test]
    fn comments_of_reviewers_come_back_with_file_and_line() {
        let facts = PullRequestFacts {
            head: "a".into(),
            changes_requested: true,
            comments: vec![PullRequestComment {
                by: "eve".into(),
                file: Some("src/a.rs".into()),
                line: Some(7),
                text: "this panics".into(),
            }],
            ..PullRequestFacts::default()
        };
        let PullRequestVerdict::Bounced { reason, message, files, asks: false } = facts.verdict("a", "a") else {
            panic!("{facts:?}")
        };
        assert_eq!((reason, files), (BounceReason::Review, vec!["src/a.rs".to_owned()]));
        assert_eq!(message, "A reviewer asks for changes.\nsrc/a.rs:7: this panics (eve)");
        let open = PullRequestFacts { changes_requested: false, ..facts };
        assert_eq!(open.verdict("a", "a"), PullRequestVerdict::Waits);
    }
}
