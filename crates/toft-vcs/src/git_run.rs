//! Git, with everything switched off that a repository would have it execute.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

use crate::command::{Run, RunError};

/// How many settings of a repository may have to be switched off.
pub(crate) const MOST_SETTINGS: usize = 1_000;

/// Set for every git: nothing is executed, asked or tidied by the way.
const GIT_SETTINGS: [(&str, &str); 13] = [
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
    ("submodule.recurse", "false"),
    ("checkout.workers", "0"),
];

/// Set for a git that stays on this machine.
const GIT_AT_HOME: [(&str, &str); 6] = [
    ("core.sshCommand", "false"),
    ("core.gitProxy", "false"),
    ("core.askPass", ""),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("fastimport.unpackLimit", "0"),
];

/// Set for a git that talks to another repository: by the ways everybody knows.
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

/// What the user may say about how others are reached.
const GIT_WAYS: [&str; 4] = ["GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_SSL_NO_VERIFY"];

/// What the user may say to git through the environment.
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
    /// Git in `dir`, with nothing there switched off yet but what always is. See [`Git`].
    fn bare_git(dir: &Path, more: &[(String, String)], abroad: bool) -> Result<Self, RunError> {
        Ok(Self::new("git", dir)?.careful(more, abroad))
    }

    /// Every git that this starts, itself or through another program, executes nothing that a repository names.
    pub(crate) fn careful(mut self, more: &[(String, String)], abroad: bool) -> Self {
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

/// Git in one directory, with what the repository there would have it execute switched off.
pub(crate) struct Git {
    dir: PathBuf,
    git_dir: Option<PathBuf>,
    work_tree: bool,
    /// It may talk to other repositories.
    abroad: bool,
    off: Vec<(String, String)>,
    /// Another index than the checkout's own, which git may refresh.
    index: Option<Box<PathBuf>>,
}

impl Git {
    /// In a worktree.
    pub(crate) fn inside(dir: &Path) -> Result<Self, RunError> {
        let own = dir.join(".git");
        match own.is_dir() {
            // What a repository says about where its files are is its own word.
            true => Self::moved(dir, own),
            false => Self::new(dir, None, false),
        }
    }

    /// In a checkout whose repository may believe that it is elsewhere.
    pub(crate) fn moved(dir: &Path, git_dir: PathBuf) -> Result<Self, RunError> {
        Self::new(dir, Some(git_dir), true)
    }

    /// On a repository, wherever its worktrees are.
    pub(crate) fn of(git_dir: &Path) -> Result<Self, RunError> {
        Self::new(git_dir, Some(git_dir.to_owned()), false)
    }

    /// On a repository, from where the paths of its remotes begin.
    pub(crate) fn of_remotes(git_dir: &Path) -> Result<Self, RunError> {
        let mut git = Self::of(git_dir)?.abroad();
        if let Some(top) = git_dir.parent().filter(|_| git_dir.ends_with(".git")) {
            git.dir = top.to_owned();
        }
        Ok(git)
    }

    /// In a worktree of this repository that was just made: what is switched off is the same.
    pub(crate) fn linked(&self, dir: &Path) -> Self {
        Self { dir: dir.to_owned(), git_dir: None, work_tree: false, abroad: false, off: self.off.clone(), index: None }
    }

    /// The same on a private copy of the index, which git keeps fresh.
    pub(crate) fn on_index(mut self, index: &Path) -> Self {
        self.index = Some(Box::new(index.to_owned()));
        self
    }

    /// The same, and it may talk to other repositories.
    fn abroad(mut self) -> Self {
        self.abroad = true;
        self
    }

    fn new(dir: &Path, git_dir: Option<PathBuf>, work_tree: bool) -> Result<Self, RunError> {
        let mut git = Self { dir: dir.to_owned(), git_dir, work_tree, abroad: false, off: Vec::new(), index: None };
        if git.names_no_program() {
            return Ok(git);
        }
        let listed = git.run(["config", "--list", "--show-scope", "--name-only", "-z"])?.ok()?;
        let mut words = listed.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        while let (Some(scope), Some(key)) = (words.next(), words.next()) {
            if matches!(scope.as_str(), "local" | "worktree") {
                git.off.extend(switched_off(&key).map(|value| (key, value.to_owned())));
            }
        }
        if git.off.len() > MOST_SETTINGS {
            return Err(RunError::Hostile { dir: dir.to_owned() });
        }
        Ok(git)
    }

    /// Whether the repository's configuration is short and plain enough to be seen through without asking git.
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
        let link = self.dir.join(".git");
        let own = match &self.git_dir {
            Some(git_dir) => git_dir.clone(),
            None if link.is_dir() => link,
            None => match fs::read_to_string(&link) {
                Ok(text) => self.dir.join(text.trim_end().trim_start_matches("gitdir: ")),
                Err(_) => return false,
            },
        };
        let common = match fs::read_to_string(own.join("commondir")) {
            Ok(text) => own.join(text.trim_end()),
            Err(_) => own,
        };
        fs::read_to_string(common.join("config")).is_ok_and(|text| {
            let text = text.to_ascii_lowercase();
            !SIGNS.iter().any(|sign| text.contains(sign))
        })
    }

    /// A run of it.
    pub(crate) fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Result<Run, RunError> {
        let mut run = Run::bare_git(&self.dir, &self.off, self.abroad)?;
        if let Some(git_dir) = &self.git_dir {
            run = run.env("GIT_DIR", git_dir);
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

    /// Whether the repository names something to be executed, which is switched off here but not for others.
    pub(crate) fn names_programs(&self) -> bool {
        !self.off.is_empty()
    }

    /// Where it runs.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// What a repository's setting is replaced by, if it names a program or a way out.
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
