//! The guard before a push: one hook of git's, which runs what was there before it first.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use toft::vcs::{Checkout, Vcs, exchange};

use crate::exit::Failure;

const NAME: &str = "pre-push";
/// Where the hook that was there before is kept.
const BEFORE: &str = "pre-push.before-toft";
/// What tells our hook from others.
const SIGN: &str = "# toft guard";
/// Closed when toft finds something that may not leave (exit 4); open on everything else, also where toft is not.
const SCRIPT: &str = r#"#!/bin/sh
# toft guard: what is private stays here. `toft setup guard --remove` takes it away again.
refs=$(cat; echo .)
refs=${refs%.}
before=$(dirname "$0")/pre-push.before-toft
if [ -x "$before" ]; then
    printf '%s' "$refs" | "$before" "$@" || exit $?
fi
command -v toft >/dev/null 2>&1 || exit 0
printf '%s' "$refs" | toft hook pre-push "$1" "$2" >&2
[ $? -ne 4 ]
"#;

/// Whether every push of a checkout is looked at.
#[derive(Debug)]
pub(crate) enum GuardStatus {
    /// The hook is there.
    Installed(PathBuf),
    /// A hook of the user's is there, and stays as it is.
    Yours(PathBuf),
    /// No hook is there.
    Missing,
    /// core.hooksPath names a place outside of this repository, or in its working tree.
    Elsewhere,
    /// This version control runs no hooks of git's.
    NoHooks(Vcs),
}

impl GuardStatus {
    /// A word for it.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Installed(_) => "installed",
            Self::Yours(_) => "hook_in_place",
            Self::Missing => "missing",
            Self::Elsewhere => "hooks_path",
            Self::NoHooks(_) => "no_hooks",
        }
    }

    /// What holds, and what is left to do.
    pub(crate) fn explained(&self) -> String {
        let by_hand = "run `toft doctor --outgoing` before you push";
        match self {
            Self::Installed(hook) => {
                format!("{} checks every push for private issues.", hook.display())
            }
            Self::Yours(hook) => format!(
                "Pushes are not checked: {} is yours and was not changed. `toft setup guard` runs it first, then checks; or {by_hand}.",
                hook.display()
            ),
            Self::Missing => format!("Pushes are not checked: `toft setup guard` installs the hook; or {by_hand}."),
            Self::Elsewhere => format!(
                "Pushes are not checked: core.hooksPath names another directory for hooks. Run `toft hook pre-push \"$1\" \"$2\"` in the pre-push hook there; or {by_hand}."
            ),
            Self::NoHooks(vcs) => {
                format!("Pushes are not checked: {} does not run git hooks; {by_hand}.", vcs.as_str())
            }
        }
    }
}

/// Looks whether pushes of a checkout are guarded; with `set_up`, installs the hook if nothing is in its place.
pub(crate) fn stand(checkout: &Checkout, set_up: bool) -> Result<GuardStatus, Failure> {
    if checkout.vcs != Vcs::Git {
        return Ok(GuardStatus::NoHooks(checkout.vcs));
    }
    let Some(dir) = exchange::hooks_dir(checkout).map_err(toft::Error::from)? else {
        return Ok(GuardStatus::Elsewhere);
    };
    // A directory that core.hooksPath names may be in the working tree, or shared with other repositories.
    let (hook, own) = (dir.join(NAME), dir.starts_with(&checkout.common_dir));
    let guard = Guard::at(dir)?;
    match guard.hook {
        Some(_) if guard.stands() => Ok(GuardStatus::Installed(hook)),
        Some(_) => Ok(GuardStatus::Yours(hook)),
        None if !own => Ok(GuardStatus::Elsewhere),
        None if set_up => {
            guard.apply(false)?;
            Ok(GuardStatus::Installed(hook))
        }
        None => Ok(GuardStatus::Missing),
    }
}

/// What setting the guard up, or taking it down, would change.
pub(crate) struct Guard {
    dir: PathBuf,
    hook: Option<String>,
}

impl Guard {
    /// Looks at the hooks in a directory.
    pub(crate) fn at(dir: PathBuf) -> Result<Self, Failure> {
        let hook = match fs::read(dir.join(NAME)) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&dir.join(NAME), &error)),
        };
        Ok(Self { dir, hook })
    }

    /// Whether it stands there.
    pub(crate) fn stands(&self) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.contains(SIGN))
    }

    /// What would be done, in words.
    pub(crate) fn words(&self, remove: bool) -> String {
        let hook = self.dir.join(NAME).display().to_string();
        match (remove, self.stands(), &self.hook, self.dir.join(BEFORE).exists()) {
            (false, true, ..) => format!("{hook} checks pushes already"),
            (false, false, None, _) => format!("create {hook}, which runs toft before every push"),
            (false, false, Some(_), _) => {
                format!("rename {hook} to {BEFORE}, and create a hook that runs it first")
            }
            (true, false, ..) => format!("{hook} is not toft's; nothing to remove"),
            (true, true, _, true) => format!("rename {BEFORE} back to {hook}"),
            (true, true, _, false) => format!("remove {hook}"),
        }
    }

    /// Whether there is anything to do.
    pub(crate) fn changes(&self, remove: bool) -> bool {
        self.stands() == remove
    }

    /// Does it.
    pub(crate) fn apply(&self, remove: bool) -> Result<(), Failure> {
        let (hook, before) = (self.dir.join(NAME), self.dir.join(BEFORE));
        let done = (|| match remove {
            true if before.exists() => fs::rename(&before, &hook),
            true => fs::remove_file(&hook),
            false => {
                fs::create_dir_all(&self.dir)?;
                if self.hook.is_some() {
                    if before.exists() {
                        return Err(io::Error::other(format!("{} exists already", before.display())));
                    }
                    fs::rename(&hook, &before)?;
                }
                fs::write(&hook, SCRIPT)?;
                executable(&hook)
            }
        })();
        done.map_err(|error| failed(&hook, &error))
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::stopped(format!("{}: {error}", path.display()), "")
}

fn executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
