//! A ledger in a git repository of its own. Only its files are committed, on top of the remote's newest commit; a
//! commit of the user is never sent.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    Contact, Exchange, ExchangeError, Fetched, Files, Sent, Site, content, git_dir, owned, owned::of_a_ledger, refs,
    rewrite, unsent,
};
use crate::{RunError, command::Run, git_run::Git};

/// The exchange of a ledger's own repository.
pub(super) struct OwnGit {
    git: Git,
    git_dir: PathBuf,
    site: Site,
    branch: Option<String>,
    remote: Option<(String, refs::RemoteGit)>,
    /// Our newest commit; that of HEAD, unless history was rewritten since.
    here: Option<String>,
    head: Option<String>,
    theirs: Option<String>,
    /// The remote was fetched, so `theirs` is its current state.
    asked: bool,
    /// The commit that the remote must still have when its history is replaced.
    replaces: Option<String>,
}

/// Prefix of our commit messages.
pub(super) const OURS: &str = "toft: ";
/// Prefix of our index files in a git directory; the process id follows.
const INDEX: &str = "toft-index.";
/// An index file without writes for this long was left by a killed process.
const ABANDONED: Duration = Duration::from_secs(3_600);

impl OwnGit {
    pub(super) fn open(site: Site, reach: Contact<'_>) -> Result<Self, ExchangeError> {
        let git = Git::inside(&site.checkout.common_dir, &site.checkout.root)?;
        let git_dir = git_dir(&site.checkout).unwrap_or_default();
        let remote = match refs::choose(&git_dir, reach.remote)? {
            Some((name, url)) => Some((name, refs::remote_git(&git_dir, &url, reach.patience)?)),
            None => None,
        };
        let branch = git.run(["symbolic-ref", "--quiet", "--short", "HEAD"])?.maybe()?;
        let here = git.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.maybe()?;
        let mut own = Self {
            git,
            git_dir,
            site,
            branch,
            remote,
            head: here.clone(),
            here,
            theirs: None,
            asked: false,
            replaces: None,
        };
        own.theirs = own.known()?;
        Ok(own)
    }

    fn tracking(&self) -> Option<String> {
        let (remote, branch) = (&self.remote.as_ref()?.0, self.branch.as_ref()?);
        Some(format!("refs/toft/remotes/{remote}/{branch}"))
    }

    fn known(&self) -> Result<Option<String>, RunError> {
        match self.tracking() {
            Some(name) => refs::resolve(&self.git, &self.git_dir, &name),
            None => Ok(None),
        }
    }

    /// The merged tree of both sides, except for the ledger's files.
    fn merged(&self) -> Result<String, ExchangeError> {
        let tree = |commit: &str| -> Result<String, ExchangeError> {
            Ok(self.git.run(["rev-parse", "--verify", &format!("{commit}^{{tree}}")])?.text()?)
        };
        match (&self.here, &self.theirs) {
            (None, None) => Ok(self.git.run(["mktree"])?.ok_fed(|_| Ok(())).map(|said| text(&said))?),
            (Some(one), None) | (None, Some(one)) => tree(one),
            (Some(here), Some(theirs)) if refs::ancestor(&self.git, theirs, here)? => tree(here),
            (Some(here), Some(theirs)) if refs::ancestor(&self.git, here, theirs)? => tree(theirs),
            (Some(here), Some(theirs)) => {
                let run = self.git.run([
                    "merge-tree",
                    "--write-tree",
                    "--name-only",
                    "--no-messages",
                    "--allow-unrelated-histories",
                    "-z",
                    here,
                    theirs,
                ])?;
                let ended = run.end()?;
                let mut words =
                    ended.out.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
                let tree = words.next().unwrap_or_default();
                if !(0..=1).contains(&ended.code) {
                    ended.ok("git merge-tree".into())?;
                    return Ok(tree);
                }
                let (mut tree, mut entries) = (tree, Vec::new());
                for path in words.filter(|path| !path.is_empty()) {
                    if path.strip_prefix(&self.site.prefix).is_some_and(super::belongs) {
                        continue;
                    }
                    if !of_a_ledger(&path) {
                        return Err(in_the_way(&self.site, &path));
                    }
                    entries.push(format!("100644 {}\t{path}", self.both(here, theirs, &path)?));
                }
                if !entries.is_empty() {
                    tree = with_entries(&self.git, &self.git_dir, &tree, &entries)?;
                }
                Ok(tree)
            }
        }
    }

