//! The history of a ledger in version control: changes of an issue, the files at an earlier time, and what a range of
//! commits would publish.

use std::path::{Path, PathBuf};

use super::{
    ExchangeError, Files, ISSUES, Site, content, git_dir,
    hg::Hg,
    ledger_repository::{LEDGER_REF, LedgerRepository},
    owned, prefix_on_branch, refs,
};
use crate::{Checkout, RunError, Vcs, git_run::Git};

/// Maximum number of commits that are searched for an issue.
const COMMITS: usize = 1_000;

/// The history of one ledger.
pub struct History {
    way: HistoryWay,
    prefix: String,
}

enum HistoryWay {
    /// `own` is the repository, if only toft commits to this ref.
    Git {
        git: Git,
        tip: String,
        own: Option<PathBuf>,
    },
    Hg(Hg),
    None,
}

/// One commit that changed an issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Its hash.
    pub revision: String,
    /// Its time, in the format of the program.
    pub at: String,
    /// Its author.
    pub by: String,
    pub message: String,
    /// The changes of the issue that its message lists; empty if `lines` and `before` have to be compared.
    pub told: Vec<String>,
    /// The issue's lines before it.
    pub before: Vec<String>,
    /// The issue's lines after it, as in the file; empty if it removed them.
    pub lines: Vec<String>,
}

/// Start of the part of a commit message that lists every change of an issue, one per line.
const CHANGES: &str = "\n\nChanges:\n";
/// A commit with more changes does not list them.
const MOST_TOLD: usize = 5_000;

/// A commit message that lists the changes: issues by id, each with its changes.
pub fn told(subject: &str, changes: &[(String, Vec<String>)]) -> String {
    if changes.len() > MOST_TOLD {
        return subject.to_owned();
    }
    let mut text = format!("{subject}{CHANGES}");
    for (id, changes) in changes {
        for change in changes {
            text.push_str(&format!("{id} {}\n", change.replace(char::is_control, " ")));
        }
    }
    text
}

/// The changes of an issue that a message lists; none if it does not list changes.
fn changes_told(message: &str, id: &str) -> Option<Vec<String>> {
    let (_, list) = message.split_once(CHANGES.trim_end_matches('\n'))?;
    let of_it = |line: &str| line.strip_prefix(id)?.strip_prefix(' ').map(str::to_owned);
    Some(list.lines().filter_map(of_it).collect())
}

/// Revision, time and author of a commit, and the rest of the text.
fn head_of(text: &str) -> Option<(Changed, String)> {
    let mut words = text.splitn(4, '\u{1f}').map(str::to_owned);
    let (revision, at, by) = (words.next()?, words.next()?, words.next()?);
    Some((Changed { revision, at, by, ..Changed::default() }, words.next()?))
}

impl History {
    /// The history of a ledger beside a repository.
    pub fn of_branch(checkout: &Checkout) -> Result<Self, ExchangeError> {
        let own = LedgerRepository::path(&checkout.state_dir());
        let way = match own.is_dir() {
            true => HistoryWay::Git { git: Git::of(&own)?, tip: LEDGER_REF.to_owned(), own: Some(own) },
            false => HistoryWay::None,
        };
        Ok(Self { way, prefix: String::new() })
    }

    /// The history of a ledger in a directory of its own; `parts` as in [`super::of_directory`].
    pub fn of_own_dir(dir: &Path, parts: bool) -> Result<Self, ExchangeError> {
        if let Some(checkout) = crate::find(dir)?.filter(|found| matches!(found.vcs, Vcs::Git | Vcs::Jj)) {
            let site = Site::new(checkout, dir)?;
            if owned::shared_with(&site, parts)?.is_none() {
                let prefix = prefix_on_branch(&site, parts);
                return Ok(Self { prefix, ..Self::of_branch(&site.checkout)? });
            }
        }
        Self::of_dir(dir)
    }

    /// The history of a ledger in a directory, under any version control.
    pub fn of_dir(dir: &Path) -> Result<Self, ExchangeError> {
        let Some(checkout) = crate::find(dir)? else {
            return Ok(Self { way: HistoryWay::None, prefix: String::new() });
        };
        let site = Site::new(checkout, dir)?;
        let way = match (git_dir(&site.checkout), site.checkout.vcs) {
            (Some(_), Vcs::Git) => HistoryWay::Git {
                git: Git::inside(&site.checkout.common_dir, &site.checkout.root)?,
                tip: "HEAD".into(),
                own: None,
            },
            (Some(git_dir), _) => {
                let head = crate::command::Run::jj(&site.checkout.root)?
                    .args(["log", "--no-graph", "-r", "@", "-T", "commit_id"])
                    .text()?;
                HistoryWay::Git { git: Git::of(&git_dir)?, tip: head, own: None }
            }
            (None, vcs @ (Vcs::Hg | Vcs::Sl)) => HistoryWay::Hg(Hg::here(vcs, &site.checkout.root)),
            (None, _) => HistoryWay::None,
        };
        Ok(Self { way, prefix: site.prefix })
    }

