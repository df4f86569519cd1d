//! Removes lines from the whole history of a ledger under git: every commit that contains them is rewritten.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
};

use super::{ExchangeError, content, refs};
use crate::git_run::Git;

/// The temporary ref of the new history.
const BUILT: &str = "refs/toft/purging";
/// Maximum number of commits in a rewritten history; older ones are dropped.
const COMMITS: usize = 5_000;

/// A rewritten history.
pub(super) struct Rewritten {
    /// The newest commit.
    pub(super) tip: String,
    /// Number of commits with different content.
    pub(super) commits: usize,
}

struct CommitText {
    name: String,
    tree: String,
    parents: Vec<String>,
    author: String,
    committer: String,
    message: String,
}

/// Rewrites the history of `tip` without the lines that `keep` rejects, in a ledger's files below `prefix`. A commit
/// message that `keep` rejects is replaced. Commits before the first such line are unchanged.
pub(super) fn without(
    git: &Git,
    git_dir: &Path,
    tip: &str,
    prefix: &str,
    keep: &dyn Fn(&[u8]) -> bool,
) -> Result<Rewritten, ExchangeError> {
    let commits = commits(git, tip)?;
    let mut marks: HashMap<&str, usize> = HashMap::new();
    let mut changed = 0;
    let cut = commits.len() >= COMMITS;
    let known: HashSet<&str> = commits.iter().map(|commit| commit.name.as_str()).collect();
    git.run(["fast-import", "--quiet", "--force", "--done"])?.ok_fed(|to| {
        for commit in &commits {
            let files = content::at(git, &commit.name, prefix).map_err(io::Error::other)?;
            let wanted = |line: &&[u8]| keep(line.strip_suffix(b"\n").unwrap_or(line));
            let fewer = |bytes: &[u8]| -> Vec<u8> {
                bytes.split_inclusive(|byte| *byte == b'\n').filter(wanted).flatten().copied().collect()
            };
            let new: Vec<(String, Vec<u8>)> = files
                .into_iter()
                .map(|(name, bytes)| (name, fewer(&bytes), bytes.len()))
                .filter(|(_, new, before)| new.len() != *before)
                .map(|(name, new, _)| (name, new))
                .collect();
            let told = !keep(commit.message.as_bytes());
            let message = if told { "toft: issues" } else { commit.message.as_str() };
            let follows = commit.parents.iter().any(|parent| marks.contains_key(parent.as_str()));
            // If the history was cut off, its oldest commits become root commits.
            let parents: Vec<&String> =
                commit.parents.iter().filter(|parent| !cut || known.contains(parent.as_str())).collect();
            if new.is_empty() && !told && !follows && parents.len() == commit.parents.len() {
                continue;
            }
            changed += usize::from(!new.is_empty() || told);
            let mark = marks.len() + 1;
            marks.insert(&commit.name, mark);
            if parents.is_empty() {
                writeln!(to, "reset {BUILT}\n")?;
            }
            let (author, committer) = (&commit.author, &commit.committer);
            writeln!(to, "commit {BUILT}\nmark :{mark}\nauthor {author}\ncommitter {committer}")?;
            writeln!(to, "data {}\n{message}", message.len())?;
            for (n, parent) in parents.iter().enumerate() {
                let word = if n == 0 { "from" } else { "merge" };
                match marks.get(parent.as_str()) {
                    Some(mark) => writeln!(to, "{word} :{mark}")?,
                    None => writeln!(to, "{word} {parent}")?,
                }
            }
            writeln!(to, "M 040000 {} \"\"", commit.tree)?;
            for (name, bytes) in new {
                writeln!(to, "M 100644 inline {prefix}{name}\ndata {}", bytes.len())?;
                to.write_all(&bytes)?;
                writeln!(to)?;
            }
        }
        writeln!(to, "done")
    })?;
    let built = match marks.contains_key(tip) {
        true => refs::resolve(git, git_dir, BUILT)?,
        false => None,
    };
    if !marks.is_empty() {
        git.run(["update-ref", "-d", BUILT])?.ok()?;
    }
    Ok(Rewritten { tip: built.unwrap_or_else(|| tip.to_owned()), commits: changed })
}

/// Commits of a history, parents first.
fn commits(git: &Git, tip: &str) -> Result<Vec<CommitText>, ExchangeError> {
    let format = "--format=%H%x1f%T%x1f%P%x1f%an <%ae> %ad%x1f%cn <%ce> %cd%x1f%B%x00";
    let most = format!("--max-count={COMMITS}");
    let said = git.run(["log", "--topo-order", "--date=raw", &most, format, tip, "--"])?.ok()?;
    let said = String::from_utf8_lossy(&said);
    let read = |text: &str| -> Option<CommitText> {
        let mut words = text.trim_start_matches('\n').splitn(6, '\u{1f}').map(str::to_owned);
        Some(CommitText {
            name: words.next().filter(|name| !name.is_empty())?,
            tree: words.next()?,
            parents: words.next()?.split_whitespace().map(str::to_owned).collect(),
            author: words.next()?,
            committer: words.next()?,
            message: words.next()?.trim_end().to_owned(),
        })
    };
    let mut commits: Vec<CommitText> = said.split('\0').filter_map(read).collect();
    commits.reverse();
    Ok(commits)
}
