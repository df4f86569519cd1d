//! The author of commits in a checkout, as git would name them.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::git_dir;
use crate::{
    Checkout,
    command::Run,
    git_run::Git,
    git_view::{parse_plain_settings, plain_file},
};

/// The author name of commits in a checkout; none if it is not configured.
pub fn author(checkout: &Checkout) -> Option<String> {
    author_part(checkout, "GIT_AUTHOR_NAME", "user.name")
}

/// The email address of the author of commits in a checkout; none if it is not configured.
pub fn author_email(checkout: &Checkout) -> Option<String> {
    author_part(checkout, "GIT_AUTHOR_EMAIL", "user.email")
}

fn author_part(checkout: &Checkout, variable: &str, key: &str) -> Option<String> {
    let non_empty = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    if let Some(value) = env::var(variable).ok().and_then(non_empty) {
        return Some(value);
    }
    let git_dir = git_dir(checkout)?;
    let is_redirected = env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("GIT_CONFIG"));
    let found = if is_redirected { None } else { find_in_files(&config_files(&git_dir), key) };
    found.and_then(non_empty).or_else(|| {
        let git = Git::of(&git_dir).ok()?;
        git.run(["config", "--get", key]).ok()?.maybe().ok()?.and_then(non_empty)
    })
}

/// The files in which git looks first: a setting in an earlier one hides those in later ones.
fn config_files(git_dir: &Path) -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(PathBuf::from);
    let xdg = env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let user = home.as_ref().map(|home| home.join(".gitconfig"));
    let other = xdg.or_else(|| Some(home?.join(".config"))).map(|dir| dir.join("git/config"));
    [Some(git_dir.join("config")), user, other].into_iter().flatten().collect()
}

/// Finds a setting without starting git, which takes as long as a whole claim. `None` where only git can tell: it is in no
/// file, or a file before it includes others or has quotes.
fn find_in_files(files: &[PathBuf], key: &str) -> Option<String> {
    for file in files {
        // An agent can put a pipe in its place.
        let Some(bytes) = plain_file(file).ok()? else { continue };
        let settings = parse_plain_settings(std::str::from_utf8(&bytes).ok()?)?;
        let leads_elsewhere = |(name, _): &(String, String)| {
            name.starts_with("include.") || name.starts_with("includeif.") || name == "extensions.worktreeconfig"
        };
        if settings.iter().any(leads_elsewhere) {
            return None;
        }
        if let Some((_, value)) = settings.into_iter().rev().find(|(name, _)| name == key) {
            return Some(value);
        }
    }
    None
}

/// A run for a user without a name and an address.
pub(crate) fn anonymous(run: Run) -> Run {
    let run = run.env("GIT_AUTHOR_NAME", "toft").env("GIT_AUTHOR_EMAIL", "toft@localhost");
    run.env("GIT_COMMITTER_NAME", "toft").env("GIT_COMMITTER_EMAIL", "toft@localhost")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn find(texts: &[&str]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let write = |(n, text): (usize, &&str)| {
            let path = dir.path().join(n.to_string());
            fs::write(&path, text).unwrap();
            path
        };
        let mut files: Vec<PathBuf> = texts.iter().enumerate().map(write).collect();
        files.insert(0, dir.path().join("missing"));
        find_in_files(&files, "user.name")
    }

    #[test]
    fn earlier_file_hides_later_ones() {
        assert_eq!(find(&["[core]\n\tbare = false\n", "[user]\n\tname = Ana B\n"]).unwrap(), "Ana B");
        assert_eq!(find(&["[user]\nname = Eve\n", "[user]\n\tname = Ana\n"]).unwrap(), "Eve");
        assert_eq!(find(&["[user]\nname = Old\nNAME = New\n"]).unwrap(), "New");
    }

    #[test]
    fn what_only_git_understands_is_left_to_git() {
        let named = "[user]\n\tname = Ana\n";
        for first in [
            "[include]\n\tpath = other\n",
            "[includeIf \"gitdir:~/work/\"]\n\tpath = other\n",
            "[extensions]\n\tworktreeConfig = true\n",
            "[user]\n\tname = \"Ana # B\"\n",
            "[user]\n\tname = Ana \\\n B\n",
        ] {
            assert_eq!(find(&[first, named]), None, "{first}");
        }
        assert_eq!(find(&["[core]\n\tbare = false\n"]), None);
    }

    #[test]
    #[cfg(unix)]
    fn pipe_in_place_of_a_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("config");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(find_in_files(&[pipe], "user.name"), None);
    }
}