    /// Commits that changed an issue, newest first.
    pub fn of_issue(&self, id: &str, limit: usize) -> Result<Vec<Changed>, ExchangeError> {
        let sign = format!("\"id\":{}", quoted(id));
        match &self.way {
            HistoryWay::Git { git, tip, own: Some(git_dir) } => match refs::resolve(git, git_dir, tip)? {
                Some(tip) => self.of_issue_told(git, &tip, id, limit),
                None => Ok(Vec::new()),
            },
            HistoryWay::Git { git, tip, own: None } => {
                if git.run(["rev-parse", "--verify", "--quiet", &format!("{tip}^{{commit}}")])?.maybe()?.is_none() {
                    return Ok(Vec::new());
                }
                let walk = [format!("--max-count={limit}"), tip.clone()];
                self.of_issue_git(git, &walk, &[], &sign)
            }
            HistoryWay::Hg(hg) => self.of_issue_hg(hg, &sign, limit),
            HistoryWay::None => Ok(Vec::new()),
        }
    }

    /// Reads messages. For commits made by hand the content is compared.
    fn of_issue_told(&self, git: &Git, tip: &str, id: &str, limit: usize) -> Result<Vec<Changed>, ExchangeError> {
        let run = git.run(["log", "--first-parent", "--format=%x00%H%x1f%cI%x1f%an%x1f%B", tip, "--"])?;
        let said = String::from_utf8_lossy(&run.ok()?).into_owned();
        let (mut found, mut untold, mut order) = (Vec::new(), Vec::new(), Vec::new());
        for text in said.split('\0').skip(1) {
            let Some((mut changed, message)) = head_of(text) else { continue };
            order.push(changed.revision.clone());
            match changes_told(&message, id) {
                Some(changes) if changes.is_empty() => {}
                Some(changes) if found.len() < limit => {
                    changed.message = message.lines().next().unwrap_or_default().to_owned();
                    changed.told = changes;
                    found.push(changed);
                }
                Some(_) => break,
                None if untold.len() < COMMITS => untold.push(changed.revision),
                None => {}
            }
        }
        if !untold.is_empty() {
            let walk = ["--no-walk=unsorted".to_owned(), "--stdin".to_owned()];
            let sign = format!("\"id\":{}", quoted(id));
            found.extend(self.of_issue_git(git, &walk, &untold, &sign)?);
            let place = |changed: &Changed| order.iter().position(|revision| *revision == changed.revision);
            found.sort_by_key(place);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Compares the content of commits: those that `walk` covers, or that are listed.
    fn of_issue_git(
        &self,
        git: &Git,
        walk: &[String],
        listed: &[String],
        sign: &str,
    ) -> Result<Vec<Changed>, ExchangeError> {
        let pattern: String =
            sign.chars().flat_map(|c| if c.is_ascii_alphanumeric() { vec![c] } else { vec!['[', c, ']'] }).collect();
        let paths = [format!("{}{ISSUES}", self.prefix), format!("{}{}", self.prefix, super::ARCHIVE)];
        let run = git
            .run(["-c", "log.showRoot=true", "log", "--no-ext-diff", "--no-textconv", "-p", "-U0"])?
            .args(["--diff-merges=first-parent", "--format=%x00%H%x1f%cI%x1f%an%x1f%s", &format!("-G{pattern}")])
            .args(walk)
            .arg("--")
            .args(&paths);
        let said = match listed.is_empty() {
            true => run.ok()?,
            false => run.ok_fed(|to| listed.iter().try_for_each(|revision| writeln!(to, "{revision}")))?,
        };
        let said = String::from_utf8_lossy(&said).into_owned();
        let commit = |text: &str| -> Option<Changed> {
            let (head, diff) = text.split_once('\n').unwrap_or((text, ""));
            let (mut changed, message) = head_of(head)?;
            changed.message = message;
            for line in diff.lines().filter(|line| line.contains(sign)) {
                match line.split_at_checked(1) {
                    Some(("+", line)) => changed.lines.push(line.to_owned()),
                    Some(("-", line)) => changed.before.push(line.to_owned()),
                    _ => {}
                }
            }
            Some(changed)
        };
        Ok(said.split('\0').skip(1).filter_map(commit).collect())
    }

    fn of_issue_hg(&self, hg: &Hg, sign: &str, limit: usize) -> Result<Vec<Changed>, ExchangeError> {
        let path = format!("path:{}{ISSUES}", self.prefix);
        let format = "{node}\\x1f{date|rfc3339date}\\x1f{author|user}\\x1f{desc|firstline}\\n";
        let most = COMMITS.to_string();
        let said = hg.run(["log", "-l", &most, "-T", format, &path])?.maybe()?.unwrap_or_default();
        let lines_at = |revision: &str| -> Result<Vec<String>, RunError> {
            let text = hg.run(["cat", "-r", revision, &path])?.maybe()?.unwrap_or_default();
            Ok(text.lines().filter(|line| line.contains(sign)).map(str::to_owned).collect())
        };
        // Each commit is compared with the one before it; the oldest with nothing.
        let mut found: Vec<Changed> = Vec::new();
        let mut older: Option<(Changed, Vec<String>)> = None;
        for head in said.lines().collect::<Vec<_>>().into_iter().rev() {
            let mut words = head.split('\u{1f}').map(str::to_owned);
            let (Some(revision), Some(at), Some(by), Some(message)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let lines = lines_at(&revision)?;
            let before = older.take().map(|(_, lines)| lines).unwrap_or_default();
            let told = Vec::new();
            let changed = Changed { revision, at, by, message, told, before: before.clone(), lines: lines.clone() };
            if lines != before {
                found.push(changed.clone());
            }
            older = Some((changed, lines));
        }
        found.reverse();
        found.truncate(limit);
        Ok(found)
    }

    /// The ledger's files at a revision, or at a time (`2026-11-15T12:00:00Z`), with the revision's hash. For a
    /// revision of the project itself, its time is used.
    pub fn at(&self, when: &str) -> Result<Option<(String, Files)>, ExchangeError> {
        // Not a revision: git takes it for the negation of one.
        if when.starts_with('^') {
            return Ok(None);
        }
        let when = &moment(when);
        match &self.way {
            HistoryWay::Git { git, tip, .. } => {
                let named = git
                    .run(["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{when}^{{commit}}")])?
                    .maybe()?;
                let moment = match &named {
                    Some(named) => {
                        let files = content::at(git, named, &self.prefix)?;
                        if !files.is_empty() {
                            return Ok(Some((named.clone(), files)));
                        }
                        git.run(["show", "--no-patch", "--format=%cI", named])?.text()?
                    }
                    None if is_moment(when) => when.to_owned(),
                    None => return Ok(None),
                };
                let before = git.run(["rev-list", "-1", &format!("--before={moment}"), tip, "--"])?.maybe()?;
                match before {
                    Some(commit) => Ok(Some((commit.clone(), content::at(git, &commit, &self.prefix)?))),
                    None => Ok(None),
                }
            }
            HistoryWay::Hg(hg) => {
                let plain =
                    when.chars().all(|c| c.is_ascii_alphanumeric() || "-._:+/".contains(c)) && !when.starts_with('-');
                let which = match is_moment(when) {
                    true => format!("last(date('<{}') and ::.)", when.replace('T', " ").replace('Z', " +0000")),
                    false => when.to_owned(),
                };
                if !plain {
                    return Ok(None);
                }
                match hg.run(["log", "-r", &which, "-T", "{node}"])?.maybe()? {
                    Some(node) => Ok(Some((node.clone(), hg.at(&node, &self.prefix)?))),
                    None => Ok(None),
                }
            }
            HistoryWay::None => Ok(None),
        }
    }
}

/// Whether a text starts like a date.
fn is_moment(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-' && bytes[7] == b'-'
}

/// A date includes the whole day; a time without a zone is in UTC.
fn moment(text: &str) -> String {
    let text = text.replacen(' ', "T", 1);
    match is_moment(&text) {
        true if text.len() == 10 => format!("{text}T23:59:59Z"),
        true if !text.ends_with('Z') && !text[10..].contains(['+', '-']) => format!("{text}Z"),
        _ => text,
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// The commits to check before they are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// Commits that no remote has.
    Unpublished,
    /// A range in the syntax of the program.
    Named(String),
    /// The commits of a push: this commit, without those that the remote has.
    Pushing {
        commit: String,
        remote: String,
        /// The remote's current commit of the ref, if any.
        there: Option<String>,
    },
}

/// A line that a commit adds or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The commit.
    pub revision: String,
    /// The file.
    pub path: String,
    pub line: String,
    /// It is added; otherwise it is removed.
    pub added: bool,
}

/// Every matching line that commits of a range add or remove, in files or in their messages. Lines that a merge takes
/// from either side are not counted for it. `upstream` is a remote whose commits are public.
pub fn outgoing(
    checkout: &Checkout,
    range: &Range,
    upstream: Option<&str>,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Outgoing>, ExchangeError> {
    let said = match (git_dir(checkout), checkout.vcs) {
        (Some(git_dir), vcs) => {
            let git = if vcs == Vcs::Git { Git::inside(&git_dir, &checkout.root)? } else { Git::of(&git_dir)? };
            let run =
                git.run(["log", "--no-ext-diff", "--no-textconv", "--text", "-p", "-U0", "--cc", "--no-color"])?;
            let run = run.args(["--format=%x00%H%n%B%x01", "--src-prefix=a/", "--dst-prefix=b/"]);
            let known = ["--glob=refs/toft/upstream"];
            let run = match range {
                Range::Unpublished => {
                    let head = match vcs {
                        Vcs::Git => "HEAD".to_owned(),
                        Vcs::Jj | Vcs::Hg | Vcs::Sl | Vcs::None => crate::command::Run::jj(&checkout.root)?
                            .args(["log", "--no-graph", "-r", "@", "-T", "commit_id"])
                            .text()?,
                    };
                    if git.run(["rev-parse", "--verify", "--quiet", &format!("{head}^{{commit}}")])?.maybe()?.is_none()
                    {
                        return Ok(Vec::new());
                    }
                    run.args([head.as_str(), "--not", "--remotes"]).args(known)
                }
                Range::Named(range) => run.args(["--end-of-options", range]),
                Range::Pushing { commit, remote, there } => {
                    let mut run = run.args([commit.as_str(), "--not", &format!("--remotes={remote}")]).args(known);
                    run = run.args(upstream.map(|upstream| format!("--remotes={upstream}")));
                    if let Some(there) = there
                        && git.run(["cat-file", "-e", there])?.end()?.code == 0
                    {
                        run = run.arg(there);
                    }
                    run
                }
            };
            run.arg("--").ok()?
        }
        (None, vcs @ (Vcs::Hg | Vcs::Sl)) => {
            let which = match range {
                Range::Named(range) => range.clone(),
                Range::Pushing { commit, .. } => format!("draft() and ::{commit}"),
                Range::Unpublished => "draft() and ::.".to_owned(),
            };
            let hg = Hg::here(vcs, &checkout.root);
            // Only `export` prints binary files as text. It fails without any commits.
            if hg.run(["log", "-r", &which, "-T", "x"])?.text()?.is_empty() {
                return Ok(Vec::new());
            }
            let format = "\\0{node}\\n{desc}\\x01\\n{diff}\\n";
            hg.run(["export", "--git", "--text", "-r", &which, "-T", format])?.ok()?
        }
        (None, _) => return Ok(Vec::new()),
    };
    let text = String::from_utf8_lossy(&said);
    let mut found = Vec::new();
    // A file may contain this byte too; the rest is then parsed as a commit without a name, and still checked.
    for commit in text.split('\0') {
        read_commit(commit, &wanted, &mut found);
    }
    Ok(found)
}

/// The lines of one commit: its message, then its changes.
fn read_commit(commit: &str, wanted: &impl Fn(&str) -> bool, found: &mut Vec<Outgoing>) {
    let (head, diff) = commit.split_once('\u{1}').unwrap_or(("", commit));
    let mut message = head.lines();
    let revision = message.next().unwrap_or_default().to_owned();
    let mut take = |path: &str, line: &str, added: bool| {
        if wanted(line) {
            found.push(Outgoing { revision: revision.clone(), path: path.to_owned(), line: line.to_owned(), added });
        }
    };
    message.for_each(|line| take("the commit's message", line, true));
    let (mut path, mut parents) = (String::new(), 0);
    for line in diff.lines() {
        if line.starts_with("diff ") {
            parents = 0;
        } else if line.starts_with("@@") {
            // The diff of a merge has a column for each parent.
            parents = line.bytes().take_while(|byte| *byte == b'@').count() - 1;
        } else if parents == 0 {
            let name = line.strip_prefix("+++ b/").or_else(|| line.strip_prefix("--- a/"));
            match name {
                Some(name) => path = name.to_owned(),
                // A line that is not part of a header is checked too.
                None => take(&path, line.trim_start_matches('+'), true),
            }
        } else if let Some((signs, line)) = line.split_at_checked(parents) {
            for (sign, added) in [('+', true), ('-', false)] {
                if signs.chars().all(|known| known == sign) {
                    take(&path, line, added);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_changed_of_an_issue() {
        let changes = [
            ("ab-1".to_owned(), vec!["title: one\ntwo".to_owned(), "priority: 1".to_owned()]),
            ("ab-12".to_owned(), vec!["created".to_owned()]),
        ];
        let message = told("toft: 2 issues", &changes);
        assert_eq!(changes_told(&message, "ab-1").unwrap(), ["title: one two", "priority: 1"]);
        assert_eq!(changes_told(&message, "ab-12").unwrap(), ["created"]);
        assert!(changes_told(&message, "ab-2").unwrap().is_empty());
        assert_eq!(changes_told("toft: merge", "ab-1"), None);
        let nothing = told("toft: merge", &[]);
        assert!(changes_told(nothing.trim_end(), "ab-1").unwrap().is_empty(), "as git keeps it");
    }
}
