//! A ledger in a Mercurial repository of its own, or a Sapling one, whose commands are almost the same.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    ARCHIVE, Contact, Exchange, ExchangeError, Fetched, Files, ISSUES, Sent, Site, belongs, classify_failure, patch,
    read_files, refuse_foreign, unsent,
};
use crate::{RunError, Vcs, command::Run, lock::io};

/// Prefix of our commit messages.
const MESSAGE_PREFIX: &str = "toft: ";

/// The exchange of a ledger's own repository.
pub(super) struct OwnHg {
    hg: Hg,
    site: Site,
    remote: Option<String>,
    theirs: Option<String>,
    here: Option<String>,
    /// The remote's commits were pulled.
    pulled: bool,
    /// The remote has every commit of ours.
    all_sent: bool,
}

/// Mercurial or Sapling, in a checkout.
pub(super) struct Hg {
    pub(super) vcs: Vcs,
    pub(super) root: PathBuf,
    pub(super) patience: Duration,
}

impl Hg {
    /// An instance that contacts no remote.
    pub(super) fn here(vcs: Vcs, root: &Path) -> Self {
        Self { vcs, root: root.to_owned(), patience: Duration::ZERO }
    }

    pub(super) fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<Run, RunError> {
        let run = if self.vcs == Vcs::Sl { Run::sl(&self.root)? } else { Run::hg(&self.root)? };
        Ok(run.args(args))
    }

    /// The output of a template for revisions.
    fn ask(&self, which: &str, template: &str) -> Result<String, RunError> {
        self.run(["log", "-r", which, "-T", template])?.text()
    }

    /// The remote's newest revision on the current branch; nothing is pulled.
    pub(super) fn newest(&self, common_dir: &Path, remote: &str) -> Result<Option<String>, ExchangeError> {
        let own = fs::read_to_string(common_dir.join("branch")).unwrap_or_default();
        let branch = match (self.vcs, own.trim()) {
            (Vcs::Sl, _) => "main",
            (_, "") => "default",
            (_, branch) => branch,
        };
        let run = self.run(["identify", "--id", "--debug", "-r", branch, remote])?.patience(self.patience);
        let tip = match run.text() {
            // A new repository has no such branch yet.
            Err(RunError::Failed { said, .. }) if said.contains("unknown revision") => return Ok(None),
            said => said.map_err(|error| classify_failure(error, remote))?,
        };
        Ok(Some(tip).filter(|tip| tip.len() == 40 && tip.bytes().any(|digit| digit != b'0')))
    }

    /// Pulls from the remote.
    pub(super) fn pull(&self, remote: &str) -> Result<(), ExchangeError> {
        let run = self.run(["pull", "--quiet", remote])?.patience(self.patience);
        run.ok().map(drop).map_err(|error| classify_failure(error, remote))
    }

    /// A ledger's files below `prefix` in a revision.
    pub(super) fn at(&self, revision: &str, prefix: &str) -> Result<Files, ExchangeError> {
        let which = [format!("path:{prefix}{ISSUES}"), format!("glob:{prefix}{ARCHIVE}/*.jsonl")];
        // Written to separate files, so that no byte of their content can be mistaken for a separator.
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let out = std::env::temp_dir().join(format!("toft-cat-{}-{now}", std::process::id()));
        fs::create_dir(&out).map_err(io("make", &out))?;
        let ended = self.run(["cat", "-r", revision, "--output"])?.arg(out.join("%p")).args(&which).end();
        let files = read_files(&out.join(prefix));
        // A temporary copy.
        let _ = fs::remove_dir_all(&out);
        let ended = ended?;
        // Exit code 1 means that there are no such files.
        if ended.code > 1 {
            ended.ok("hg cat".into())?;
        }
        files
    }

    /// Commits exactly these files; returns whether there was anything to commit.
    pub(super) fn commit(&self, paths: &[String], message: &str) -> Result<bool, RunError> {
        let mut named = paths.iter().map(|path| format!("path:{path}")).collect::<Vec<_>>();
        let changed = self.run(["status"])?.args(&named).text()?;
        if changed.lines().any(|line| line.starts_with('?')) {
            self.run(["add", "--quiet"])?.args(&named).ok()?;
        }
        named.insert(0, message.to_owned());
        if !changed.is_empty() {
            self.run(["commit", "--quiet", "-m"])?.args(named).ok()?;
        }
        Ok(!changed.is_empty())
    }
}

