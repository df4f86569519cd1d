//! The guard: checks line by line what a range of commits would publish.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::PathBuf,
};

use serde::Serialize;
use toft_core::{
    issue::{
        Issue,
        outgoing::{Doubt, Finding, Leak, doubts, leak},
        overlay::{OVERLAY, is_overlay},
        private::Private,
        proposal::{LOCAL, PROPOSED, ProposalSide},
    },
    refusal::Refusal,
    store::Access,
};
use toft_ledger::file::LedgerLock;
use toft_session::error::{Error, io};
use toft_vcs::exchange::{self, Outgoing, Range};

use super::{LedgerKind, Plan};

/// Length of the id of a finding.
const FINDING: usize = 12;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Guarded {
    /// Number of issues that would be published.
    pub issues: usize,
    /// Lines that must not be published.
    pub leaks: Vec<LeakingLine>,
    /// Findings that need a confirmation.
    pub doubts: Vec<Doubtful>,
}

/// A finding that needs a confirmation before publishing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Doubtful {
    /// A short, stable id, with which the finding can be allowed.
    pub id: String,
    /// A description with the location.
    pub what: String,
    /// It looks like a secret.
    pub secret: bool,
}

impl Doubtful {
    fn new(what: String, secret: bool) -> Self {
        Self { id: finding_id(&what), what, secret }
    }

    fn of(doubt: &Doubt) -> Self {
        match doubt {
            Doubt::Secret(Finding { id, .. }) => Self { id: id.clone(), what: doubt.to_string(), secret: true },
            _ => Self::new(doubt.to_string(), false),
        }
    }
}

/// A line that must not be published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeakingLine {
    /// The commit.
    pub revision: String,
    /// The file.
    pub path: String,
    pub issue: String,
    /// The reason.
    pub why: &'static str,
}

