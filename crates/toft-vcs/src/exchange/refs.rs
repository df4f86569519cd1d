//! Reads remotes and refs from git's files without starting git, and runs git commands that contact a remote.

use std::{fs, path::Path, time::Duration};

use super::{ExchangeError, classify_failure};
use crate::{RunError, command::Run, git_run::Git, git_view::Settings};

/// Time limit for a shallow clone to fetch the commits of its project.
const FIRST_COMMITS: Duration = Duration::from_secs(300);

/// Every remote with its URL, in the order of the configuration.
pub(crate) fn remotes(git_dir: &Path) -> Result<Vec<(String, String)>, RunError> {
    match fs::read_to_string(git_dir.join("config")) {
        Ok(text) if is_plain(&text) => Ok(plain_remotes(&text)),
        _ => {
            let listed = Git::of(git_dir)?.run(["config", "--get-regexp", r"^remote\..*\.url$"])?.maybe()?;
            let lines = listed.unwrap_or_default();
            let named = |line: &str| {
                let (key, url) = line.split_once(' ')?;
                Some((key.strip_prefix("remote.")?.strip_suffix(".url")?.to_owned(), url.to_owned()))
            };
            Ok(lines.lines().filter_map(named).collect())
        }
    }
}

/// Whether a configuration file can be parsed without git: no includes, and remote sections in the usual form.
fn is_plain(text: &str) -> bool {
    let usual = |line: &str| line.strip_prefix("[remote \"").is_some_and(|rest| rest.ends_with("\"]"));
    let lower = text.to_ascii_lowercase();
    // Quotes, comments and continued lines are git's to read, and so are several values of one key.
    let is_simple = |line: &&str| !line.contains(['"', '\\', '#', ';']) && !line.trim_end().ends_with('=');
    let urls: Vec<&str> = lower.lines().filter(|line| line.trim_start().starts_with("url")).collect();
    let remotes = lower.lines().filter(|line| line.trim_start().starts_with("[remote")).count();
    !lower.contains("include")
        && urls.iter().all(is_simple)
        && urls.len() <= remotes
        && lower
            .lines()
            .zip(text.lines())
            .filter(|(lower, _)| lower.trim().starts_with("[remote"))
            .all(|(_, line)| usual(line.trim()))
}

/// Whether a remote's name is a plain name, not an option or a path.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(['-', '/', '.'])
        && name.chars().all(|c| c.is_alphanumeric() || "-_./".contains(c))
        && !name.contains("..")
}

fn plain_remotes(text: &str) -> Vec<(String, String)> {
    let mut remotes: Vec<(String, String)> = Vec::new();
    let mut section: Option<String> = None;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header
                .strip_prefix("remote \"")
                .and_then(|rest| rest.strip_suffix("\"]"))
                .map(|name| name.replace("\\\"", "\""));
        } else if let (Some(name), Some((key, url))) = (&section, line.split_once('='))
            && key.trim().eq_ignore_ascii_case("url")
            && !remotes.iter().any(|(known, _)| known == name)
        {
            remotes.push((name.clone(), url.trim().trim_matches('"').to_owned()));
        }
    }
    remotes
}

/// The remote to exchange with: the named one, otherwise `origin`, otherwise the only one.
pub(super) fn choose(git_dir: &Path, named: Option<&str>) -> Result<Option<(String, String)>, ExchangeError> {
    let mut remotes = remotes(git_dir)?;
    remotes.retain(|(name, _)| is_name(name));
    let names = remotes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let wanted = match named {
        Some(named) => remotes.iter().position(|(name, _)| name == named),
        None => remotes.iter().position(|(name, _)| name == "origin").or_else(|| (remotes.len() == 1).then_some(0)),
    };
    match wanted {
        Some(at) => Ok(Some(remotes.swap_remove(at))),
        None if remotes.is_empty() => Ok(None),
        None => Err(ExchangeError::Conflict(match named {
            Some(named) => format!("there is no remote `{named}` (there are {names})"),
            None => {
                format!("which remote? There are {names}; [sync] remote = \"…\" in .git/toft/config.toml names one")
            }
        })),
    }
}

