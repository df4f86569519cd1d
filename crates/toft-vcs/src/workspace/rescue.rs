//! Putting everything in a git workspace away: one commit under `refs/toft/rescue/`, read back before it counts.
//!
//! `git fast-import` writes it: raw bytes, no filters, straight into a pack, which no tidying in the middle can take.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    time::{Duration, SystemTime},
};

use toft_core::workspace::{Workspace, WorkspaceKind};

use super::{
    Ground, WorkspaceError,
    git::{fetch, git_dir},
    picture::{self, File, Picture},
    survey::path_of,
};
use crate::{git_run::Git, lock};

/// Where rescues are.
const PLACE: &str = "refs/toft/rescue";
/// A workspace that is written to all the while is tried so often.
const TRIES: usize = 5;
/// So many bytes are read back at once; a larger file is compared by its name among git's objects.
const BATCH: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(3_600);

/// What a rescue holds besides files: its own directory in the commit.
pub(super) const MANIFEST: &str = "manifest.json";

/// Puts everything away and reads it back; gives the commit.
pub(super) fn rescue(ground: &Ground, workspace: &Workspace, dir: &Path) -> Result<String, WorkspaceError> {
    let mut failed = None;
    for _ in 0..TRIES {
        let picture = picture::take(ground, workspace, dir)?;
        let done = put_away(ground, workspace, dir, &picture).and_then(|commit| {
            verify(ground, workspace, dir, &commit)?;
            Ok(commit)
        });
        match done {
            Ok(commit) => return Ok(commit),
            // Somebody wrote in the meantime.
            Err(
                error @ (WorkspaceError::Unverified { .. }
                | WorkspaceError::Io { .. }
                | WorkspaceError::Run(crate::command::RunError::Failed { .. })),
            ) => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failed.unwrap_or_else(|| WorkspaceError::Busy { what: workspace.name.clone() }))
}

fn put_away(ground: &Ground, workspace: &Workspace, dir: &Path, picture: &Picture) -> Result<String, WorkspaceError> {
    let git = Git::inside(dir)?;
    let repository = ground.git()?;
    let name = next_name([repository, &git], workspace)?;
    let mut trouble = None;
    let run = git.run(["fast-import", "--quiet", "--done"])?.patience(PATIENCE);
    let run = run.ok_fed(|to| {
        let told = tell(to, &name, workspace, dir, picture);
        trouble = told.as_ref().err().map(ToString::to_string);
        told
    });
    if let Some(what) = trouble.filter(|_| run.is_err()) {
        return Err(WorkspaceError::Unverified { path: dir.to_owned(), what });
    }
    run?;
    if workspace.kind == WorkspaceKind::Clone {
        // Its refs come along, whatever they point to: tags and notes are no commits.
        let refs = [format!("+{name}:{name}"), beside(&name, "heads"), beside(&name, "tags"), beside(&name, "notes")];
        fetch(repository, dir, refs.iter().map(String::as_str))?;
        git.run(["update-ref", "-d", &name])?.ok()?;
    }
    Ok(repository.run(["rev-parse", "--verify", &name])?.text()?)
}

/// Where refs of a clone are kept beside its rescue.
fn beside(name: &str, kind: &str) -> String {
    format!("+refs/{kind}/*:{}/{kind}/*", refs_of(name))
}

/// The place of refs that belong to a rescue.
pub(super) fn refs_of(name: &str) -> String {
    name.replacen(PLACE, "refs/toft/rescued", 1)
}

/// The next name of a rescue of this workspace: neither the repository nor a clone of it has one of that name, left by
/// whoever did not come to the end.
fn next_name(places: [&Git; 2], workspace: &Workspace) -> Result<String, WorkspaceError> {
    let place = format!("{PLACE}/{}", workspace.id);
    let mut last = 0;
    for git in places {
        let listed = git.run(["for-each-ref", "--format=%(refname:lstrip=4)", &place])?.text()?;
        last = listed.lines().filter_map(|line| line.parse::<u32>().ok()).fold(last, u32::max);
    }
    Ok(format!("{place}/{}", last + 1))
}

/// The rescues of a workspace: number and commit, oldest first.
pub(super) fn all(ground: &Ground, workspace: &Workspace) -> Result<Vec<(u32, String)>, WorkspaceError> {
    let place = format!("{PLACE}/{}", workspace.id);
    let listed = ground.git()?.run(["for-each-ref", "--format=%(refname:lstrip=4) %(objectname)", &place])?.text()?;
    let named = listed.lines().filter_map(|line| line.split_once(' '));
    let mut all: Vec<_> = named.filter_map(|(n, oid)| Some((n.parse().ok()?, oid.to_owned()))).collect();
    all.sort();
    Ok(all)
}

/// Says everything to `git fast-import`.
fn tell(to: &mut dyn Write, name: &str, workspace: &Workspace, dir: &Path, picture: &Picture) -> io::Result<()> {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let message = format!("rescue of workspace {} ({})\n", workspace.name, workspace.id);
    writeln!(to, "commit {name}\ncommitter toft <toft> {now} +0000\ndata {}\n{message}", message.len())?;
    let mut parents: Vec<&String> = picture.head.iter().chain(&picture.commits).collect();
    parents.extend(picture.refs.iter().filter(|(name, _)| name.starts_with("refs/heads/")).map(|(_, oid)| oid));
    parents.extend(picture.stashes.iter().map(|(oid, _)| oid));
    let mut seen = std::collections::BTreeSet::new();
    parents.retain(|oid| seen.insert(*oid));
    for (n, oid) in parents.iter().enumerate() {
        writeln!(to, "{} {oid}", if n == 0 { "from" } else { "merge" })?;
    }
    writeln!(to, "deleteall")?;
    for file in &picture.files {
        write_file(to, b"work/", file, dir)?;
    }
    let own = git_dir(dir).map_err(io::Error::other)?;
    for file in &picture.own {
        write_file(to, b"own/", file, &own)?;
    }
    if picture.index {
        writeln!(to, "M 100644 inline index")?;
        file_data(to, &own.join("index"))?;
    }
    for oid in &picture.staged {
        writeln!(to, "M 100644 {oid} staged/{oid}")?;
    }
    writeln!(to, "M 100644 inline {MANIFEST}")?;
    data(to, &serde_json::to_vec_pretty(picture).map_err(io::Error::other)?)?;
    writeln!(to, "done")
}

/// A file or a link, with what git can say of its mode.
fn write_file(to: &mut dyn Write, below: &[u8], file: &File, dir: &Path) -> io::Result<()> {
    let path = dir.join(path_of(&file.name.0));
    let mode = if file.link() {
        "120000"
    } else if file.mode & 0o111 != 0 {
        "100755"
    } else {
        "100644"
    };
    writeln!(to, "M {mode} inline {}", quoted(below, &file.name.0))?;
    match file.link() {
        true => data(to, fs::read_link(&path)?.as_os_str().as_bytes()),
        false => file_data(to, &path),
    }
}

fn data(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    writeln!(to, "data {}", bytes.len())?;
    to.write_all(bytes)?;
    writeln!(to)
}

/// A file's bytes, as many as it had when it was opened.
fn file_data(to: &mut dyn Write, path: &Path) -> io::Result<()> {
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    writeln!(to, "data {length}")?;
    if io::copy(&mut file.take(length), to)? != length {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{} became shorter", path.display())));
    }
    writeln!(to)
}

/// A path as `git fast-import` reads it.
fn quoted(below: &[u8], path: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in below.iter().chain(path) {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\{other:03o}")),
        }
    }
    text.push('"');
    text
}