impl Plan<'_> {
    /// Checks what the commits of a range would publish.
    pub fn guard(&self, range: &Range) -> Result<Guarded, Error> {
        let private = self.private()?;
        let upstream = self.upstream.as_deref();
        let mentions = |line: &str| private.ids_in(line).next().is_some() || hidden_record(line);
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
                    LeakingLine { revision, path, issue: issue.to_owned(), why }
                };
                match record(&line.line) {
                    Some((id, issue)) => {
                        let hidden = private.has(&id) || is_overlay(&issue);
                        let why = leak(&issue, hidden, before.get(&id), !self.contributor);
                        guarded.leaks.extend(why.map(|why: Leak| found(&id, why.as_str())));
                        stays.insert(id.clone());
                        leaving.insert((id, line.line.clone()));
                    }
                    None => {
                        let what = match private.ids_in(&line.line).next() {
                            Some(named) => format!("{} names {named}, which is private", line.path),
                            None => format!("{} has a record of a private ledger", line.path),
                        };
                        guarded.doubts.push(Doubtful::new(what, false));
                    }
                }
            }
            for (id, issue) in before.iter().filter(|(id, _)| self.contributor && !stays.contains(*id)) {
                if ProposalSide::of(issue) != ProposalSide::Offered {
                    let path = lines.first().map(|line| line.path.clone()).unwrap_or_default();
                    let why = "is taken away, and belongs to the other side";
                    guarded.leaks.push(LeakingLine { revision: revision.clone(), path, issue: id.clone(), why });
                }
            }
        }
        guarded.issues = leaving.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len();
        let doubtful = self.doubts(leaving.iter().map(|(id, line)| (id.as_str(), line.as_str())));
        guarded.doubts.extend(doubtful.iter().map(Doubtful::of));
        self.forget_allowed(&mut guarded.doubts);
        Ok(guarded)
    }

    /// The findings in lines that are about to be sent, without secrets that were allowed by name.
    pub(super) fn doubts<'a>(&self, lines: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Doubt> {
        let allowed = self.allowed_findings();
        doubts(lines, |finding| allowed.contains(finding))
    }

    /// Checks what a push publishes besides commits: the names of refs, and the texts of annotated tags. Each ref is a
    /// name, and the object that it will point to.
    pub fn guard_refs(&self, refs: &[(String, String)]) -> Result<Vec<Doubtful>, Error> {
        let private = self.private()?;
        let mut doubts = Vec::new();
        for (name, object) in refs {
            let text = exchange::tag_text(self.checkout, object)?;
            for (place, text) in [(format!("the name {name}"), name), (format!("the tag of {name}"), &text)] {
                let named = private.ids_in(text);
                doubts.extend(named.map(|id| Doubtful::new(format!("{place} names {id}, which is private"), false)));
                if toft_core::secret::in_text(text) {
                    doubts.push(Doubtful::new(format!("{place} has something that looks like a secret"), true));
                }
            }
        }
        self.forget_allowed(&mut doubts);
        Ok(doubts)
    }

    /// Removes findings that the user allowed.
    fn forget_allowed(&self, doubts: &mut Vec<Doubtful>) {
        doubts.sort();
        doubts.dedup();
        let allowed = self.allowed_findings();
        doubts.retain(|doubt| !allowed.contains(&doubt.id) && !allowed.contains(&fingerprint(&doubt.what)));
    }

    /// Findings that the user allowed, by id.
    pub(super) fn allowed_findings(&self) -> HashSet<String> {
        fs::read_to_string(self.allowed()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Allows findings: they are not reported again.
    pub fn allow_findings(&self, findings: &[String]) -> Result<(), Error> {
        let real = |finding: &String| finding.len() == FINDING && finding.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(other) = findings.iter().find(|finding| !real(finding)) {
            let problem = format!("`{other}` is not the id of a finding");
            return Err(Refusal::Invalid { field: "allow".into(), problem }.into());
        }
        self.remember_allowed(findings)
    }

    /// The file of allowed findings.
    fn allowed(&self) -> PathBuf {
        self.state.join("sync").join("allowed")
    }

    /// The same, for findings of a guard.
    pub fn allow(&self, doubts: &[Doubtful]) -> Result<(), Error> {
        self.remember_allowed(&doubts.iter().map(|doubt| doubt.id.clone()).collect::<Vec<_>>())
    }

    fn remember_allowed(&self, findings: &[String]) -> Result<(), Error> {
        let path = self.allowed();
        if !findings.is_empty() {
            let turn = LedgerLock::take(&path.with_extension("lock")).map_err(io("lock", &path))?;
            turn.append(&path, findings).map_err(io("write", &path))?;
        }
        Ok(())
    }

    /// Issues that only private ledgers contain, or that were not proposed.
    pub fn private(&self) -> Result<Private, Error> {
        if self.unwritten() {
            return Ok(Private::default());
        }
        self.refresh()?;
        let index = self.index(Access::Read)?;
        let hidden = |place: LedgerKind| match place {
            LedgerKind::Planning => true,
            LedgerKind::Shared => self.contributor,
            LedgerKind::Branch | LedgerKind::Tree => false,
        };
        let mut issues = Vec::new();
        for ledger in self.ledgers.iter().filter(|ledger| hidden(ledger.place)) {
            for row in index.all_of(&ledger.name)? {
                let issue = row.issue()?;
                // What was accepted or moved elsewhere is no secret any more, and what is overlaid never was.
                if issue.deleted.is_none()
                    && ProposalSide::of(&issue) == ProposalSide::Own
                    && issue.visibility.as_deref() != Some(PROPOSED)
                    && !is_overlay(&issue)
                {
                    issues.push((issue.id, issue.title));
                }
            }
        }
        Ok(Private::new(issues))
    }
}

/// The short, stable id of a finding.
pub(super) fn finding_id(key: &str) -> String {
    fingerprint(key)[..FINDING].to_owned()
}

fn fingerprint(doubt: &str) -> String {
    blake3::hash(doubt.as_bytes()).to_hex()[..24].to_owned()
}

/// Whether a line is part of a private ledger's record in another layout.
fn hidden_record(line: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    line.contains("\"visibility\"")
        && words.any(|word| word == "visibility")
        && words.next().is_some_and(|word| [LOCAL, OVERLAY].contains(&word))
}

/// The issue in a line, if it is one.
fn record(line: &str) -> Option<(String, Issue)> {
    let text = line.trim().trim_end_matches(',');
    // A line may say only what is new about an issue.
    let like_one =
        text.contains("\"id\"") && ["\"title\"", "\"clk\"", "\"visibility\""].iter().any(|name| text.contains(name));
    if !text.starts_with('{') || !like_one {
        return None;
    }
    let (issue, _) = Issue::read(text).ok()?;
    Some((issue.id.clone(), issue))
}
