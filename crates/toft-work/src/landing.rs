//! Offers finished work for landing, and lists what has not landed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use toft_core::{
    id::TaskId,
    issue::private::Private,
    landing::{Landing, LandingOffer, LandingState, LandingWait},
    lease::Processes as _,
    refusal::Refusal,
    time::Timestamp,
    verbs::{
        context, facts,
        land::{List, ListedLanding, Take},
        workspace::Show,
    },
    workspace::WorkspaceKind,
};
use toft_plan::Plan;
use toft_session::{error::Error, land::CloseRule};
use toft_vcs::{
    Vcs,
    exchange::Range,
    landing::{BundleTaken, LandingRepository},
    workspace::WorkspaceBackend,
};

use crate::Work;

/// What a piece of finished work changes.
pub enum LandingDiff {
    /// In the format of git.
    Text(Vec<u8>),
    /// Why it is not known here.
    Missing(String),
}

impl Work<'_> {
    /// The repository in which work lands, if its version control can.
    pub fn landing_repository(&self) -> Result<Option<LandingRepository>, Error> {
        match &self.located().checkout {
            Some(checkout) if matches!(checkout.vcs, Vcs::Git | Vcs::Jj) => {
                let rules = &self.located().land;
                Ok(Some(LandingRepository::open(checkout, &rules.union, rules.pushed())?))
            }
            _ => Ok(None),
        }
    }

    /// The offer of a finished task's commit. There is none if nothing is to land: no version control that can, no target, or
    /// the target has the commit already. The commit is kept from now on, whatever becomes of its branch.
    pub(crate) fn landing_offer(&self, task: &TaskId, commit: &str) -> Result<Option<LandingOffer>, Error> {
        let Some(checkout) = &self.located().checkout else { return Ok(None) };
        let Some(repository) = self.landing_repository()? else { return Ok(None) };
        let workspace = match self.perform(Show { id: task.to_string() }) {
            Ok(found) => Some(found.workspace),
            Err(Error::Refused(_)) => None,
            Err(error) => return Err(error),
        };
        let rules = &self.located().land;
        let target =
            match rules.into.clone().or_else(|| workspace.as_ref().and_then(|workspace| workspace.onto.clone())) {
                Some(target) => target,
                None => match WorkspaceBackend::of(checkout).start(None)?.onto.or(repository.default_branch()?) {
                    Some(target) => target,
                    None => {
                        self.note("no branch to land in was found; `into` in [land] names one".to_owned());
                        return Ok(None);
                    }
                },
            };
        let newest = repository.newest(&target)?.map(|(newest, _)| newest);
        let clone = workspace.as_ref().filter(|workspace| workspace.kind == WorkspaceKind::Clone);
        let name = Landing::id_of(task);
        match clone {
            Some(clone) => repository.pin_from(Path::new(&clone.path), name.as_str(), commit)?,
            None => {
                // What a remote has, only the remote says.
                let local = repository.remote_branch(&target).is_none();
                if local && newest.is_some_and(|newest| repository.contains(commit, &newest).unwrap_or(false)) {
                    return Ok(None);
                }
                repository.pin(name.as_str(), commit)?;
            }
        }
        let bases: Vec<String> =
            workspace.iter().map(|workspace| workspace.base.clone()).filter(|base| !base.is_empty()).collect();
        let sent = self.send_kept_commit(name.as_str(), commit, &target, &bases)?;
        let private = self.is_of_private_plan(task)?;
        let labels =
            self.perform(facts::TaskRow { task: task.clone() })?.map(|task| task.spec.labels).unwrap_or_default();
        Ok(Some(LandingOffer {
            target,
            tip: commit.to_owned(),
            host: self.machine().disks().to_owned(),
            clone: checkout.common_dir.display().to_string(),
            workspace: workspace.as_ref().map(|workspace| workspace.id.clone()),
            bases,
            sent,
            taken: false,
            private,
            branch: workspace.and_then(|workspace| workspace.branch),
            closes: rules.close == CloseRule::Landed,
            review: rules.reviewer(&labels),
        }))
    }

    /// Whether the issue of a task is of a private plan.
    fn is_of_private_plan(&self, task: &TaskId) -> Result<bool, Error> {
        let private = self.private_issues()?;
        if private.is_empty() {
            return Ok(false);
        }
        let facts = self.perform(context::Request { id: task.to_string() })?;
        Ok(facts.workflow.issue().is_some_and(|issue| private.has(issue)))
    }

    /// Work that may still land, in the order in which it does; with `ids`, only this.
    pub fn landings(&self, ids: &[String], past: usize) -> Result<Vec<ListedLanding>, Error> {
        let ids = ids.iter().map(|text| self.whole_id(text)).collect::<Result<Vec<_>, _>>()?;
        let mut request = List { scope: self.scope(), ids, past, needs: BTreeMap::new() };
        let mut listed = self.perform(request.clone())?;
        let issues = listed.iter().filter_map(|entry| entry.landing.issue.clone());
        let issues: Vec<String> = issues.collect();
        if let Some(plan) = Plan::open(self.session)?.filter(|_| issues.len() > 1) {
            for issue in &issues {
                if let Some(found) = plan.known(issue)? {
                    let blockers: Vec<String> = found.issue.blockers().map(str::to_owned).collect();
                    if !blockers.is_empty() {
                        request.needs.insert(issue.clone(), blockers);
                    }
                }
            }
            if !request.needs.is_empty() {
                listed = self.perform(request)?;
            }
        }
        if listed.iter().any(|entry| entry.landing.state == LandingState::Queued) {
            self.mark_elsewhere(&mut listed)?;
        }
        Ok(listed)
    }

    /// Marks work whose commits are in another clone. Until it is approved, that is nobody's concern.
    fn mark_elsewhere(&self, listed: &mut [ListedLanding]) -> Result<(), Error> {
        let Some(repository) = self.landing_repository()? else { return Ok(()) };
        let pinned: BTreeSet<(String, String)> = repository.pinned()?.into_iter().collect();
        for entry in listed.iter_mut().filter(|entry| entry.landing.state == LandingState::Queued) {
            let offer = &entry.landing.offer;
            let has = pinned.contains(&(entry.landing.pin(), offer.tip.clone())) || repository.has(&offer.tip)?;
            // Who pushes to a remote needs nothing but the commits: the remote decides who is first.
            let may = self.is_of_this_clone(&entry.landing) || offer.sent && repository.pushes();
            if !has || !may {
                let (host, clone) = (offer.host.clone(), offer.clone.clone());
                entry.elsewhere = true;
                if entry.waits != Some(LandingWait::Review) {
                    entry.waits = Some(LandingWait::Elsewhere { host, clone });
                }
            }
        }
        Ok(())
    }

    /// Whether some work was made or taken in this clone.
    fn is_of_this_clone(&self, landing: &Landing) -> bool {
        let here = self.located().checkout.as_ref().map(|checkout| checkout.common_dir.display().to_string());
        let offer = &landing.offer;
        // A repository that was moved is where it is now.
        let other = Some(&offer.clone) != here.as_ref() && Path::new(&offer.clone).exists();
        offer.host == self.machine().disks() && !other
    }

    /// Gets finished work of other machines from the server, so that it can land here: what is named, or everything that no
    /// other clone lands. Returns what is in the way of the rest.
    pub fn take_sent_work(&self, ids: &[String]) -> Result<Vec<String>, Error> {
        let mut why = Vec::new();
        if !self.sends_commits() {
            return Ok(why);
        }
        let Some(repository) = self.landing_repository()? else { return Ok(why) };
        for ListedLanding { landing, elsewhere, .. } in self.landings(ids, 0)? {
            let (named, own) = (!ids.is_empty(), self.is_of_this_clone(&landing));
            let may = landing.may_be_taken(&landing.offer.tip, named || own || repository.pushes());
            // What was made here is taken too, so that no other clone does meanwhile.
            if !may || !elsewhere && (repository.pushes() || landing.offer.taken) {
                continue;
            }
            if let Some(problem) = self.take_one(&repository, &landing, elsewhere, named)? {
                let name = landing.issue.clone().unwrap_or_else(|| landing.id.to_string());
                why.push(format!("{name} does not land here now: {problem}"));
            }
        }
        Ok(why)
    }

    /// What finished work changes, if this version control can tell. Commits of another machine are read where the server keeps
    /// them; this clone stays as it is.
    pub fn diff_of_landing(&self, landing: &Landing) -> Result<Option<LandingDiff>, Error> {
        let Some(repository) = self.landing_repository()? else { return Ok(None) };
        let LandingOffer { target, tip, clone, host, .. } = &landing.offer;
        if repository.has(tip)? {
            return Ok(Some(LandingDiff::Text(repository.diff(target, tip)?)));
        }
        let missing = match self.load_commits(&landing.repository, tip)? {
            Some(bundle) => match repository.diff_of_bundle(target, tip, &bundle)? {
                Some(diff) => return Ok(Some(LandingDiff::Text(diff))),
                None => {
                    "it is built on commits that are not here: fetch them, or review it in another clone".to_owned()
                }
            },
            None => format!("its commits are in {clone} on {host}"),
        };
        Ok(Some(LandingDiff::Missing(missing)))
    }

    /// Takes one piece of work; returns what is in the way.
    fn take_one(
        &self,
        repository: &LandingRepository,
        landing: &Landing,
        fetch: bool,
        named: bool,
    ) -> Result<Option<String>, Error> {
        let tip = landing.offer.tip.clone();
        if fetch {
            let Some(bundle) = self.load_commits(&landing.repository, &tip)? else {
                return Ok(Some(format!("the server has no commits of it; they are in {}", landing.offer.clone)));
            };
            match repository.take_bundle(Some(&landing.pin()), &tip, &bundle) {
                Ok(BundleTaken::Taken) => {}
                Ok(BundleTaken::Lacks) => {
                    return Ok(Some("it is built on commits that neither this clone nor its remotes have".to_owned()));
                }
                Err(error) => return Ok(Some(error.to_string())),
            }
        }
        if repository.pushes() {
            return Ok(None);
        }
        let Some(checkout) = &self.located().checkout else { return Ok(None) };
        let clone = checkout.common_dir.display().to_string();
        match self.perform(Take { landing: landing.id.clone(), tip, clone, named }) {
            Ok(_) => Ok(None),
            // Another clone was first, and lands it.
            Err(Error::Refused(_)) => Ok(repository.unpin(&[landing.pin()]).err().map(|error| error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Gets commits of other machines that work is to begin with. What cannot be got is a note.
    pub(crate) fn take_commits(&self, commits: &[String]) -> Result<(), Error> {
        let Some(id) = self.located().repository.as_ref().filter(|_| self.sends_commits()) else { return Ok(()) };
        let Some(repository) = self.landing_repository()? else { return Ok(()) };
        for commit in commits {
            if repository.has(commit)? {
                continue;
            }
            let Some(bundle) = self.load_commits(id, commit)? else { continue };
            let short = commit.get(..12).unwrap_or(commit);
            match repository.take_bundle(None, commit, &bundle) {
                Ok(BundleTaken::Taken) => {}
                Ok(BundleTaken::Lacks) => {
                    self.note(format!("{short} is built on commits that neither this clone nor its remotes have"));
                }
                Err(error) => self.note(format!("{short} could not be got from the server: {error}")),
            }
        }
        Ok(())
    }

    /// Sends a commit that is kept here to the server; returns whether others can have it.
    pub fn send_kept_commit(&self, name: &str, commit: &str, target: &str, bases: &[String]) -> Result<bool, Error> {
        let Some(id) = self.located().repository.as_ref().filter(|_| self.sends_commits()) else { return Ok(false) };
        let Some(repository) = self.landing_repository()? else { return Ok(false) };
        match repository.bundle(name, target, bases) {
            Ok(bundle) => self.send_commits(id, commit, &bundle),
            Err(error) => {
                self.note(format!("its commits stay on this machine: {error}"));
                Ok(false)
            }
        }
    }

    /// Where work begins that is pushed to a remote: its branch as it was last seen, and not the checkout's commit, which may
    /// be unpublished. Returns what the work lacks, too.
    pub(crate) fn start_of_pushed_work(&self, commit: String) -> Result<(String, Option<String>), Error> {
        let target = self.located().land.pushed().filter(|target| target.contains('/'));
        let (Some(target), Some(repository)) = (target, self.landing_repository()?) else { return Ok((commit, None)) };
        let Some(_) = repository.remote_branch(target) else { return Ok((commit, None)) };
        match repository.commit(target)? {
            Some(newest) => {
                let lacks = !repository.contains(&commit, &newest)?;
                Ok((newest, lacks.then(|| format!("it begins at {target}, which lacks commits of your checkout"))))
            }
            None => Ok((commit, None)),
        }
    }

    /// The newest commit of a target, or of the result that waits for it. The name of that may be gone in a moment.
    pub fn newest_commit(&self, target: &str) -> Result<String, Error> {
        let newest = self.landing_repository()?.map(|repository| repository.newest(target)).transpose()?.flatten();
        Ok(newest.map_or_else(|| target.to_owned(), |(newest, _)| newest))
    }

    /// Issues that nothing which is published may name.
    pub fn private_issues(&self) -> Result<Private, Error> {
        Plan::open(self.session)?.map_or_else(|| Ok(Private::default()), |plan| plan.private())
    }

    /// Why a commit must not be pushed to a remote, if so: it names something private.
    pub fn must_not_be_published(&self, remote: &str, commit: &str, there: &str) -> Result<Option<String>, Error> {
        let Some(plan) = Plan::open(self.session)? else { return Ok(None) };
        let (commit, remote, there) = (commit.to_owned(), remote.to_owned(), Some(there.to_owned()));
        let guarded = plan.guard(&Range::Pushing { commit, remote, there })?;
        let leaks = guarded.leaks.iter().map(|leak| format!("{}: {} {}", leak.path, leak.issue, leak.why));
        let doubts = guarded.doubts.iter().map(|doubt| doubt.what.clone());
        let found: Vec<String> = leaks.chain(doubts).collect();
        Ok((!found.is_empty()).then(|| {
            let found = found.join("; ");
            format!("It would publish something private: {found}. Take it out of the commits of this branch.")
        }))
    }

    /// When the work on a task was begun for the first time.
    pub fn begun(&self, task: &TaskId) -> Result<Option<Timestamp>, Error> {
        let attempts = self.perform(facts::TaskAttempts { task: task.clone() })?;
        Ok(attempts.iter().map(|attempt| attempt.started).min())
    }

    /// The title and the text of an issue.
    pub fn text_of_issue(&self, id: &str) -> Result<Option<(String, String)>, Error> {
        let Some(plan) = Plan::open(self.session)? else { return Ok(None) };
        Ok(plan.known(id)?.map(|found| {
            let fields = [&found.issue.body, &found.issue.design, &found.issue.acceptance];
            let body: Vec<&str> = fields.into_iter().flatten().map(String::as_str).collect();
            (found.issue.title.clone(), body.join("\n\n"))
        }))
    }

    /// Where checks for a target of this repository run.
    pub fn checks_dir(&self, target: &str) -> Result<PathBuf, Error> {
        let located = self.located();
        let Some(checkout) = &located.checkout else {
            return Err(Refusal::Invalid { field: "dir".into(), problem: "this is no repository".into() }.into());
        };
        let word = blake3::hash(checkout.common_dir.display().to_string().as_bytes()).to_hex()[..12].to_owned();
        let repository = format!("{}-{word}", checkout.name());
        Ok(toft_session::config::data_home().join("checks").join(repository).join(target.replace('/', "%")))
    }
}