/// The default path of a repository. Only that line of its configuration is read.
pub(super) fn default_path(common_dir: &Path) -> Result<Option<String>, ExchangeError> {
    for name in ["hgrc", "config"] {
        let path = common_dir.join(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(io("read", &path)(cause).into()),
        };
        let mut paths = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                paths = line == "[paths]";
            } else if let Some((key, value)) = line.split_once('=')
                && paths
                && key.trim() == "default"
            {
                let value = value.trim();
                let plain = !value.is_empty() && !value.starts_with('-') && !value.contains("://-");
                return Ok(plain.then(|| value.to_owned()));
            }
        }
    }
    Ok(None)
}

/// The first commit of a repository.
pub(super) fn first(root: &Path, vcs: Vcs) -> Result<Option<String>, RunError> {
    Hg::here(vcs, root).run(["log", "-r", "first(roots(all()))", "-T", "{node}"])?.maybe()
}

impl OwnHg {
    pub(super) fn open(site: Site, reach: Contact<'_>) -> Result<Self, ExchangeError> {
        let remote = default_path(&site.checkout.common_dir)?;
        let hg = Hg { vcs: site.checkout.vcs, root: site.checkout.root.clone(), patience: reach.patience };
        Ok(Self { hg, site, remote, theirs: None, here: None, pulled: false, all_sent: false })
    }

    /// Ancestors of the checkout that the remote does not have.
    fn unsent(&self) -> String {
        match &self.theirs {
            Some(theirs) => format!("all() and ::. and not ::{theirs}"),
            // Without `all()`, an empty repository would have the null revision.
            None => "all() and ::.".to_owned(),
        }
    }

    fn paths(&self, files: &Files) -> Vec<String> {
        files.keys().map(|name| self.site.path(name)).collect()
    }

    /// Creates one merge commit of both sides with our files.
    fn merge(&self, theirs: &str, files: &Files, message: &str) -> Result<(), ExchangeError> {
        let root = self.site.checkout.root.display();
        if self.hg.run(["parents", "-T", "{node}\\n"])?.text()?.lines().count() > 1 {
            return Err(ExchangeError::Conflict(format!("a merge is in progress in {root}; end it, then sync again")));
        }
        let ended = self
            .hg
            .run([
                "merge",
                "--quiet",
                "--config",
                "ui.origbackuppath=.hg/origbackups",
                "--tool",
                ":merge",
                "-r",
                theirs,
            ])?
            .end()?;
        let unresolved = self.hg.run(["resolve", "--list"])?.maybe()?.unwrap_or_default();
        let other = unresolved
            .lines()
            .filter_map(|line| line.strip_prefix("U "))
            .find(|path| !path.strip_prefix(&self.site.prefix).is_some_and(belongs));
        if ended.code > 1 || other.is_some() {
            let why = match other {
                Some(path) => {
                    format!("{path} in {root} was changed on both sides; merge it there by hand, then sync again")
                }
                None => format!("{root}: {}", ended.err),
            };
            if ended.code <= 1 {
                self.hg.run(["merge", "--abort"])?.ok()?;
                self.site.put(files)?;
            }
            return Err(ExchangeError::Conflict(why));
        }
        self.site.put(files)?;
        let named: Vec<String> = self.paths(files).iter().map(|path| format!("path:{path}")).collect();
        self.hg.run(["resolve", "--quiet", "--mark"])?.args(&named).end()?;
        self.hg.run(["commit", "--quiet", "-m", message])?.ok()?;
        Ok(())
    }
}

impl Exchange for OwnHg {
    fn remote(&self) -> Option<&str> {
        self.remote.as_deref()
    }

    fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let Some(remote) = &self.remote else { return Ok(Fetched::default()) };
        self.all_sent = false;
        self.theirs = self.hg.newest(&self.site.checkout.common_dir, remote)?;
        self.pulled = false;
        Ok(Fetched { tip: self.theirs.clone(), rewritten: false })
    }

    fn theirs(&mut self) -> Result<Files, ExchangeError> {
        let Some(revision) = &self.theirs else { return Ok(Files::new()) };
        if let Some(remote) = self.remote.as_ref().filter(|_| !self.pulled) {
            self.hg.pull(remote)?;
            self.pulled = true;
            refuse_foreign("default", remote, &self.hg.run(["manifest", "-r", revision])?.text()?)?;
        }
        self.hg.at(revision, &self.site.prefix)
    }

    fn record(&mut self, message: &str) -> Result<bool, ExchangeError> {
        let files = self.site.files()?;
        let theirs_files = self.theirs()?;
        let theirs = self.theirs.clone().unwrap_or_default();
        // Whether the remote's revision is an ancestor of ours, and ours of theirs.
        let within = match theirs.is_empty() {
            true => "no\n".to_owned(),
            false => format!("{{revset(\"{theirs} and ::.\") % \"yes\"}}\\n{{revset(\". and ::{theirs}\") % \"yes\"}}"),
        };
        let said = self.hg.ask(".", &format!("{{node}}\\n{within}"))?;
        let mut facts = said.lines();
        let before = facts.next().filter(|node| node.bytes().any(|digit| digit != b'0')).map(str::to_owned);
        let behind = !theirs.is_empty() && facts.next() != Some("yes");
        let straight = behind && (before.is_none() || facts.next() == Some("yes"));
        let paths = self.paths(&files);
        let mut moved = behind;
        if straight && theirs_files == files {
            // The remote has all of our commits, so update the checkout; both sides have the same ledger files.
            let named: Vec<String> = paths.iter().map(|path| format!("path:{path}")).collect();
            self.hg.run(["update", "--quiet", "--tool", ":other", "-r", &theirs])?.ok()?;
            self.site.put(&files)?;
            self.hg.run(["resolve", "--quiet", "--mark"])?.args(&named).end()?;
        } else {
            if !paths.is_empty() {
                moved |= self.hg.commit(&paths, message)?;
            }
            if behind {
                self.merge(&theirs, &files, message)?;
            }
        }
        self.here = if moved { Some(self.hg.ask(".", "{node}")?) } else { before };
        Ok(moved)
    }

    fn send(&mut self) -> Result<Sent, ExchangeError> {
        let (Some(remote), Some(here)) = (&self.remote, &self.here) else { return Ok(Sent::Same) };
        if self.theirs.as_ref() == Some(here) {
            return Ok(Sent::Same);
        }
        let mut words = vec!["push", "--quiet", "-r", "."];
        if self.hg.vcs == Vcs::Sl {
            words.extend(["--to", "main"]);
        }
        words.push(remote);
        let ended = self.hg.run(words)?.patience(self.hg.patience).end()?;
        match ended.code {
            // "Nothing to push" is not a failure.
            0 | 1 if ended.err.is_empty() => {
                self.theirs = Some(here.clone());
                Ok(Sent::Done)
            }
            _ => {
                let error = ended.ok("hg push".into()).err().unwrap_or(RunError::Missing("hg"));
                unsent(error, remote)
            }
        }
    }

    fn seen(&self) -> Option<&str> {
        self.theirs.as_deref()
    }

    fn foreign_commits(&mut self) -> Result<Vec<String>, ExchangeError> {
        let said = self.hg.ask(&self.unsent(), "{node|short} {desc|firstline}\\n")?;
        self.all_sent = said.is_empty();
        let ours =
            |line: &&str| line.split_once(' ').is_some_and(|(_, said)| said.starts_with(MESSAGE_PREFIX.trim_end()));
        Ok(said.lines().filter(|line| !line.is_empty() && !ours(line)).map(str::to_owned).collect())
    }

    fn squashes(&self) -> bool {
        false
    }

    fn unsent_lines(&mut self) -> Result<Vec<String>, ExchangeError> {
        if self.all_sent {
            return Ok(Vec::new());
        }
        let which = self.unsent();
        let said = self.hg.run(["export", "--git", "--text", "-r", &which])?.ok()?;
        Ok(patch::added(&String::from_utf8_lossy(&said)))
    }

    fn purge(&mut self, _keep: &dyn Fn(&[u8]) -> bool) -> Result<usize, ExchangeError> {
        Err(super::no_purge())
    }

    fn also_in(&self, _text: &str) -> Result<Vec<String>, ExchangeError> {
        Ok(Vec::new())
    }

    fn before(&mut self) -> Result<Option<Files>, ExchangeError> {
        Ok(None)
    }

    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn tidy(&self) {}

    fn forget_unreachable(&self) -> Result<(), ExchangeError> {
        Ok(())
    }

    fn offered(&self) -> Result<Vec<super::Proposal>, ExchangeError> {
        Ok(Vec::new())
    }
}
