//! The guard before a push: one hook of git's, which runs what was there before it first.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

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
            (false, true, ..) => format!("{hook} guards already"),
            (false, false, None, _) => format!("make {hook}, which asks toft before every push"),
            (false, false, Some(_), _) => {
                format!("put {hook} by as {BEFORE}, and let one that runs it first take its place")
            }
            (true, false, ..) => format!("{hook} is not toft's; nothing to take away"),
            (true, true, _, true) => format!("put {BEFORE} back as {hook}"),
            (true, true, _, false) => format!("take {hook} away"),
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
                        return Err(io::Error::other(format!("{} is in the way", before.display())));
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

#[cfg(unix)]
fn executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn executable(_: &Path) -> io::Result<()> {
    Ok(())
}
