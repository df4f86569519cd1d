//! A ledger in a Jujutsu repository of its own. Every change is one of Jujutsu's own operations.

use std::time::Duration;

use super::{
    Contact, Exchange, ExchangeError, Fetched, Files, Sent, Site, belongs, classify_failure, git_dir, own::OURS, patch,
    refs, refuse_foreign, unsent,
};
use crate::{RunError, command::Run, git_run::Git};

/// The exchange of a ledger's own repository.
pub(super) struct OwnJj {
    site: Site,
    remote: Option<String>,
    bookmark: String,
    theirs: Option<String>,
    here: Option<String>,
    /// No user name is configured in Jujutsu; sync works anyway.
    nameless: bool,
    patience: Duration,
}

impl OwnJj {
    pub(super) fn open(site: Site, reach: Contact<'_>) -> Result<Self, ExchangeError> {
        let git_dir = git_dir(&site.checkout).unwrap_or_default();
        // Jujutsu starts git itself, with the configuration of that repository.
        if Git::of(&git_dir)?.names_programs() {
            let dir = git_dir.display();
            return Err(ExchangeError::Conflict(format!(
                "the configuration in {dir} names programs, which jj would run"
            )));
        }
        let remote = refs::choose(&git_dir, reach.remote)?.map(|(name, _)| name);
        let mut own = Self {
            site,
            remote,
            bookmark: String::new(),
            theirs: None,
            here: None,
            nameless: false,
            patience: reach.patience,
        };
        // The nearest local bookmark, otherwise one of the remote.
        let names = "bookmarks.map(|b| if(b.remote(), \"\", \"+\") ++ b.name()).join(\"\\n\") ++ \"\\n\"";
        let said = own.ask("heads(::@ & bookmarks()) | remote_bookmarks()", names)?;
        let near = said.lines().filter_map(|name| name.strip_prefix('+'));
        let there = said.lines().filter(|name| !name.starts_with('+'));
        let mut known = near.chain(there).filter(|name| !name.is_empty() && !name.starts_with("toft"));
        own.bookmark = known.next().unwrap_or("main").to_owned();
        own.theirs = own.known()?;
        Ok(own)
    }

    fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<Run, RunError> {
        let run = Run::jj(&self.site.checkout.root)?.args(args);
        Ok(match self.nameless {
            true => run.env("JJ_USER", "toft").env("JJ_EMAIL", "toft@localhost"),
            false => run,
        })
    }

    /// The output of a template for revisions, as of the last snapshot.
    fn ask(&self, revisions: &str, template: &str) -> Result<String, RunError> {
        self.run(["log", "--no-graph", "--ignore-working-copy", "-r", revisions, "-T", template])?.text()
    }

    fn known(&self) -> Result<Option<String>, RunError> {
        let Some(remote) = &self.remote else { return Ok(None) };
        let there = format!("present({}@{remote})", quoted(&self.bookmark));
        Ok(Some(self.ask(&there, "commit_id")?).filter(|id| !id.is_empty()))
    }

    /// Ancestors of the working copy that the remote does not have.
    fn unsent(&self) -> String {
        match &self.theirs {
            Some(theirs) => format!("::@- ~ ::{theirs} ~ root()"),
            None => "::@- ~ root()".to_owned(),
        }
    }

    fn file(&self, name: &str) -> String {
        format!("root-file:{}", quoted(&self.site.path(name)))
    }

    /// Whether one revision is an ancestor of another.
    fn ancestor(&self, of: &str, commit: &str) -> Result<bool, RunError> {
        Ok(!self.ask(&format!("{of} & ::{commit}"), "commit_id")?.is_empty())
    }

    /// Creates a merge commit of both sides with our files; other changes of the working copy stay on top of it.
    fn merge(&self, theirs: &str, files: &Files, message: &str) -> Result<(), ExchangeError> {
        let before = self.run(["op", "log", "--no-graph", "--limit=1", "-T", "id"])?.text()?;
        let old = self.ask("@", "change_id")?;
        let empty = self.ask("@", "empty")? == "true";
        let merged = (|| {
            self.run(["new", "-m", message, "@-", theirs])?.ok()?;
            self.site.put(files)?;
            Ok::<_, ExchangeError>(self.run(["log", "--no-graph", "-r", "@", "-T", "conflict"])?.text()? == "true")
        })();
        let back = || -> Result<(), ExchangeError> {
            self.run(["op", "restore", &before])?.ok()?;
            self.site.put(files)
        };
        match merged {
            Ok(false) => {}
            Ok(true) => {
                back()?;
                let root = self.site.checkout.root.display();
                return Err(ExchangeError::Conflict(format!(
                    "files besides the ledger's in {root} were changed on both sides; merge them there, then sync again"
                )));
            }
            Err(error) => {
                back()?;
                return Err(error);
            }
        }
        if empty {
            self.run(["new"])?.ok()?;
        } else {
            self.run(["rebase", "-s", &old, "-d", "@"])?.ok()?;
            self.run(["edit", &old])?.ok()?;
        }
        Ok(())
    }
}