/// The remote of the project: `upstream` of a fork, otherwise `origin`, otherwise the only one.
pub(super) fn main_remote(git_dir: &Path) -> Result<Option<(String, String)>, RunError> {
    let mut remotes = remotes(git_dir)?;
    remotes.retain(|(name, _)| is_name(name));
    let named = |wanted: &str| remotes.iter().position(|(name, _)| name == wanted);
    let at = named("upstream").or_else(|| named("origin")).or_else(|| (remotes.len() == 1).then_some(0));
    Ok(at.map(|at| remotes.swap_remove(at)))
}

/// The root commits of a project whose clone is shallow. Only commits are fetched, into a temporary repository.
pub(super) fn first_commits(git_dir: &Path, remote: &str, url: &str) -> Result<String, ExchangeError> {
    let aside = tempfile::tempdir().map_err(crate::lock::io("make", &std::env::temp_dir()))?;
    let own = aside.path().join("commits.git");
    let local = url.starts_with('.').then(|| git_dir.parent().unwrap_or(git_dir).join(url).display().to_string());
    let url = local.as_deref().unwrap_or(url);
    let into = own.display().to_string();
    Git::of_remotes(git_dir)?.run(["init", "--quiet", "--bare", into.as_str()])?.ok()?;
    let remote_git = remote_git(&own, url, FIRST_COMMITS)?;
    let more = ["--filter=tree:0", "--depth=2147483647"];
    if !remote_git.fetch(url, &["+HEAD:refs/heads/all"], &more).map_err(|error| cannot_tell(&error, remote))? {
        return Err(ExchangeError::Conflict(format!("{remote} has no commits")));
    }
    Ok(Git::of(&own)?.run(["rev-list", "--max-parents=0", "refs/heads/all"])?.text()?)
}

fn cannot_tell(error: &ExchangeError, remote: &str) -> ExchangeError {
    ExchangeError::Conflict(format!(
        "this clone is shallow, and {remote} cannot be asked where the project's history begins ({error}); \
         git fetch --unshallow helps, or another try"
    ))
}

/// Git for a remote at `url`, without prompts.
pub(crate) fn remote_git(git_dir: &Path, url: &str, patience: Duration) -> Result<RemoteGit, RunError> {
    let git = Git::of_remotes(git_dir)?;
    let local = url.starts_with('/') || url.starts_with('.') || url.starts_with("file:") || url.starts_with("http");
    let own_ssh = || std::env::var_os("GIT_SSH_COMMAND").is_some() || std::env::var_os("GIT_SSH").is_some();
    let quiet = !local && !own_ssh() && git.run(["config", "--get", "core.sshCommand"])?.maybe()?.is_none();
    let is_local = url.starts_with(['/', '.']) || url.starts_with("file:");
    Ok(RemoteGit { git, quiet, patience, is_local })
}

/// Git for the remote of a project, with objects and refs in the repository `own` in place of the project's. It reaches
/// the remote as the project's repository does.
pub(super) fn ledger_git(
    project: &Path,
    own: &Path,
    remote: &str,
    url: &str,
    patience: Duration,
) -> Result<RemoteGit, RunError> {
    let reached = remote_git(project, url, patience)?;
    let settings = contact_settings(project, remote, url)?;
    Ok(RemoteGit { git: reached.git.with_repository(own, settings), ..reached })
}