/// What a rescue holds, by path in its commit.
pub(super) struct Held<'a> {
    git: &'a Git,
    objects: BTreeMap<Vec<u8>, (String, u64)>,
}

impl<'a> Held<'a> {
    pub(super) fn of(git: &'a Git, commit: &str) -> Result<Self, WorkspaceError> {
        let ask = ["ls-tree", "-r", "-z", "-l", "--full-tree"];
        let listed = git.run(ask)?.arg(commit).ok()?;
        let mut objects = BTreeMap::new();
        for line in listed.split(|byte| *byte == 0) {
            let mut halves = line.splitn(2, |byte| *byte == b'\t');
            let (Some(facts), Some(path)) = (halves.next(), halves.next()) else { continue };
            let facts = String::from_utf8_lossy(facts).into_owned();
            let words: Vec<_> = facts.split_ascii_whitespace().collect();
            let [_, _, oid, size] = words[..] else { continue };
            objects.insert(path.to_vec(), (oid.to_owned(), size.parse().unwrap_or(u64::MAX)));
        }
        Ok(Self { git, objects })
    }

    pub(super) fn manifest(&self) -> Result<Picture, WorkspaceError> {
        let mut found = None;
        self.each(&[MANIFEST.into()], |_, bytes| {
            found = serde_json::from_slice(bytes).ok();
            Ok(())
        })?;
        found.ok_or_else(|| WorkspaceError::Stays { why: "its rescue has no manifest that can be read".into() })
    }

