//! Runs git so that it executes nothing that a repository names. In a checkout that an agent can write, git reads no
//! configuration except toft's own copy: see [`GitView`].

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    command::{Run, RunError},
    git_view::{GitView, Settings, of_worktree, plain_file},
};

/// Maximum number of a repository's settings to override.
pub(crate) const MOST_SETTINGS: usize = 1_000;

/// Settings for every git command: it executes no other program, asks no question and collects no garbage.
const GIT_SETTINGS: [(&str, &str); 17] = [
    ("core.alternateRefsCommand", "true"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.editor", ":"),
    ("core.pager", "cat"),
    ("diff.external", ""),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("gpg.program", "false"),
    ("log.showSignature", "false"),
    ("safe.bareRepository", "explicit"),
    // In a submodule, git would read the submodule's configuration.
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    ("checkout.workers", "0"),
];

/// Settings for git commands that use no network.
const GIT_AT_HOME: [(&str, &str); 6] = [
    ("core.sshCommand", "false"),
    ("core.gitProxy", "false"),
    ("core.askPass", ""),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("fastimport.unpackLimit", "0"),
];

/// Settings for git commands that contact a remote: only the common protocols are allowed.
const GIT_ABROAD: [(&str, &str); 8] = [
    ("protocol.allow", "never"),
    ("protocol.file.allow", "always"),
    ("protocol.http.allow", "always"),
    ("protocol.https.allow", "always"),
    ("protocol.ssh.allow", "always"),
    ("push.gpgSign", "false"),
    ("push.followTags", "false"),
    ("fastimport.unpackLimit", "1000"),
];

/// Environment variables of the user that configure how remotes are reached.
const GIT_WAYS: [&str; 4] = ["GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_SSL_NO_VERIFY"];

/// Environment variables of the user that git commands inherit.
const GIT_VARIABLES: [&str; 9] = [
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
];

impl Run {
    /// Git in `dir` with the default overrides only. See [`Git`] for those of a repository.
    fn bare_git(dir: &Path, more: &[(String, String)], abroad: bool) -> Result<Self, RunError> {
        Ok(Self::new("git", dir)?.careful(more, abroad))
    }

    /// Configures the run so that every git it starts, directly or through another program, executes nothing that a
    /// repository names.
    pub(crate) fn careful(mut self, more: &[(String, String)], abroad: bool) -> Self {
        self.answers = !abroad;
        let kept = |name: &OsStr| {
            GIT_VARIABLES.iter().any(|known| name == *known) || abroad && GIT_WAYS.iter().any(|known| name == *known)
        };
        let foreign = |(name, _): &(OsString, OsString)| name.to_string_lossy().starts_with("GIT_") && !kept(name);
        for (name, _) in env::vars_os().filter(foreign) {
            self.command.env_remove(name);
        }
        let there: &[(&str, &str)] = if abroad { &GIT_ABROAD } else { &GIT_AT_HOME };
        let own = GIT_SETTINGS.iter().map(|(key, value)| (*key, *value));
        let more = more.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut count = 0;
        for (key, value) in own.chain(more).chain(there.iter().copied()) {
            self.command.env(format!("GIT_CONFIG_KEY_{count}"), key).env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        self.command
            .env("GIT_CONFIG_COUNT", count.to_string())
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_LFS_SKIP_SMUDGE", "1");
        self
    }
}

/// Git for one repository or checkout, with every setting overridden that would make it execute a program.
pub(crate) struct Git {
    dir: PathBuf,
    git_dir: Option<PathBuf>,
    work_tree: bool,
    /// It may contact remotes.
    abroad: bool,
    /// The view that replaces the repository's git directory or its common directory.
    view: Option<(Arc<GitView>, Instead)>,
    /// Overrides of the repository's settings.
    settings: Settings,
    /// An index file to use instead of the checkout's own; git may refresh it.
    index: Option<Box<PathBuf>>,
}

/// What a view replaces.
#[derive(Clone, Copy)]
enum Instead {
    /// The common directory of the repository's worktrees.
    OfShared,
    /// The whole git directory except the index.
    OfEverything,
}

impl Git {
    /// Git in a checkout of the repository at `common`, with the git directory that the repository has recorded for it.
    /// The checkout's own `.git` file is ignored.
    pub(crate) fn inside(common: &Path, dir: &Path) -> Result<Self, RunError> {
        let own = own_dir(common, dir)?;
        Self::seen_through(&Arc::new(GitView::linked(&own.common)?), dir, &own)
    }

    /// Git in a checkout that an agent or a stranger can rewrite entirely, with its own git directory: a clone or a
    /// submodule. Everything that git writes is discarded.
    pub(crate) fn foreign(dir: &Path, git_dir: &Path) -> Result<Self, RunError> {
        let common = match plain_file(&git_dir.join("commondir"))? {
            Some(text) => git_dir.join(String::from_utf8_lossy(&text).trim_end()),
            None => git_dir.to_owned(),
        };
        let view = Arc::new(GitView::copied(git_dir, &common)?);
        Self::with_view(dir, git_dir, (view, Instead::OfEverything))
    }

    /// Git in a checkout of a repository, through an existing view.
    pub(crate) fn seen_through(view: &Arc<GitView>, dir: &Path, own: &OwnDir) -> Result<Self, RunError> {
        // Git reads this file to find refs, even if GIT_COMMON_DIR is set.
        let leads = plain_file(&own.git_dir.join("commondir"))?
            .map_or_else(|| own.git_dir.clone(), |text| own.git_dir.join(String::from_utf8_lossy(&text).trim_end()));
        if leads != own.common && fs::canonicalize(&leads).ok() != fs::canonicalize(&own.common).ok() {
            return Err(RunError::Odd { path: own.git_dir.join("commondir"), why: "it leads elsewhere".into() });
        }
        Self::with_view(dir, &own.git_dir, (view.clone(), Instead::OfShared))
    }

    fn with_view(dir: &Path, git_dir: &Path, view: (Arc<GitView>, Instead)) -> Result<Self, RunError> {
        Ok(Self {
            dir: dir.to_owned(),
            work_tree: dir != git_dir,
            abroad: false,
            view: Some(view),
            settings: of_worktree(git_dir)?,
            git_dir: Some(git_dir.to_owned()),
            index: None,
        })
    }

    /// The same with a private copy of the index, which git refreshes.
    pub(crate) fn on_index(mut self, index: &Path) -> Self {
        self.index = Some(Box::new(index.to_owned()));
        self
    }

    /// Git in a directory outside of any repository, to create one there.
    pub(crate) fn outside(dir: &Path) -> Self {
        Self::plain(dir, None, false)
    }

    /// The same with access to remotes.
    pub(crate) fn abroad(mut self) -> Self {
        self.abroad = true;
        self
    }

    /// Git in a checkout that toft has just created and no agent has seen.
    pub(crate) fn made(dir: &Path) -> Self {
        Self::plain(dir, Some(dir.join(".git")), true)
    }

    fn plain(dir: &Path, git_dir: Option<PathBuf>, work_tree: bool) -> Self {
        Self {
            dir: dir.to_owned(),
            git_dir,
            work_tree,
            abroad: false,
            view: None,
            settings: Settings::new(),
            index: None,
        }
    }

    /// Git on a repository, independent of its worktrees.
    pub(crate) fn of(git_dir: &Path) -> Result<Self, RunError> {
        let mut git = Self::plain(git_dir, Some(git_dir.to_owned()), false);
        if git.names_no_program() {
            return Ok(git);
        }
        let listed = git.run(["config", "--list", "--show-scope", "--name-only", "-z"])?.ok()?;
        let mut words = listed.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        while let (Some(scope), Some(key)) = (words.next(), words.next()) {
            if matches!(scope.as_str(), "local" | "worktree") {
                git.settings.extend(switched_off(&key).map(|value| (key, value.to_owned())));
            }
        }
        if git.settings.len() > MOST_SETTINGS {
            return Err(RunError::Hostile { dir: git_dir.to_owned() });
        }
        Ok(git)
    }

    /// Git on a repository with access to its remotes, in the directory to which their relative paths refer.
    pub(crate) fn of_remotes(git_dir: &Path) -> Result<Self, RunError> {
        let mut git = Self::of(git_dir)?;
        git.abroad = true;
        if let Some(top) = git_dir.parent().filter(|_| git_dir.ends_with(".git")) {
            git.dir = top.to_owned();
        }
        Ok(git)
    }

    /// The same command with another repository's objects and refs, and these settings besides.
    pub(crate) fn with_repository(mut self, git_dir: &Path, mut settings: Settings) -> Self {
        // Of two values git takes the last: what would execute a program stays overridden.
        settings.append(&mut self.settings);
        (self.settings, self.git_dir) = (settings, Some(git_dir.to_owned()));
        self
    }

    /// Whether the text of the repository's configuration rules out any program, so that git need not be asked.
    fn names_no_program(&self) -> bool {
        const SIGNS: [&str; 13] = [
            "filter",
            "driver",
            "include",
            "credential",
            "protocol",
            "textconv",
            "command",
            "worktreeconfig",
            "pack",
            "proxy",
            "askpass",
            "helper",
            "vcs",
        ];
        let Some(own) = &self.git_dir else { return false };
        let common = match fs::read_to_string(own.join("commondir")) {
            Ok(text) => own.join(text.trim_end()),
            Err(_) => own.clone(),
        };
        fs::read_to_string(common.join("config")).is_ok_and(|text| {
            let text = text.to_ascii_lowercase();
            !SIGNS.iter().any(|sign| text.contains(sign))
        })
    }

    /// A git command with these arguments.
    pub(crate) fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Result<Run, RunError> {
        let mut run = Run::bare_git(&self.dir, &self.settings, self.abroad)?;
        run = match &self.git_dir {
            Some(git_dir) => run.env("GIT_DIR", git_dir),
            // Prevents git from using a repository in a parent directory.
            None => run.env("GIT_CEILING_DIRECTORIES", self.dir.parent().unwrap_or(&self.dir)),
        };
        if let Some((view, instead)) = &self.view {
            run = run.env("GIT_NO_REPLACE_OBJECTS", "1");
            run = match instead {
                Instead::OfShared => run.env("GIT_COMMON_DIR", view.path()),
                Instead::OfEverything => {
                    run.env("GIT_DIR", view.path()).env("GIT_INDEX_FILE", self.git_dir().join("index"))
                }
            };
        }
        if self.work_tree {
            run = run.env("GIT_WORK_TREE", &self.dir);
        }
        if let Some(index) = &self.index {
            // A split index would be written beside the checkout's own.
            run = run.args(["-c", "core.splitIndex=false"]);
            run = run.env("GIT_INDEX_FILE", index.as_path()).env("GIT_OPTIONAL_LOCKS", "1");
        }
        Ok(run.args(args))
    }

    /// The working directory of git commands.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The git directory of this checkout alone.
    pub(crate) fn git_dir(&self) -> &Path {
        self.git_dir.as_deref().unwrap_or(&self.dir)
    }

    /// The repository to fetch from: the view, if there is one.
    pub(crate) fn repository(&self) -> &Path {
        self.view.as_ref().map_or_else(|| self.git_dir(), |(view, _)| view.path())
    }
}

/// The git directory of one checkout, and the common directory that it shares with others.
pub(crate) struct OwnDir {
    pub(crate) git_dir: PathBuf,
    pub(crate) common: PathBuf,
}

/// The git directory of the checkout at `dir`, as recorded in the repository at `common`.
pub(crate) fn own_dir(common: &Path, dir: &Path) -> Result<OwnDir, RunError> {
    let of = |git_dir: PathBuf| OwnDir { common: git_dir.clone(), git_dir };
    let link = dir.join(".git");
    if link == common || dir == common {
        return Ok(of(common.to_owned()));
    }
    if crate::git::is_recorded_clone(common, dir) {
        return Ok(of(link));
    }
    if let Some(entry) = crate::git::entry_of(common, dir) {
        return Ok(OwnDir { git_dir: entry, common: common.to_owned() });
    }
    // A submodule, or a repository whose git directory is elsewhere.
    let text = plain_file(&link)?.unwrap_or_default();
    let target = String::from_utf8_lossy(&text).trim_end().strip_prefix("gitdir: ").map(|target| dir.join(target));
    match target.and_then(|target| fs::canonicalize(target).ok()) {
        Some(target) if target == common => Ok(of(target)),
        _ => Err(RunError::Odd { path: dir.to_owned(), why: format!("{} has no such worktree", common.display()) }),
    }
}

/// The override for a setting that names a program or a connection.
fn switched_off(key: &str) -> Option<&'static str> {
    let (section, rest) = key.split_once('.')?;
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    match (section, name) {
        ("filter", "clean" | "smudge" | "process") => Some(""),
        ("filter", "required") => Some("false"),
        ("merge", "driver") => Some("false"),
        ("diff", "command" | "textconv") | ("credential", "helper") => Some(""),
        ("protocol", "allow") => Some("never"),
        ("core", "sshcommand") => Some("ssh"),
        ("core", "askpass" | "gitproxy") => Some(""),
        ("remote", "uploadpack") => Some("git-upload-pack"),
        ("remote", "receivepack") => Some("git-receive-pack"),
        ("http" | "remote", "proxy") => Some(""),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_repository_would_have_executed_is_switched_off() {
        for (key, value) in [
            ("filter.x.smudge", ""),
            ("filter.a=b.c.process", ""),
            ("filter.lfs.required", "false"),
            ("merge.mine.driver", "false"),
            ("protocol.ext.allow", "never"),
            ("credential.helper", ""),
        ] {
            assert_eq!(switched_off(key), Some(value), "{key}");
        }
        assert_eq!(switched_off("core.bare"), None);
        assert_eq!(switched_off("branch.main.merge"), None);
    }
}
