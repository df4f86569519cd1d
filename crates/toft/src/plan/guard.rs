//! The guard: what a range of commits would publish, looked at line by line before it leaves.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::PathBuf,
};

use serde::Serialize;
use toft_core::{
    issue::{
        Issue, Put,
        outgoing::{Doubt, Finding, Leak, doubts, leak},
        proposal::{PROPOSED, Part},
    },
    refusal::Refusal,
    store::Access,
};
use toft_ledger::{file::Turn, line};
use toft_vcs::exchange::{self, Outgoing, Range};

use super::{Place, Plan, write::record_from};
use crate::error::{Error, io};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Guarded {
    /// How many issues would be published.
    pub issues: usize,
    /// What may not leave.
    pub leaks: Vec<Found>,
    /// What is worth a question.
    pub doubts: Vec<String>,
    /// Secrets that were found, by the name that `--allow` takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// A line that may not leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// In which commit.
    pub revision: String,
    /// In which file.
    pub path: String,
    /// Which issue.
    pub issue: String,
    /// Why not.
    pub why: &'static str,
}

impl Plan<'_> {
    /// Looks at what commits of a range would publish.
    pub fn guard(&self, range: &Range) -> Result<Guarded, Error> {
        let private = self.private_ids()?;
        let upstream = self.upstream.as_deref();
        let mentions = |line: &str| words(line).any(|word| private.contains(word));
        let lines =
            exchange::outgoing(self.checkout, range, upstream, |line| record(line).is_some() || mentions(line))?;
        let mut guarded = Guarded::default();
        let mut commits: BTreeMap<String, Vec<&Outgoing>> = BTreeMap::new();
        lines.iter().for_each(|line| commits.entry(line.revision.clone()).or_default().push(line));
        // Every line of every commit: what a later one takes away is published all the same.
        let mut leaving: BTreeSet<(String, String)> = BTreeSet::new();
        for (revision, lines) in commits {
            let before: BTreeMap<String, Issue> =
                lines.iter().filter(|line| !line.added).filter_map(|line| record(&line.line)).collect();
            let mut stays = HashSet::new();
            for line in lines.iter().filter(|line| line.added) {
                let found = |issue: &str, why: &'static str| {
                    let (revision, path) = (revision.clone(), line.path.clone());
                    Found { revision, path, issue: issue.to_owned(), why }
                };
                match record(&line.line) {
                    Some((id, issue)) => {
                        let why = leak(&issue, private.contains(id.as_str()), before.get(&id), !self.contributor);
                        guarded.leaks.extend(why.map(|why: Leak| found(&id, why.as_str())));
                        stays.insert(id.clone());
                        leaving.insert((id, line.line.clone()));
                    }
                    None => {
                        let named = words(&line.line).find(|word| private.contains(*word)).unwrap_or_default();
                        guarded.doubts.push(format!("{} names {named}, which is private", line.path));
                    }
                }
            }
            for (id, issue) in before.iter().filter(|(id, _)| self.contributor && !stays.contains(*id)) {
                if Part::of(issue) != Part::Offered {
                    let path = lines.first().map(|line| line.path.clone()).unwrap_or_default();
                    let why = "is taken away, and belongs to the other side";
                    guarded.leaks.push(Found { revision: revision.clone(), path, issue: id.clone(), why });
                }
            }
        }
        guarded.issues = leaving.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len();
        let allowed = fs::read_to_string(self.allowed()).unwrap_or_default();
        for doubt in self.doubts(leaving.iter().map(|(id, line)| (id.as_str(), line.as_str()))) {
            guarded.doubts.push(doubt.to_string());
            if let Doubt::Secret(Finding { id, .. }) = doubt {
                guarded.findings.push(id);
            }
        }
        guarded.doubts.sort();
        guarded.doubts.dedup();
        guarded.doubts.retain(|doubt| !allowed.lines().any(|line| line == print(doubt)));
        Ok(guarded)
    }

    /// What is doubtful about lines that are about to leave; secrets that somebody named as fine are not.
    pub(super) fn doubts<'a>(&self, lines: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Doubt> {
        let allowed = fs::read_to_string(self.allowed()).unwrap_or_default();
        let allowed: HashSet<&str> = allowed.lines().collect();
        doubts(lines, |finding| allowed.contains(finding))
    }

    /// Refuses to publish something with a secret in it, which nobody named as fine.
    pub(super) fn refuse_secrets(&self, id: &str, puts: &[Put]) -> Result<(), Error> {
        let line = line::write(&record_from(id, puts));
        let found = self.doubts([(id, line.as_str())].into_iter());
        let secrets: Vec<String> =
            found.iter().filter(|doubt| matches!(doubt, Doubt::Secret(_))).map(ToString::to_string).collect();
        match secrets.is_empty() {
            true => Ok(()),
            false => Err(Refusal::Secret { found: secrets.join("; ") }.into()),
        }
    }

    /// Findings that somebody looked at: they are not asked about again.
    pub fn allow_findings(&self, findings: &[String]) -> Result<(), Error> {
        let real = |finding: &String| finding.len() == 12 && finding.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(other) = findings.iter().find(|finding| !real(finding)) {
            let problem = format!("`{other}` is not the name of a finding; toft sync -n names them");
            return Err(Refusal::Invalid { field: "allow".into(), problem }.into());
        }
        self.remember_allowed(findings)
    }

    /// Where doubts are kept that somebody looked at.
    fn allowed(&self) -> PathBuf {
        self.state.join("sync").join("allowed")
    }

    /// Somebody looked at these: they are not asked about again.
    pub fn allow(&self, doubts: &[String]) -> Result<(), Error> {
        self.remember_allowed(&doubts.iter().map(|doubt| print(doubt)).collect::<Vec<_>>())
    }

    fn remember_allowed(&self, lines: &[String]) -> Result<(), Error> {
        let path = self.allowed();
        if !lines.is_empty() {
            let turn = Turn::take(&path.with_extension("lock")).map_err(io("lock", &path))?;
            turn.append(&path, lines).map_err(io("write", &path))?;
        }
        Ok(())
    }

    /// Issues that only private ledgers have, or that nobody was offered.
    fn private_ids(&self) -> Result<HashSet<String>, Error> {
        if self.unwritten() {
            return Ok(HashSet::new());
        }
        self.refresh()?;
        let index = self.index(Access::Read)?;
        let hidden = |place: Place| match place {
            Place::Planning => true,
            Place::Shared => self.contributor,
            Place::Branch | Place::Tree => false,
        };
        let mut ids = HashSet::new();
        for ledger in self.ledgers.iter().filter(|ledger| hidden(ledger.place)) {
            for row in index.all_of(&ledger.name)? {
                let issue = row.issue()?;
                // What was accepted or moved elsewhere is no secret any more.
                if issue.deleted.is_none()
                    && Part::of(&issue) == Part::Own
                    && issue.visibility.as_deref() != Some(PROPOSED)
                {
                    ids.insert(issue.id);
                }
            }
        }
        Ok(ids)
    }
}

fn print(doubt: &str) -> String {
    blake3::hash(doubt.as_bytes()).to_hex()[..24].to_owned()
}

/// The issue that a line is, if it is one.
fn record(line: &str) -> Option<(String, Issue)> {
    let text = line.trim().trim_end_matches(',');
    if !text.starts_with('{') || !text.contains("\"id\"") || !text.contains("\"title\"") {
        return None;
    }
    let issue: Issue = serde_json::from_str(text).ok()?;
    Some((issue.id.clone(), issue))
}

/// What could be an id.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).filter(|word| word.contains('-'))
}