/// Settings of a repository that say how a remote of it is reached.
fn contact_settings(project: &Path, remote: &str, url: &str) -> Result<Settings, RunError> {
    const CONTACT_SECTIONS: [&str; 8] =
        ["pushurl", "[url", "[http", "[ssh", "[credential", "include", "[user", "worktreeconfig"];
    if remote == url {
        return Ok(Settings::new());
    }
    let text = fs::read_to_string(project.join("config")).unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    if is_plain(&text) && !CONTACT_SECTIONS.iter().any(|sign| lower.contains(sign)) {
        return Ok(vec![(format!("remote.{remote}.url"), url.to_owned())]);
    }
    let mut settings = Settings::new();
    let listed = Git::of(project)?.run(["config", "--list", "--show-scope", "-z"])?.ok()?;
    let mut words = listed.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let urls = ["url", "pushurl"].map(|name| format!("remote.{remote}.{name}"));
    while let (Some(scope), Some(setting)) = (words.next(), words.next()) {
        let Some((key, value)) = setting.split_once('\n') else { continue };
        let of_contact = ["url.", "http.", "ssh.", "credential."].iter().any(|section| key.starts_with(section));
        if matches!(&*scope, "local" | "worktree") && (of_contact || urls.iter().any(|url| url == key)) {
            settings.push((key.to_owned(), value.to_owned()));
        }
    }
    Ok(settings)
}

/// Runs git commands that contact a remote.
pub(crate) struct RemoteGit {
    git: Git,
    /// ssh is toft's own choice, so it is told not to prompt.
    quiet: bool,
    patience: Duration,
    /// The remote repository is on this machine.
    is_local: bool,
}

impl RemoteGit {
    /// Git outside of any repository, to clone from a remote at `url`.
    pub(crate) fn outside(dir: &Path, url: &str, patience: Duration) -> Result<Self, RunError> {
        let own_ssh = std::env::var_os("GIT_SSH_COMMAND").is_some() || std::env::var_os("GIT_SSH").is_some();
        let quiet = !url.starts_with("http") && !own_ssh;
        Ok(Self { git: Git::outside(dir).abroad(), quiet, patience, is_local: false })
    }

    /// A git command with these arguments and the time limit.
    pub(crate) fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<Run, RunError> {
        let run = self.git.run(args)?.patience(self.patience);
        Ok(match self.quiet {
            true => run.env("GIT_SSH_COMMAND", "ssh -oBatchMode=yes -oConnectTimeout=15"),
            false => run,
        })
    }

    /// Fetches exactly these refs. Returns false if the remote does not have them.
    pub(crate) fn fetch(&self, from: &str, refs: &[&str], more: &[&str]) -> Result<bool, ExchangeError> {
        // In a pack, versions of a ledger are stored as deltas; as loose objects, each would be complete.
        let words = [
            "-c",
            "fetch.unpackLimit=1",
            "fetch",
            "--upload-pack=git-upload-pack",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--refmap=",
        ];
        match self.run(words.into_iter().chain(more.iter().copied()).chain([from]).chain(refs.iter().copied()))?.ok() {
            Ok(_) => Ok(true),
            Err(RunError::Failed { said, .. }) if said.contains("couldn't find remote ref") => Ok(false),
            Err(error) => Err(classify_failure(error, from)),
        }
    }

    /// Deletes branches of the remote, each only if it is still at the given commit. Returns false if one was missing or
    /// has changed, which is left alone.
    pub(super) fn delete(&self, at: &str, branches: &[(String, String)]) -> Result<bool, RunError> {
        let words = ["push", "--receive-pack=git-receive-pack", "--quiet", "--no-verify", "--no-recurse-submodules"];
        let leases: Vec<String> =
            branches.iter().map(|(name, commit)| format!("--force-with-lease={name}:{commit}")).collect();
        let gone: Vec<String> = branches.iter().map(|(name, _)| format!(":{name}")).collect();
        let words = words.into_iter().chain(leases.iter().map(String::as_str)).chain([at]);
        match self.run(words.chain(gone.iter().map(String::as_str)))?.ok() {
            Err(RunError::Failed { said, .. })
                if said.contains("stale info") || said.contains("remote ref does not exist") =>
            {
                Ok(false)
            }
            ended => ended.map(|_| true),
        }
    }

    /// Pushes a commit.
    pub(super) fn push(&self, to: &str, what: &str) -> Result<(), RunError> {
        self.push_with(to, what, &[])
    }