/// Quotes a text for revsets and filesets.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Exchange for OwnJj {
    fn remote(&self) -> Option<&str> {
        self.remote.as_deref()
    }

    fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let Some(remote) = &self.remote else { return Ok(Fetched::default()) };
        let exact = format!("exact:{}", quoted(&self.bookmark));
        Run::jj_abroad(&self.site.checkout.root)?
            .args(["git", "fetch", "--ignore-working-copy", "--remote", remote, "--branch", &exact])
            .patience(self.patience)
            .ok()
            .map_err(|error| classify_failure(error, remote))?;
        let before = self.theirs.take();
        self.theirs = self.known()?;
        if let Some(theirs) = &self.theirs {
            let listed = self.run(["file", "list", "--ignore-working-copy", "-r", theirs])?.text()?;
            refuse_foreign(&self.bookmark, remote, &listed)?;
        }
        let rewritten = match (&before, &self.theirs) {
            (Some(before), Some(now)) => !self.ancestor(before, now)?,
            _ => false,
        };
        Ok(Fetched { tip: self.theirs.clone(), rewritten })
    }

    fn theirs(&mut self) -> Result<Files, ExchangeError> {
        let Some(theirs) = &self.theirs else { return Ok(Files::new()) };
        let listed = self.run(["file", "list", "--ignore-working-copy", "-r", theirs])?.text()?;
        let mut files = Files::new();
        let within = listed.lines().filter_map(|path| path.strip_prefix(&self.site.prefix));
        for name in within.filter(|name| belongs(name)) {
            let bytes = self.run(["file", "show", "--ignore-working-copy", "-r", theirs, &self.file(name)])?.ok()?;
            files.insert(name.to_owned(), bytes);
        }
        Ok(files)
    }

    fn record(&mut self, message: &str) -> Result<bool, ExchangeError> {
        let files = self.site.files()?;
        let before = Some(self.ask("@-", "commit_id ++ \"\\n\"")?).filter(|id| !id.is_empty());
        let names: Vec<String> = files.keys().map(|name| self.file(name)).collect();
        let mut changed = false;
        self.nameless = self.run(["config", "get", "user.email"])?.maybe()?.is_none();
        if !names.is_empty() {
            let look = self.run(["diff", "--summary", "-r", "@"])?.args(&names).text()?;
            changed = !look.is_empty();
        }
        let behind = match &self.theirs {
            Some(theirs) => !self.ancestor(theirs, "@-")?,
            None => false,
        };
        let theirs = self.theirs.clone().unwrap_or_default();
        if behind && self.ancestor("@-", &theirs)? && self.theirs()? == files {
            self.run(["rebase", "-s", "@", "-d", &theirs])?.ok()?;
        } else {
            if changed {
                self.run(["commit", "-m", message])?.args(&names).ok()?;
            }
            if behind {
                self.merge(&theirs, &files, message)?;
            }
        }
        self.here = Some(self.ask("@-", "commit_id ++ \"\\n\"")?).filter(|id| !id.is_empty());
        if changed || behind {
            if let Some(remote) = self.remote.as_ref().filter(|_| self.theirs.is_some()) {
                let there = format!("{}@{remote}", self.bookmark);
                self.run(["bookmark", "track", &there])?.end()?;
            }
            self.run(["bookmark", "set", "--allow-backwards", "-r", "@-", &self.bookmark])?.ok()?;
        }
        Ok(self.here != before)
    }

    fn send(&mut self) -> Result<Sent, ExchangeError> {
        let (Some(remote), Some(here)) = (&self.remote, &self.here) else { return Ok(Sent::Same) };
        if self.theirs.as_ref() == Some(here) {
            return Ok(Sent::Same);
        }
        let exact = format!("exact:{}", quoted(&self.bookmark));
        let sent = Run::jj_abroad(&self.site.checkout.root)?
            .args(["git", "push", "--ignore-working-copy", "--remote", remote, "--bookmark", &exact])
            .patience(self.patience)
            .ok();
        match sent {
            Ok(_) => {
                self.theirs = Some(here.clone());
                Ok(Sent::Done)
            }
            Err(error) => unsent(error, remote),
        }
    }

    fn seen(&self) -> Option<&str> {
        self.theirs.as_deref()
    }

    fn foreign_commits(&mut self) -> Result<Vec<String>, ExchangeError> {
        let said = self.ask(&self.unsent(), "commit_id.short() ++ \" \" ++ description.first_line() ++ \"\\n\"")?;
        let ours = |line: &&str| line.split_once(' ').is_some_and(|(_, said)| said.starts_with(OURS.trim_end()));
        Ok(said.lines().filter(|line| !line.is_empty() && !ours(line)).map(str::to_owned).collect())
    }

    fn squashes(&self) -> bool {
        false
    }

    fn unsent_lines(&mut self) -> Result<Vec<String>, ExchangeError> {
        let git_dir = git_dir(&self.site.checkout).unwrap_or_default();
        let commits = self.ask(&self.unsent(), "commit_id ++ \"\\n\"")?;
        if commits.trim().is_empty() {
            return Ok(Vec::new());
        }
        let show = ["show", "--no-ext-diff", "--no-textconv", "--text", "-U0", "--no-color", "--format=%B"];
        let said = Git::of(&git_dir)?.run(show)?.args(commits.lines()).ok()?;
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

    fn tidy(&self, _memo: &std::path::Path) {}

    fn offered(&self) -> Result<Vec<super::Proposal>, ExchangeError> {
        Ok(Vec::new())
    }
}
