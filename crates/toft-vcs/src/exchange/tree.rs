//! A ledger among the user's own files: the remote's copy is fetched and read. Nothing is committed unless the user
//! asks for it.

use std::{fs, path::Path, time::Duration};

use super::{
    Contact, ExchangeError, Fetched, Files, Site,
    author::anonymous,
    content, git_dir,
    hg::{self, Hg},
    refs,
};
use crate::{Checkout, RunError, Vcs, command::Run, git_run::Git};

const ATTRIBUTES: &str = ".gitattributes";
/// Prefix of our index files in a git directory; the process id follows.
const INDEX_FILE_PREFIX: &str = "toft-index.";
/// An index file without writes for this long was left by a killed process.
const ABANDONED_INDEX_AGE: Duration = Duration::from_secs(3_600);

/// A ledger in a working tree.
pub struct Tree {
    site: Site,
    way: TreeWay,
}

enum TreeWay {
    Git { git: Box<Git>, remote: Option<(String, refs::RemoteGit)>, branch: String, theirs: Option<String> },
    Hg { hg: Hg, remote: Option<String>, theirs: Option<String> },
    Nobody,
}

impl Tree {
    /// Opens the ledger in `dir` of a checkout. The remote is the one in `reach`, otherwise the upstream of the current
    /// branch.
    pub fn open(checkout: &Checkout, dir: &Path, reach: Contact<'_>) -> Result<Self, ExchangeError> {
        let site = Site::new(checkout.clone(), dir)?;
        let way = match (git_dir(checkout), checkout.vcs) {
            (Some(git_dir), _) => {
                let git = Box::new(Git::of(&git_dir)?);
                let inside =
                    if checkout.vcs == Vcs::Git { Git::inside(&git_dir, &checkout.root)? } else { Git::of(&git_dir)? };
                let branch = inside.run(["symbolic-ref", "--quiet", "--short", "HEAD"])?.maybe()?;
                let setting = |key: &str| match &branch {
                    Some(branch) => inside.run(["config", "--get", &format!("branch.{branch}.{key}")])?.maybe(),
                    None => Ok(None),
                };
                let follows = if reach.remote.is_some() { None } else { setting("remote")? };
                let branch = match follows {
                    Some(_) => setting("merge")?.unwrap_or_else(|| "HEAD".into()),
                    None => "HEAD".into(),
                };
                let remote = match refs::choose(&git_dir, reach.remote.or(follows.as_deref()))? {
                    Some((name, url)) => Some((name, refs::remote_git(&git_dir, &url, reach.patience)?)),
                    None => None,
                };
                TreeWay::Git { git, remote, branch, theirs: None }
            }
            (None, vcs @ (Vcs::Hg | Vcs::Sl)) => TreeWay::Hg {
                hg: Hg { vcs, root: checkout.root.clone(), patience: reach.patience },
                remote: hg::default_path(&checkout.common_dir)?,
                theirs: None,
            },
            (None, _) => TreeWay::Nobody,
        };
        Ok(Self { site, way })
    }

    /// The name of the remote, if there is one.
    pub fn remote(&self) -> Option<&str> {
        match &self.way {
            TreeWay::Git { remote, .. } => remote.as_ref().map(|(name, _)| name.as_str()),
            TreeWay::Hg { remote, .. } => remote.as_deref(),
            TreeWay::Nobody => None,
        }
    }

    /// Fetches the remote's state.
    pub fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let tip = match &mut self.way {
            TreeWay::Git { git, remote: Some((remote, remote_git)), branch, theirs } => {
                let to = format!("refs/toft/upstream/{remote}");
                *theirs = None;
                // If the remote's HEAD points to no branch, try the usual names.
                for from in [branch.as_str(), "refs/heads/main", "refs/heads/master"] {
                    let refs = format!("+{from}:{to}");
                    if remote_git.fetch(remote, &[&refs], &["--no-filter"])? {
                        *theirs = git.run(["rev-parse", "--verify", "--quiet", &to])?.maybe()?;
                        break;
                    }
                }
                theirs.clone()
            }
            TreeWay::Hg { hg, remote: Some(remote), theirs } => {
                *theirs = hg.newest(&self.site.checkout.common_dir, remote)?;
                if theirs.is_some() {
                    hg.pull(remote)?;
                }
                theirs.clone()
            }
            _ => None,
        };
        Ok(Fetched { tip, rewritten: false })
    }

    /// The remote's files, as fetched.
    pub fn theirs(&self) -> Result<Files, ExchangeError> {
        match &self.way {
            TreeWay::Git { git, theirs: Some(commit), .. } => Ok(content::at(git, commit, &self.site.prefix)?),
            TreeWay::Hg { hg, theirs: Some(revision), .. } => hg.at(revision, &self.site.prefix),
            _ => Ok(Files::new()),
        }
    }

    /// Commits the ledger's files, and nothing else, on the current branch. Returns whether there was anything to
    /// commit.
    pub fn commit(&self, message: &str) -> Result<bool, ExchangeError> {
        let files = self.site.files()?;
        let root = &self.site.checkout.root;
        let paths: Vec<String> = files.keys().map(|name| self.site.path(name)).collect();
        match self.site.checkout.vcs {
            Vcs::Git => self.commit_git(&files, message),
            Vcs::Jj => {
                let names: Vec<String> = paths.iter().map(|path| format!("root-file:\"{path}\"")).collect();
                let changed = Run::jj(root)?.args(["diff", "--summary", "-r", "@"]).args(&names).text()?;
                if !changed.is_empty() {
                    Run::jj(root)?.args(["commit", "-m", message]).args(&names).ok()?;
                }
                Ok(!changed.is_empty())
            }
            vcs @ (Vcs::Hg | Vcs::Sl) => Ok(Hg::here(vcs, root).commit(&paths, message)?),
            Vcs::None => Ok(false),
        }
    }

    fn commit_git(&self, files: &Files, message: &str) -> Result<bool, ExchangeError> {
        let mut files = files.clone();
        // Include the attributes file, which tells git how to merge the ledger.
        let attributes = self.site.dir.join(ATTRIBUTES);
        if let Ok(bytes) = fs::read(&attributes) {
            files.insert(ATTRIBUTES.to_owned(), bytes);
        }
        let files = &files;
        let git = Git::inside(&self.site.checkout.common_dir, &self.site.checkout.root)?;
        let own = git.run(["rev-parse", "--absolute-git-dir"])?.text()?;
        refuse_busy(Path::new(&own))?;
        let here = git.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.maybe()?;
        let tree = match &here {
            Some(here) => format!("{here}^{{tree}}"),
            None => String::from_utf8_lossy(&git.run(["mktree"])?.ok_fed(|_| Ok(()))?).trim().to_owned(),
        };
        let before = git.run(["rev-parse", &tree])?.text()?;
        let (after, entries) = with_files(&git, Path::new(&own), &before, &self.site.prefix, files)?;
        if before == after {
            return Ok(false);
        }
        let mut commit = git.run(["commit-tree", "-m", message, &after])?;
        if let Some(here) = &here {
            commit = commit.args(["-p", here]);
        }
        let commit = named(&git, commit)?.text()?;
        stage(&git, &entries)?;
        let mut update = vec!["update-ref", "-m", "toft sync --commit", "HEAD", commit.as_str()];
        update.extend(here.as_deref());
        git.run(update)?.ok()?;
        Ok(true)
    }
}