    /// Force-pushes a branch, if it is still at the commit `was`.
    pub(crate) fn replace(&self, to: &str, what: &str, branch: &str, was: &str) -> Result<(), RunError> {
        // Without a plus sign, which would overrule the condition.
        self.push_with(to, what, &[&format!("--force-with-lease={branch}:{was}")])
    }

    fn push_with(&self, to: &str, what: &str, more: &[&str]) -> Result<(), RunError> {
        // For a local remote, searching for deltas costs more than copying bytes; its own git packs them later.
        let (settings, receive) = match self.is_local {
            true => (["-c", "pack.window=0"].as_slice(), "git -c receive.unpackLimit=1 receive-pack"),
            false => ([].as_slice(), "git-receive-pack"),
        };
        let receive = format!("--receive-pack={receive}");
        let words = ["push", &receive, "--quiet", "--no-verify", "--no-recurse-submodules"];
        let words = settings.iter().copied().chain(words).chain(more.iter().copied()).chain([to, what]);
        self.run(words)?.ok().map(drop)
    }
}

/// Whether refs may exist below a prefix that ends with `/`.
pub(super) fn any_below(git_dir: &Path, below: &str) -> bool {
    let packed = || fs::read_to_string(git_dir.join("packed-refs")).is_ok_and(|text| text.contains(below));
    git_dir.join(below).is_dir() || git_dir.join("reftable").exists() || packed()
}

/// The commit of a ref.
pub(super) fn resolve(git: &Git, git_dir: &Path, name: &str) -> Result<Option<String>, RunError> {
    let whole = |text: &str| text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Ok(text) = fs::read_to_string(git_dir.join(name))
        && whole(text.trim())
    {
        return Ok(Some(text.trim().to_owned()));
    }
    if git_dir.join("reftable").exists() {
        return git.run(["rev-parse", "--verify", "--quiet", name])?.maybe();
    }
    let packed = fs::read_to_string(git_dir.join("packed-refs")).unwrap_or_default();
    let found = packed.lines().filter_map(|line| line.split_once(' ')).find(|(_, known)| *known == name);
    Ok(found.map(|(oid, _)| oid.to_owned()))
}

/// Whether `of` is an ancestor of `commit`, or the same.
pub(crate) fn ancestor(git: &Git, of: &str, commit: &str) -> Result<bool, RunError> {
    Ok(of == commit || git.run(["merge-base", "--is-ancestor", of, commit])?.end()?.code == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_replaced_only_if_it_is_still_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (there, here) = (dir.path().join("there.git"), dir.path().join("here.git"));
        let git = |at: &Path, args: &[&str]| Git::of(at).unwrap().run(args.iter().copied()).unwrap().text().unwrap();
        for at in [&there, &here] {
            Git::outside(dir.path()).run(["init", "-q", "--bare", at.to_str().unwrap()]).unwrap().ok().unwrap();
        }
        let tree = git(&here, &["hash-object", "-t", "tree", "-w", "/dev/null"]);
        let named = ["-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m"];
        let commit = |name: &str| git(&here, &[&named[..], &[name, &tree]].concat());
        let (first, second, third) = (commit("1"), commit("2"), commit("3"));
        let url = there.display().to_string();
        let remote = remote_git(&here, &url, Duration::from_secs(20)).unwrap();
        let replace = |to: &str, was: &str| remote.replace(&url, &format!("{to}:refs/heads/a"), "refs/heads/a", was);
        replace(&first, "").unwrap();
        replace(&second, &first).unwrap();
        assert!(replace(&third, &first).is_err(), "it is at {second}");
        assert_eq!(git(&there, &["rev-parse", "refs/heads/a"]), second);
    }

    #[test]
    fn remotes_are_read_from_a_plain_configuration() {
        let text = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = /a/b.git\n\tfetch = +x:y\n[branch \"main\"]\n\turl = no\n[remote \"up\"]\n url=ssh://h/p\n";
        assert_eq!(plain_remotes(text), [("origin".into(), "/a/b.git".into()), ("up".into(), "ssh://h/p".into())]);
    }
}
