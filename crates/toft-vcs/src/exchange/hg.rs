//! A ledger that has a Mercurial repository to itself, or a Sapling one, which takes almost the same words.

use std::{fs, path::Path};

use super::{Exchange, ExchangeError, Fetched, Files, Sent, Site, belongs, lost_race, understood};
use crate::{RunError, Vcs, command::Run, lock::io};

/// The exchange of a ledger's own repository.
pub(super) struct Own {
    hg: Hg,
    site: Site,
    remote: Option<String>,
    theirs: Option<String>,
    here: Option<String>,
}

/// One of both programs, in a checkout.
pub(super) struct Hg {
    pub(super) vcs: Vcs,
    pub(super) root: std::path::PathBuf,
}

impl Hg {
    pub(super) fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<Run, RunError> {
        let run = if self.vcs == Vcs::Sl { Run::sl(&self.root)? } else { Run::hg(&self.root)? };
        Ok(run.args(args))
    }

    /// The names of revisions.
    fn revisions(&self, which: &str) -> Result<Vec<String>, RunError> {
        let said = self.run(["log", "-r", which, "-T", "{node}\\n"])?.text()?;
        Ok(said.lines().map(str::to_owned).collect())
    }

    /// What the other side has newest on the branch we are on.
    pub(super) fn pull(&self, remote: &str) -> Result<Option<String>, ExchangeError> {
        let abroad = |args: &[&str]| -> Result<Vec<u8>, ExchangeError> {
            let run = self.run(args.iter().copied())?.patience(super::PATIENCE);
            run.ok().map_err(|error| understood(error, remote))
        };
        abroad(&["pull", "--quiet", remote])?;
        let said = match self.vcs {
            Vcs::Sl => abroad(&["identify", "--id", "--debug", "-r", "main", remote]),
            _ => {
                let branch = self.run(["branch"])?.text()?;
                let named = abroad(&["identify", "--id", "--debug", "-r", &branch, remote]);
                // A new one has no branch yet.
                if named.is_ok() { named } else { abroad(&["identify", "--id", "--debug", remote]) }
            }
        };
        let tip = String::from_utf8_lossy(&said?).trim().to_owned();
        Ok(Some(tip).filter(|tip| tip.len() == 40 && tip.bytes().any(|digit| digit != b'0')))
    }

    /// A ledger's files below `prefix` in a revision.
    pub(super) fn at(&self, revision: &str, prefix: &str) -> Result<Files, ExchangeError> {
        let listed = self.run(["files", "-r", revision, "-T", "{path}\\n"])?.maybe()?.unwrap_or_default();
        let mut files = Files::new();
        for path in listed.lines() {
            if let Some(name) = path.strip_prefix(prefix).filter(|name| belongs(name)) {
                let bytes = self.run(["cat", "-r", revision, &format!("path:{path}")])?.ok()?;
                files.insert(name.to_owned(), bytes);
            }
        }
        Ok(files)
    }

    /// Commits exactly these files.
    pub(super) fn commit(&self, paths: &[String], message: &str) -> Result<(), RunError> {
        let mut named = paths.iter().map(|path| format!("path:{path}")).collect::<Vec<_>>();
        let unknown = self.run(["status", "--unknown", "--no-status"])?.args(&named).text()?;
        if !unknown.is_empty() {
            self.run(["add", "--quiet"])?.args(&named).ok()?;
        }
        named.insert(0, message.to_owned());
        self.run(["commit", "--quiet", "-m"])?.args(named).ok().map(drop)
    }
}

/// Where a repository pulls from unless told otherwise. Only that line of its configuration is read.
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
    Hg { vcs, root: root.to_owned() }.run(["log", "-r", "first(roots(all()))", "-T", "{node}"])?.maybe()
}

impl Own {
    pub(super) fn open(site: Site) -> Result<Self, ExchangeError> {
        let remote = default_path(&site.checkout.common_dir)?;
        let hg = Hg { vcs: site.checkout.vcs, root: site.checkout.root.clone() };
        let here = hg.revisions(".")?.into_iter().next();
        Ok(Self { hg, site, remote, theirs: None, here })
    }

    fn paths(&self, files: &Files) -> Vec<String> {
        files.keys().map(|name| self.site.path(name)).collect()
    }

