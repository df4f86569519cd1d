//! Reads the content of a rescue from its commit, and compares it with a workspace.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::PathBuf,
};

use toft_core::workspace::Workspace;

use super::{
    WorkspaceBackend, WorkspaceError,
    rescue::{MANIFEST, PATIENCE, RescueSource, Rescued, holds, raw_name},
    snapshot::Snapshot,
    survey::path_of,
};
use crate::{git_run::Git, lock, plain};

/// Number of bytes that are read at once. A larger file is compared by its object hash.
const BATCH: u64 = 64 << 20;

/// The content of a rescue, by path in its commit.
pub(super) struct RescueContent<'a> {
    git: &'a Git,
    objects: BTreeMap<Vec<u8>, (String, u64)>,
}

impl<'a> RescueContent<'a> {
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

    pub(super) fn manifest(&self) -> Result<Snapshot, WorkspaceError> {
        let mut found = None;
        self.each(&[MANIFEST.into()], |_, bytes| {
            found = serde_json::from_slice(bytes).ok();
            Ok(())
        })?;
        found.ok_or_else(|| WorkspaceError::Stays { why: "its rescue has no manifest that can be read".into() })
    }

    /// Reads these files, in groups that fit into memory.
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

    /// Whether a file is too large to be read into memory.
    pub(super) fn is_large(&self, path: &[u8]) -> bool {
        self.size(path) > BATCH
    }

    /// Writes the content of a path to a file.
    pub(super) fn write(&self, path: &[u8], file: fs::File) -> Result<(), WorkspaceError> {
        Ok(self.git.run(["cat-file", "blob", self.oid(path)])?.into_file(file)?)
    }

    fn size(&self, path: &[u8]) -> u64 {
        self.objects.get(path).map_or(0, |(_, size)| *size)
    }
}

/// The path in a rescue for a file of a workspace.
pub(super) fn below(place: &str, name: &[u8]) -> Vec<u8> {
    [place.as_bytes(), name].concat()
}

/// Verifies that the rescue `commit` matches the workspace byte for byte. Returns the rescue, and whether it includes
/// large ignored files.
pub(super) fn verify(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    source: &RescueSource,
    commit: &str,
) -> Result<(Rescued, bool), WorkspaceError> {
    let differs = |what: String| WorkspaceError::Unverified { path: source.shown().to_owned(), what };
    let git = backend.git()?;
    let held = RescueContent::of(git, commit)?;
    let manifest = held.manifest()?;
    let mut now = source.look(backend, workspace, manifest.all_ignored)?;
    now.left.clone_from(&manifest.left);
    if now != manifest {
        return Err(differs("files came, went or changed kind".into()));
    }
    let oids = manifest.refs.iter().map(|(_, oid)| oid).chain(&manifest.objects).chain(&manifest.staged);
    let ask: String = oids.map(|oid| format!("{oid}\n")).collect();
    if !ask.is_empty() {
        let said = git.run(["cat-file", "--batch-check"])?.ok_fed(|to| to.write_all(ask.as_bytes()))?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if let Some(missing) = said.lines().find(|line| line.ends_with(" missing")) {
            return Err(differs(format!("the repository does not have {missing}")));
        }
    }
    let dir = source.dir.as_deref().unwrap_or(&source.own);
    let mut places: BTreeMap<Vec<u8>, (PathBuf, bool)> = BTreeMap::new();
    for file in &manifest.files {
        places.insert(below("work/", &file.name.0), (dir.join(path_of(&file.name.0)), file.link()));
    }
    for file in &manifest.own {
        places.insert(below("own/", &file.name.0), (source.own.join(path_of(&file.name.0)), file.link()));
    }
    for (n, raw) in manifest.raw.iter().enumerate().filter(|(_, raw)| !raw.is_dir()) {
        places.insert(raw_name(n).into_bytes(), (source.raw(raw), raw.is_link()));
    }
    if manifest.index {
        places.insert(b"index".to_vec(), (source.own.join("index"), false));
    }
    let (large, others): (Vec<_>, Vec<_>) = places.keys().cloned().partition(|path| held.is_large(path));
    for path in &large {
        let at = &places[path].0;
        let read = |to: &mut dyn Write| io::copy(&mut plain::open(at)?, to).map(drop);
        let oid = git.run(["hash-object", "--no-filters", "--stdin"])?.patience(PATIENCE).ok_fed(read)?;
        let oid = String::from_utf8_lossy(&oid).trim_end().to_owned();
        if oid != held.oid(path) {
            return Err(differs(at.display().to_string()));
        }
    }
    held.each(&others, |path, bytes| {
        let (at, link) = &places[path];
        let on_disk = match link {
            true => fs::read_link(at).map(|to| to.into_os_string().into_encoded_bytes()),
            false => plain::read(at),
        };
        match on_disk.map_err(lock::io("read", at))? == bytes {
            true => Ok(()),
            false => Err(differs(at.display().to_string())),
        }
    })?;
    let (holds, torn, all_ignored) = (holds(&manifest), manifest.torn, manifest.all_ignored);
    Ok((Rescued { commit: commit.to_owned(), holds, left: manifest.left, torn }, all_ignored))
}