/// Whether a commit contains this text in a ledger of the working tree: the newest one of any branch here, or of the
/// remote as last fetched.
pub fn committed(checkout: &Checkout, dir: &Path, text: &str) -> Result<bool, ExchangeError> {
    let site = Site::new(checkout.clone(), dir)?;
    let has =
        |files: &Files| files.values().any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()));
    match (git_dir(checkout), checkout.vcs) {
        (Some(git_dir), vcs) => {
            let git = Git::of(&git_dir)?;
            let known = ["refs/heads/", "refs/remotes/", "refs/toft/upstream/", "refs/stash"];
            let mut commits = git.run(["for-each-ref", "--format=%(objectname)"])?.args(known).text()?;
            let head = match vcs {
                Vcs::Git => Git::inside(&git_dir, &checkout.root)?
                    .run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?
                    .maybe()?,
                Vcs::Jj | Vcs::Hg | Vcs::Sl | Vcs::None => Run::jj(&checkout.root)?
                    .args(["log", "--no-graph", "-r", "@-", "-T", "commit_id ++ \"\\n\""])
                    .maybe()?,
            };
            commits.push('\n');
            commits.push_str(&head.unwrap_or_default());
            let mut commits: Vec<&str> = commits.lines().filter(|commit| !commit.is_empty()).collect();
            commits.sort_unstable();
            commits.dedup();
            for commit in commits {
                if has(&content::at(&git, commit, &site.prefix)?) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (None, vcs @ (Vcs::Hg | Vcs::Sl)) => {
            let hg = Hg::here(vcs, &checkout.root);
            let heads = hg.run(["log", "-r", "heads(all()) or .", "-T", "{node}\\n"])?.maybe()?.unwrap_or_default();
            for node in heads.lines() {
                if has(&hg.at(node, &site.prefix)?) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (None, _) => Ok(false),
    }
}

/// Refuses to commit while an operation of the user is in progress.
fn refuse_busy(git_dir: &Path) -> Result<(), ExchangeError> {
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

fn text(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim_end().to_owned()
}

/// Adds exactly these entries to the index.
fn stage(git: &Git, entries: &[String]) -> Result<(), RunError> {
    let run = git.run(["update-index", "--add", "-z", "--index-info"])?;
    run.ok_fed(|to| entries.iter().try_for_each(|entry| write!(to, "{entry}\0"))).map(drop)
}

/// A tree with `files` below `prefix`, and no other ledger file there; and the entries that differ, for an index.
fn with_files(
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
    let index = git_dir.join(format!("{INDEX_FILE_PREFIX}{}", std::process::id()));
    let built = (|| {
        let with = |args: &[&str]| Ok::<_, RunError>(git.run(args)?.env("GIT_INDEX_FILE", &index));
        with(&["read-tree", tree])?.ok()?;
        let put = with(&["update-index", "--add", "-z", "--index-info"])?;
        put.ok_fed(|to| entries.iter().try_for_each(|entry| write!(to, "{entry}\0")))?;
        with(&["write-tree"])?.text()
    })();
    // It is this process's own file; the next run creates a new one.
    let _ = fs::remove_file(&index);
    built
}

/// Removes index files of killed processes.
fn remove_old_indexes(git_dir: &Path) {
    for entry in fs::read_dir(git_dir).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(INDEX_FILE_PREFIX);
        let since = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if ours && since().is_some_and(|since| since > ABANDONED_INDEX_AGE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Supplies a name if none is configured in git, so that sync works anyway.
fn named(git: &Git, run: Run) -> Result<Run, RunError> {
    if git.run(["var", "GIT_COMMITTER_IDENT"])?.maybe()?.is_some() {
        return Ok(run);
    }
    Ok(anonymous(run))
}