    /// One commit on top of both sides that holds our files.
    fn merge(&self, theirs: &str, files: &Files, message: &str) -> Result<(), ExchangeError> {
        let ended = self.hg.run(["merge", "--quiet", "--tool", ":merge", "-r", theirs])?.end()?;
        let unresolved = self.hg.run(["resolve", "--list", "-T", "{status} {path}\\n"])?.maybe()?.unwrap_or_default();
        let other = unresolved
            .lines()
            .filter_map(|line| line.strip_prefix("U "))
            .find(|path| !path.strip_prefix(&self.site.prefix).is_some_and(belongs));
        if ended.code > 1 || other.is_some() {
            let root = self.site.checkout.root.display();
            let why = match other {
                Some(path) => {
                    format!("{path} in {root} was changed on both sides; merge it there by hand, then sync again")
                }
                None => format!("{root}: {}", ended.err),
            };
            // A merge that never began has nothing to take back.
            let _ = self.hg.run(["merge", "--abort"])?.end();
            self.put(files)?;
            return Err(ExchangeError::InTheWay(why));
        }
        self.put(files)?;
        let named: Vec<String> = self.paths(files).iter().map(|path| format!("path:{path}")).collect();
        self.hg.run(["resolve", "--quiet", "--mark"])?.args(&named).end()?;
        self.hg.run(["commit", "--quiet", "-m", message])?.ok()?;
        Ok(())
    }

    /// Our files, whatever a merge left in their place.
    fn put(&self, files: &Files) -> Result<(), ExchangeError> {
        for (name, bytes) in files {
            let path = self.site.dir.join(name);
            if fs::read(&path).is_ok_and(|now| now == *bytes) {
                continue;
            }
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir).map_err(io("make", dir))?;
            }
            fs::write(&path, bytes).map_err(io("write", &path))?;
        }
        Ok(())
    }
}

impl Exchange for Own {
    fn remote(&self) -> Option<&str> {
        self.remote.as_deref()
    }

    fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let Some(remote) = &self.remote else { return Ok(Fetched::default()) };
        self.theirs = self.hg.pull(remote)?;
        Ok(Fetched { tip: self.theirs.clone(), rewritten: false })
    }

    fn theirs(&self) -> Result<Files, ExchangeError> {
        match &self.theirs {
            Some(revision) => self.hg.at(revision, &self.site.prefix),
            None => Ok(Files::new()),
        }
    }

    fn record(&mut self, message: &str) -> Result<bool, ExchangeError> {
        let files = self.site.files()?;
        let before = self.here.clone();
        let theirs = self.theirs.clone().unwrap_or_default();
        let within = |of: &str, which: &str| -> Result<bool, RunError> {
            Ok(!self.hg.revisions(&format!("{of} and ::{which}"))?.is_empty())
        };
        let behind = !theirs.is_empty() && !within(&theirs, ".")?;
        let straight = behind && (self.here.is_none() || within(".", &theirs)?);
        if straight && self.theirs()? == files {
            // Nothing of ours is missing there: the checkout follows, over files that say the same.
            let named: Vec<String> = self.paths(&files).iter().map(|path| format!("path:{path}")).collect();
            self.hg.run(["update", "--quiet", "--tool", ":other", "-r", &theirs])?.ok()?;
            self.put(&files)?;
            self.hg.run(["resolve", "--quiet", "--mark"])?.args(&named).end()?;
        } else {
            let paths = self.paths(&files);
            if !paths.is_empty() {
                let named = paths.iter().map(|path| format!("path:{path}"));
                let changed = self.hg.run(["status", "--no-status"])?.args(named).text()?;
                if !changed.is_empty() {
                    self.hg.commit(&paths, message)?;
                }
            }
            if behind {
                self.merge(&theirs, &files, message)?;
            }
        }
        self.here = self.hg.revisions(".")?.into_iter().next();
        Ok(self.here != before)
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
        let ended = self.hg.run(words)?.patience(super::PATIENCE).end()?;
        match ended.code {
            // Nothing to send is no failure.
            0 | 1 if ended.err.is_empty() => {
                self.theirs = Some(here.clone());
                Ok(Sent::Done)
            }
            _ => {
                let error = ended.ok("hg push".into()).err().unwrap_or(RunError::Missing("hg"));
                if lost_race(&error) { Ok(Sent::LostRace) } else { Err(understood(error, remote)) }
            }
        }
    }

    fn seen(&self) -> Option<&str> {
        self.theirs.as_deref()
    }
}