    /// A file of another ledger in the same repository: all lines of both sides, which its reader merges.
    fn both(&self, here: &str, theirs: &str, path: &str) -> Result<String, ExchangeError> {
        let mut lines = BTreeSet::new();
        for side in [here, theirs] {
            let ended = self.git.run(["cat-file", "blob", &format!("{side}:{path}")])?.end()?;
            let text = ended.out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines.extend(text.map(<[u8]>::to_vec));
        }
        let run = self.git.run(["hash-object", "-w", "--no-filters", "--stdin"])?;
        let blob =
            run.ok_fed(|to| lines.iter().try_for_each(|line| to.write_all(line).and_then(|()| to.write_all(b"\n"))))?;
        Ok(text(&blob))
    }

    /// A tree with our files instead of the ledger in `tree`.
    fn with_ours(&self, tree: &str, files: &Files) -> Result<(String, Vec<String>), ExchangeError> {
        with_files(&self.git, &self.git_dir, tree, &self.site.prefix, files)
    }

    /// Entries of other ledgers in the same repository that differ between two trees, as both have them. Local files
    /// are written under the lock of their own ledger; a sync of that ledger updates them.
    fn others(&self, from: &str, to: &str) -> Result<(Vec<String>, Vec<String>), ExchangeError> {
        let said = self.git.run(["diff-tree", "-r", "-z", "--no-renames", from, to])?.ok()?;
        let mut words = said.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let (mut before, mut after) = (Vec::new(), Vec::new());
        while let (Some(facts), Some(path)) = (words.next(), words.next()) {
            // :mode mode oid oid letter
            let facts: Vec<&str> = facts.trim_start_matches(':').split(' ').collect();
            if let [old_mode, new_mode, old, new, _] = facts.as_slice()
                && of_a_ledger(&path)
                && !path.strip_prefix(&self.site.prefix).is_some_and(super::belongs)
                && self.site.checkout.root.join(&path).exists()
            {
                before.push(format!("{} {old}\t{path}", mode_of(old_mode)));
                after.push(format!("{} {new}\t{path}", mode_of(new_mode)));
            }
        }
        Ok((before, after))
    }

    /// Updates the checkout from one tree to another; ledger files are already up to date.
    fn follow(&self, entries: &[String], from: &str, to: &str) -> Result<(), ExchangeError> {
        stage(&self.git, entries)?;
        let (before, after) = self.others(from, to)?;
        let to = &match before.is_empty() {
            true => to.to_owned(),
            false => with_entries(&self.git, &self.git_dir, to, &before)?,
        };
        if from != to {
            self.git
                .run(["read-tree", "-m", "-u", from, to])?
                .ok()
                .map_err(|error| ExchangeError::Conflict(format!("{}: {error}", self.site.checkout.root.display())))?;
        }
        if !after.is_empty() {
            stage(&self.git, &after)?;
        }
        Ok(())
    }
}

/// Refuses to commit while an operation of the user is in progress.
pub(super) fn refuse_busy(git_dir: &Path) -> Result<(), ExchangeError> {
    let signs = ["rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"];
    match signs.iter().any(|sign| git_dir.join(sign).exists()) {
        true => {
            let dir = git_dir.display();
            Err(ExchangeError::Conflict(format!(
                "a rebase, a merge or the like is in progress in {dir}; end it, then sync again"
            )))
        }
        false => Ok(()),
    }
}

fn in_the_way(site: &Site, path: &str) -> ExchangeError {
    let root = site.checkout.root.display();
    ExchangeError::Conflict(format!(
        "{path} in {root} was changed on both sides; merge it there by hand, then sync again"
    ))
}

fn text(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim_end().to_owned()
}

/// Adds exactly these entries to the index.
pub(super) fn stage(git: &Git, entries: &[String]) -> Result<(), RunError> {
    let run = git.run(["update-index", "--add", "-z", "--index-info"])?;
    run.ok_fed(|to| entries.iter().try_for_each(|entry| write!(to, "{entry}\0"))).map(drop)
}

/// A tree with `files` below `prefix`, and no other ledger file there; and the entries that differ, for an index.
pub(super) fn with_files(
    git: &Git,
    git_dir: &Path,
    tree: &str,
    prefix: &str,
    files: &Files,
) -> Result<(String, Vec<String>), ExchangeError> {
    let mut entries = Vec::new();
    for (name, bytes) in files {
        let oid = git.run(["hash-object", "-w", "--no-filters", "--stdin"])?.ok_fed(|to| to.write_all(bytes))?;
        entries.push(format!("100644 {}\t{prefix}{name}", text(&oid)));
    }
    for name in content::at(git, tree, prefix)?.keys().filter(|name| !files.contains_key(*name)) {
        entries.push(format!("0 {}\t{prefix}{name}", "0".repeat(40)));
    }
    Ok((with_entries(git, git_dir, tree, &entries)?, entries))
}

