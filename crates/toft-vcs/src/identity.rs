//! Recognises clones of the same repository: by their root commits and their remotes.

use std::path::Path;

use toft_core::repository::MACHINE_PREFIX;

use crate::{
    Checkout, Vcs,
    command::{Run, RunError},
    git_run::Git,
};

/// The properties of a repository by which its clones are recognised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Root commits of the checkout's history; empty if they are unknown.
    pub roots: Vec<String>,
    /// The normalised URLs of `origin` and `upstream`, and the repository's own path. Local paths are prefixed with the
    /// machine's name.
    pub remotes: Vec<String>,
}

/// Determines the identity of a repository on the machine named `machine`. A shallow clone does not know its root
/// commits.
pub fn identity(checkout: &Checkout, machine: &str) -> Result<Identity, RunError> {
    let (mut roots, urls) = match checkout.vcs {
        Vcs::Git => git(&checkout.common_dir)?,
        Vcs::Jj => match crate::exchange::git_dir(checkout) {
            Some(git_dir) => git(&git_dir)?,
            None => (Vec::new(), Vec::new()),
        },
        Vcs::Hg | Vcs::Sl => hg(checkout)?,
        Vcs::None => (Vec::new(), Vec::new()),
    };
    roots.sort();
    roots.dedup();
    let own = checkout.common_dir.parent().filter(|_| !is_bare(checkout)).unwrap_or(&checkout.common_dir);
    let mut remotes: Vec<String> = urls.iter().map(|url| normalised(url, &checkout.root)).collect();
    remotes.push(normalised(&own.to_string_lossy(), &checkout.root));
    for remote in &mut remotes {
        if remote.starts_with('/') {
            *remote = format!("{MACHINE_PREFIX}{machine}{remote}");
        }
    }
    remotes.sort();
    remotes.dedup();
    Ok(Identity { roots, remotes })
}

fn is_bare(checkout: &Checkout) -> bool {
    checkout.root == checkout.common_dir
}

fn git(git_dir: &Path) -> Result<(Vec<String>, Vec<String>), RunError> {
    let git = Git::of(git_dir)?;
    // Other remotes may belong to other projects, such as a merged dependency or a deployment target.
    let listed = git.run(["config", "--get-regexp", r"^remote\.(origin|upstream)\.url$"])?.maybe()?.unwrap_or_default();
    let urls = listed.lines().filter_map(|line| line.split_once(' ').map(|(_, url)| url.to_owned())).collect();
    let shallow = git_dir.join("shallow").exists();
    let born = git.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.maybe()?.is_some();
    let roots = match (shallow, born) {
        (true, _) => String::new(),
        (false, true) => git.run(["rev-list", "--max-parents=0", "HEAD"])?.text()?,
        // A clone of a repository whose HEAD names no branch still has its history. Ledger branches have root commits
        // of their own.
        (false, false) => {
            let ours = ["--exclude=*/toft", "--exclude=*/toft-ledger", "--exclude=*/toft-propose/*", "--remotes"];
            git.run(["rev-list", "--max-parents=0"].into_iter().chain(ours))?.text()?
        }
    };
    Ok((roots.lines().map(str::to_owned).collect(), urls))
}

fn hg(checkout: &Checkout) -> Result<(Vec<String>, Vec<String>), RunError> {
    let ask = |args: &[&str]| match checkout.vcs {
        Vcs::Sl => Run::sl(&checkout.root)?.args(args.iter().copied()).maybe(),
        Vcs::Git | Vcs::Jj | Vcs::Hg | Vcs::None => Run::hg(&checkout.root)?.args(args.iter().copied()).maybe(),
    };
    let roots = ask(&["log", "-r", "roots(::.)", "-T", "{node}\n"])?.unwrap_or_default();
    let paths = ask(&["paths"])?.unwrap_or_default();
    // Other paths may belong to other projects.
    let own = |name: &str| ["default", "default-push", "origin", "upstream"].contains(&name);
    let urls = paths.lines().filter_map(|line| line.split_once(" = ")).filter(|(name, _)| own(name.trim()));
    let urls = urls.map(|(_, url)| url.to_owned()).collect();
    Ok((roots.lines().map(str::to_owned).collect(), urls))
}

/// Normalises the URL of a remote to `host/path`, without scheme, user and `.git` suffix; a local URL to an absolute
/// path.
pub fn normalised(url: &str, base: &Path) -> String {
    let trimmed = |text: &str| text.trim_end_matches('/').trim_end_matches(".git").trim_end_matches('/').to_owned();
    if let Some((scheme, rest)) = url.split_once("://") {
        if scheme == "file" {
            return local(rest, base);
        }
        let rest = rest.rsplit_once('@').filter(|(user, _)| !user.contains('/')).map_or(rest, |(_, rest)| rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let usual = |(_, port): &(&str, &str)| ["22", "80", "443", "9418"].contains(port);
        let host = host.split_once(':').filter(usual).map_or(host, |(host, _)| host);
        return format!("{}/{}", host.to_ascii_lowercase(), trimmed(path.trim_start_matches('/')));
    }
    // `user@host:path`, unless a slash comes before the colon: then it is a path.
    match url.split_once(':') {
        Some((host, path)) if !host.contains('/') && host.len() > 1 => {
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            format!("{}/{}", host.to_ascii_lowercase(), trimmed(path.trim_start_matches('/')))
        }
        _ => local(url, base),
    }
}

fn local(path: &str, base: &Path) -> String {
    let path = base.join(path);
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    let path = if path.ends_with(".git") { path.parent().map(Path::to_owned).unwrap_or(path) } else { path };
    path.to_string_lossy().trim_end_matches('/').trim_end_matches(".git").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_has_one_spelling() {
        let base = Path::new("/home/ana/project");
        let same = [
            "https://example.org/team/app.git",
            "https://ana:secret@Example.org/team/app",
            "ssh://git@example.org:22/team/app.git/",
            "git@example.org:team/app.git",
            "example.org:/team/app",
        ];
        for url in same {
            assert_eq!(normalised(url, base), "example.org/team/app", "{url}");
        }
        assert_eq!(normalised("ssh://git@example.org:2222/team/app", base), "example.org:2222/team/app");
        assert_eq!(normalised("../up.git", base), "/home/ana/project/../up");
        assert_eq!(normalised("file:///srv/up.git", base), "/srv/up");
    }
}
