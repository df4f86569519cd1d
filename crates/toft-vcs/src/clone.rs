//! Clones that toft makes for machines of a fleet, and keeps up to date.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Checkout,
    exchange::{ExchangeError, classify_failure, refs},
    git_run::Git,
    lock::io,
    workspace::WorkspaceError,
};

/// How long a clone may take.
const CLONE: Duration = Duration::from_secs(3_600);
/// How long a remote may take to say what is new.
const REFRESH: Duration = Duration::from_secs(120);
/// The file that says that toft made a clone.
const MADE: &str = "cloned";

/// Clones a repository into a directory that does not exist. Nothing in it is executed, and no other address is followed.
pub fn clone(url: &str, dir: &Path) -> Result<(), ExchangeError> {
    let above = dir.parent().unwrap_or(dir);
    crate::private::create_dir_all(above).map_err(io("make", above))?;
    let mut draft = dir.as_os_str().to_owned();
    draft.push(".part");
    let draft = PathBuf::from(draft);
    if draft.exists() {
        // A clone that was interrupted; nobody worked in it.
        fs::remove_dir_all(&draft).map_err(io("remove", &draft))?;
    }
    let git = refs::RemoteGit::outside(above, url, CLONE)?;
    let words = ["-c", "http.followRedirects=false", "clone", "--quiet", "--no-recurse-submodules", "--origin=origin"];
    let run = git.run(words)?.arg("--").arg(url).arg(&draft);
    run.ok().map_err(|failed| classify_failure(failed, url))?;
    let state = draft.join(".git").join("toft");
    crate::private::create_dir_all(&state).map_err(io("make", &state))?;
    fs::write(state.join(MADE), format!("{url}\n")).map_err(io("write", &state))?;
    fs::rename(&draft, dir).map_err(io("write", dir))?;
    Ok(())
}

/// Makes a directory a repository without history.
pub fn make_empty(dir: &Path) -> Result<(), ExchangeError> {
    Ok(Git::outside(dir).run(["init", "--quiet", "--template=", "--initial-branch=main"])?.ok().map(drop)?)
}

/// Lets a clone that toft made follow another address, if that has changed.
pub fn follow(dir: &Path, url: &str) -> Result<(), ExchangeError> {
    let git_dir = dir.join(".git");
    let made = git_dir.join("toft").join(MADE);
    if fs::read_to_string(&made).is_ok_and(|known| known.trim_end() == url) {
        return Ok(());
    }
    Git::of(&git_dir)?.run(["remote", "set-url", "origin", url])?.ok()?;
    Ok(fs::write(&made, format!("{url}\n")).map_err(io("write", &made))?)
}

/// Whether toft made this clone: nobody else works in its main checkout.
pub fn is_made(checkout: &Checkout) -> bool {
    checkout.state_dir().join(MADE).is_file()
}

/// Brings a clone that toft made up to date. Its branch only moves forward.
pub fn refresh(checkout: &Checkout) -> Result<(), ExchangeError> {
    let url = refs::remotes(&checkout.common_dir)?.into_iter().find(|(name, _)| name == "origin").map(|(_, url)| url);
    let Some(url) = url else { return Ok(()) };
    let git = refs::remote_git(&checkout.common_dir, &url, REFRESH)?;
    let words = ["-c", "http.followRedirects=false", "fetch", "--quiet", "--no-tags", "--no-recurse-submodules"];
    git.run(words)?.arg("origin").ok().map_err(|failed| classify_failure(failed, "origin"))?;
    let here = Git::inside(&checkout.common_dir, &checkout.root)?;
    let branch = here.run(["symbolic-ref", "--quiet", "--short", "HEAD"])?.maybe()?;
    let Some(branch) = branch else { return Ok(()) };
    let there = format!("refs/remotes/origin/{branch}");
    let moved = here.run(["merge-base", "--is-ancestor", there.as_str(), "HEAD"])?.end()?;
    if moved.code == 0 {
        return Ok(());
    }
    let merge = here.run(["merge", "--ff-only", "--quiet", there.as_str()])?.env("GIT_OPTIONAL_LOCKS", "1");
    Ok(merge.ok().map(drop).map_err(WorkspaceError::from)?)
}