/// A tree with these entries replaced.
fn with_entries(git: &Git, git_dir: &Path, tree: &str, entries: &[String]) -> Result<String, RunError> {
    remove_old_indexes(git_dir);
    let index = git_dir.join(format!("{INDEX}{}", std::process::id()));
    let built = (|| {
        let with = |args: &[&str]| Ok::<_, RunError>(git.run(args)?.env("GIT_INDEX_FILE", &index));
        with(&["read-tree", tree])?.ok()?;
        let put = with(&["update-index", "--add", "-z", "--index-info"])?;
        put.ok_fed(|to| entries.iter().try_for_each(|entry| write!(to, "{entry}\0")))?;
        with(&["write-tree"])?.text()
    })();
    // It is this process's own file; the next run creates a new one.
    let _ = std::fs::remove_file(&index);
    built
}

/// Removes index files of killed processes.
fn remove_old_indexes(git_dir: &Path) {
    for entry in std::fs::read_dir(git_dir).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(INDEX);
        let since = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if ours && since().is_some_and(|since| since > ABANDONED) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The mode for an index entry, with the one for a missing file.
fn mode_of(mode: &str) -> &str {
    if mode == "000000" { "0" } else { mode }
}

impl Exchange for OwnGit {
    fn remote(&self) -> Option<&str> {
        self.remote.as_ref().map(|(name, _)| name.as_str())
    }

    fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let (Some((remote, git)), Some(branch), Some(tracking)) = (&self.remote, &self.branch, self.tracking()) else {
            return Ok(Fetched::default());
        };
        let refs = format!("+refs/heads/{branch}:{tracking}");
        // The remote may not have the branch yet.
        let there = git.fetch(remote, &[&refs], &["--no-filter"])?;
        self.asked = true;
        if !there {
            self.theirs = None;
            return Ok(Fetched::default());
        }
        let before = self.theirs.take();
        self.theirs = self.known()?;
        if let Some(theirs) = &self.theirs
            && let Some(path) = owned::foreign(owned::paths(&self.git, theirs)?.iter().map(String::as_str))
        {
            let said = format!("branch `{branch}` of {remote} holds other files ({path}); no ledger is written there");
            return Err(ExchangeError::Conflict(said));
        }
        let rewritten = match (&before, &self.theirs) {
            (Some(before), Some(now)) => !refs::ancestor(&self.git, before, now)?,
            _ => false,
        };
        Ok(Fetched { tip: self.theirs.clone(), rewritten })
    }

    fn theirs(&mut self) -> Result<Files, ExchangeError> {
        match &self.theirs {
            Some(commit) => Ok(content::at(&self.git, commit, &self.site.prefix)?),
            None => Ok(Files::new()),
        }
    }

    fn record(&mut self, message: &str) -> Result<bool, ExchangeError> {
        let files = self.site.files()?;
        if files.is_empty() && self.theirs.is_none() {
            return Ok(false);
        }
        if self.branch.is_none() {
            let root = self.site.checkout.root.display();
            return Err(ExchangeError::Conflict(format!("{root} is on no branch; switch to one, then sync again")));
        }
        refuse_busy(&self.git_dir)?;
        let (tree, _) = self.with_ours(&self.merged()?, &files)?;
        let of = |commit: &Option<String>| -> Result<Option<String>, ExchangeError> {
            match commit {
                Some(commit) => Ok(Some(self.git.run(["rev-parse", &format!("{commit}^{{tree}}")])?.text()?)),
                None => Ok(None),
            }
        };
        let ours = of(&self.here)?;
        // Build on the remote's commit, so that commits that were never sent are left out and only the current content
        // is published.
        let base = if self.asked { self.theirs.clone() } else { self.here.clone().or_else(|| self.theirs.clone()) };
        let new = match &base {
            Some(base) if of(&Some(base.clone()))?.as_ref() == Some(&tree) => {
                if self.here.as_ref() == Some(base) {
                    return Ok(false);
                }
                base.clone()
            }
            _ => {
                // A commit that was recorded but not accepted yet is sent again unchanged.
                if let Some(here) = self.here.as_ref().filter(|_| self.here != base && ours.as_ref() == Some(&tree))
                    && self.git.run(["rev-parse", "--verify", "--quiet", &format!("{here}^")])?.maybe()? == base
                {
                    return Ok(false);
                }
                let mut commit = self.git.run(["commit-tree", "-m", message, &tree])?;
                if let Some(parent) = &base {
                    commit = commit.args(["-p", parent]);
                }
                named(&self.git, commit)?.text()?
            }
        };
        // The tree of our checkout with the current ledger files, from which it is updated.
        let empty = self.git.run(["mktree"])?.ok_fed(|_| Ok(())).map(|said| text(&said))?;
        let (from, entries) = self.with_ours(ours.as_deref().unwrap_or(&empty), &files)?;
        self.follow(&entries, &from, &tree)?;
        let mut update = vec!["update-ref", "-m", "toft sync", "HEAD", new.as_str()];
        update.extend(self.head.as_deref());
        self.git.run(update)?.ok()?;
        (self.here, self.head) = (Some(new.clone()), Some(new));
        Ok(true)
    }

    fn send(&mut self) -> Result<Sent, ExchangeError> {
        let (Some((remote, git)), Some(here), Some(branch)) = (&self.remote, &self.here, &self.branch) else {
            return Ok(Sent::Same);
        };
        if self.theirs.as_ref() == Some(here) {
            return Ok(Sent::Same);
        }
        let there = format!("refs/heads/{branch}");
        let what = format!("{here}:{there}");
        let sent = match &self.replaces {
            Some(was) => git.replace(remote, &what, &there, was),
            None => git.push(remote, &what),
        };
        match sent {
            Ok(()) => {
                if let Some(tracking) = self.tracking() {
                    self.git.run(["update-ref", &tracking, here])?.ok()?;
                }
                self.theirs = Some(here.clone());
                self.replaces = None;
                Ok(Sent::Done)
            }
            Err(error) => unsent(error, remote),
        }
    }

    fn seen(&self) -> Option<&str> {
        self.theirs.as_deref()
    }

    fn foreign_commits(&mut self) -> Result<Vec<String>, ExchangeError> {
        let Some(here) = &self.here else { return Ok(Vec::new()) };
        let mut run = self.git.run(["log", "--format=%h %s", "--invert-grep", &format!("--grep=^{OURS}"), here])?;
        if let Some(theirs) = &self.theirs {
            run = run.arg(format!("^{theirs}"));
        }
        Ok(run.arg("--").text()?.lines().map(str::to_owned).collect())
    }

    fn purge(&mut self, keep: &dyn Fn(&[u8]) -> bool) -> Result<usize, ExchangeError> {
        let base = if self.asked { self.theirs.clone() } else { self.here.clone() };
        let Some(base) = base else { return Ok(0) };
        let rewritten = rewrite::without(&self.git, &self.git_dir, &base, &self.site.prefix, keep)?;
        if self.asked {
            self.replaces = self.theirs.replace(rewritten.tip);
        } else {
            self.here = Some(rewritten.tip);
        }
        Ok(rewritten.commits)
    }

    fn squashes(&self) -> bool {
        true
    }

    fn unsent_lines(&mut self) -> Result<Vec<String>, ExchangeError> {
        Ok(Vec::new())
    }

    fn also_in(&self, _text: &str) -> Result<Vec<String>, ExchangeError> {
        Ok(Vec::new())
    }

    fn before(&mut self) -> Result<Option<Files>, ExchangeError> {
        Ok(None)
    }

    fn tidy(&self, _memo: &Path) {}

    fn offered(&self) -> Result<Vec<super::Proposal>, ExchangeError> {
        Ok(Vec::new())
    }
}

/// Supplies a name if none is configured in git, so that sync works anyway.
pub(super) fn named(git: &Git, run: Run) -> Result<Run, RunError> {
    if git.run(["var", "GIT_COMMITTER_IDENT"])?.maybe()?.is_some() {
        return Ok(run);
    }
    Ok(anonymous(run))
}

/// A run for a user without a name and an address.
pub(crate) fn anonymous(run: Run) -> Run {
    let run = run.env("GIT_AUTHOR_NAME", "toft").env("GIT_AUTHOR_EMAIL", "toft@localhost");
    run.env("GIT_COMMITTER_NAME", "toft").env("GIT_COMMITTER_EMAIL", "toft@localhost")
}