    /// Reads these back, in groups that fit into memory.
    pub(super) fn each(
        &self,
        paths: &[Vec<u8>],
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), WorkspaceError>,
    ) -> Result<(), WorkspaceError> {
        let mut from = 0;
        while from < paths.len() {
            let (mut upto, mut bytes) = (from, 0);
            while upto < paths.len() && (upto == from || bytes + self.size(&paths[upto]) <= BATCH) {
                bytes += self.size(&paths[upto]);
                upto += 1;
            }
            let group = &paths[from..upto];
            let ask: String = group.iter().map(|path| format!("{}\n", self.oid(path))).collect();
            let said = self.git.run(["cat-file", "--batch"])?.ok_fed(|to| to.write_all(ask.as_bytes()))?;
            let mut rest = said.as_slice();
            for path in group {
                let missing =
                    || WorkspaceError::Unverified { path: path_of(path), what: "git does not have its bytes".into() };
                let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(missing)?;
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                let size = line.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok()).ok_or_else(missing)?;
                let body = rest.get(end + 1..end + 1 + size).ok_or_else(missing)?;
                take(path, body)?;
                rest = rest.get(end + 2 + size..).unwrap_or_default();
            }
            from = upto;
        }
        Ok(())
    }

    fn oid(&self, path: &[u8]) -> &str {
        self.objects.get(path).map_or("missing", |(oid, _)| oid)
    }

    /// Too large to be read into memory.
    pub(super) fn is_large(&self, path: &[u8]) -> bool {
        self.size(path) > BATCH
    }

    /// Writes one into a file.
    pub(super) fn write(&self, path: &[u8], file: fs::File) -> Result<(), WorkspaceError> {
        Ok(self.git.run(["cat-file", "blob", self.oid(path)])?.into_file(file)?)
    }

    fn size(&self, path: &[u8]) -> u64 {
        self.objects.get(path).map_or(0, |(_, size)| *size)
    }
}

/// Where in a rescue a file of a workspace is.
pub(super) fn below(place: &str, name: &[u8]) -> Vec<u8> {
    [place.as_bytes(), name].concat()
}

/// Is the workspace at `dir` what `commit` holds, to the last byte?
pub(super) fn verify(ground: &Ground, workspace: &Workspace, dir: &Path, commit: &str) -> Result<(), WorkspaceError> {
    let differs = |what: String| WorkspaceError::Unverified { path: dir.to_owned(), what };
    let git = ground.git()?;
    let held = Held::of(git, commit)?;
    let manifest = held.manifest()?;
    let now = picture::take(ground, workspace, dir)?;
    if now != manifest {
        return Err(differs("files came, went or changed kind".into()));
    }
    if workspace.kind == WorkspaceKind::Clone {
        for (name, oid) in &manifest.refs {
            let there = git.run(["cat-file", "-e", oid])?.end()?.code == 0;
            there.then_some(()).ok_or_else(|| differs(format!("{name} is not in the repository")))?;
        }
    }
    let own = git_dir(dir)?;
    let large = |file: &&File| held.is_large(&below("work/", &file.name.0));
    for file in manifest.files.iter().filter(large) {
        let path = dir.join(path_of(&file.name.0));
        let oid = git.run(["hash-object", "--no-filters"])?.arg(&path).text()?;
        if oid != held.oid(&below("work/", &file.name.0)) {
            return Err(differs(path.display().to_string()));
        }
    }
    let mut paths: Vec<Vec<u8>> =
        manifest.files.iter().filter(|file| !large(file)).map(|file| below("work/", &file.name.0)).collect();
    paths.extend(manifest.own.iter().map(|file| below("own/", &file.name.0)));
    paths.extend(manifest.index.then(|| b"index".to_vec()));
    paths.extend(manifest.staged.iter().map(|oid| below("staged/", oid.as_bytes())));
    let links = manifest.links();
    held.each(&paths, |path, bytes| {
        let at = match (path.strip_prefix(b"work/"), path.strip_prefix(b"own/")) {
            (Some(name), _) => Some(dir.join(path_of(name))),
            (_, Some(name)) => Some(own.join(path_of(name))),
            _ => None,
        };
        let on_disk = if let Some(at) = at {
            match links.contains(path) {
                true => fs::read_link(&at).map(|to| to.into_os_string().into_encoded_bytes()),
                false => fs::read(&at),
            }
        } else if path == b"index" {
            fs::read(own.join("index"))
        } else {
            return Ok(());
        };
        let shown = String::from_utf8_lossy(path).into_owned();
        match on_disk.map_err(lock::io("read", &path_of(path)))? == bytes {
            true => Ok(()),
            false => Err(differs(shown)),
        }
    })
}
