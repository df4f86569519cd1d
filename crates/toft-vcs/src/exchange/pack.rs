//! Packs a ledger's objects, in a clone and in a remote on this machine.
//!
//! Every commit of a ledger stores its file again, and so does every fetch. One pack contains all of them as deltas
//! from the newest, about a kilobyte for each commit. Nothing is lost: a pack or a loose object is deleted only if the
//! new pack contains all of its objects, or if the rest belongs to a commit that toft replaced before it was sent and
//! that no ref, reflog or index reaches.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{RunError, git_run::Git};

/// Maximum size of unpacked data, if the ledger is small.
const SLACK: u64 = 4 << 20;
/// A larger index belongs to the project, not to its ledger.
const MOST_INDEX: u64 = 8 << 20;
/// Maximum length of a delta chain. The newest version is whole, so only old ones are slow to read.
const DEPTH: &str = "--depth=1000";
/// Time limit of packing.
const PATIENCE: Duration = Duration::from_secs(60);
/// A pack that git used this recently is kept: a program that found an object in it may be about to reference it. In a
/// clone only syncs look for such objects, and syncs of one clone wait for each other.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// The same in a remote, to which other clones push in the meantime.
pub(super) const REMOTE_GRACE: Duration = Duration::from_secs(60);

/// The state after packing, for each repository by the path of its objects.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct PackMemo {
    /// Bytes in packs that are kept.
    bytes: BTreeMap<String, u64>,
    /// Bytes in packs that are kept only for now.
    waiting: BTreeMap<String, WaitingPacks>,
    /// Commits that were replaced before they were sent.
    replaced: BTreeMap<String, BTreeSet<String>>,
}

/// Packs that git used too recently to be deleted.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct WaitingPacks {
    bytes: u64,
    /// How long they are kept, in seconds of the wall clock.
    until: u64,
}

/// The newest commits of a ledger. Queried after packs were listed, so that no pack is newer.
type Tips<'a> = &'a dyn Fn() -> Vec<String>;

/// What is left after packing.
struct LeftInPacks {
    bytes: u64,
    waiting: u64,
}

/// Packs the objects of a ledger's commits, if enough were added since the last time, and deletes objects that only the
/// commits in `replaced` reference. `memo` stores the state of the last time. `file` is the size of the ledger's file,
/// which every commit stores again. Failures are ignored: the next sync tries again.
pub(super) fn tidy(
    git: &Git,
    git_dir: &Path,
    tips: Tips<'_>,
    replaced: &[String],
    file: u64,
    memo: &Path,
    grace: Duration,
) {
    let objects = git_dir.join("objects");
    let key = objects.display().to_string();
    let text = fs::read_to_string(memo).unwrap_or_default();
    let mut known: PackMemo = serde_json::from_str(&text).unwrap_or_default();
    let mut lost = known.replaced.remove(&key).unwrap_or_default();
    lost.extend(replaced.iter().cloned());
    let before: u64 = packs(&objects).iter().map(|pack| pack.bytes).sum();
    let slack = SLACK.max(file.saturating_mul(5) / 4);
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let most = now + grace.as_secs();
    let waiting = known.waiting.remove(&key).filter(|waiting| now < waiting.until && waiting.until <= most);
    let settled = match known.bytes.get(&key).copied() {
        Some(settled) if before > settled + waiting.map_or(0, |waiting| waiting.bytes) + slack => {
            match pack(git, &objects, tips, &mut lost, grace) {
                Ok(Some(left)) => {
                    known.waiting.insert(key.clone(), WaitingPacks { bytes: left.waiting, until: most });
                    left.bytes
                }
                // Another process packs it already.
                Ok(None) => settled,
                // A repository that cannot be packed is not tried at every sync.
                Err(_) => before,
            }
        }
        Some(settled) => {
            known.waiting.extend(waiting.map(|waiting| (key.clone(), waiting)));
            before.min(settled)
        }
        None => before,
    };
    known.bytes.insert(key.clone(), settled);
    if !lost.is_empty() {
        known.replaced.insert(key, lost);
    }
    let now = serde_json::to_string(&known).unwrap_or_default();
    if now != text {
        let _ = crate::private::write_like_its_directory(memo, now.as_bytes());
    }
}

/// The repository at a URL that is a local path.
pub(super) fn local(url: &str, from: &Path) -> Option<PathBuf> {
    let path = url.strip_prefix("file://").unwrap_or(url);
    if !path.starts_with(['/', '.']) {
        return None;
    }
    let path = from.join(path);
    let own = path.join(".git");
    [own, path].into_iter().find(|dir| dir.join("objects").is_dir() && dir.join("refs").is_dir())
}

struct Pack {
    /// `pack-…`, without an extension.
    name: String,
    bytes: u64,
    /// It may be replaced.
    free: bool,
}

/// Packs of a repository that hold ordinary objects.
fn packs(objects: &Path) -> Vec<Pack> {
    let entries: Vec<fs::DirEntry> = fs::read_dir(objects.join("pack")).into_iter().flatten().flatten().collect();
    let names: HashSet<String> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let several = fs::read(objects.join("pack").join("multi-pack-index")).unwrap_or_default();
    let mut packs = Vec::new();
    for entry in &entries {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".pack").filter(|name| name.starts_with("pack-")) else { continue };
        let marked =
            ["keep", "promisor", "mtimes", "bitmap"].iter().any(|end| names.contains(&format!("{name}.{end}")));
        let index = format!("{name}.idx");
        let shared = several.windows(index.len()).any(|piece| piece == index.as_bytes());
        let bytes = entry.metadata().map_or(0, |meta| meta.len());
        packs.push(Pack { name: name.to_owned(), bytes, free: !marked && !shared && names.contains(&index) });
    }
    packs
}

/// Returns none if another process packs the same repository.
fn pack(
    git: &Git,
    objects: &Path,
    tips: Tips<'_>,
    lost: &mut BTreeSet<String>,
    grace: Duration,
) -> Result<Option<LeftInPacks>, RunError> {
    let dir = objects.join("pack");
    let lock = fs::File::open(&dir);
    if lock.as_ref().is_ok_and(|dir| matches!(dir.try_lock(), Err(fs::TryLockError::WouldBlock))) {
        return Ok(None);
    }
    // Only packs that existed before may be deleted: of two processes that pack at the same time, neither deletes the
    // other's result.
    let known = packs(objects);
    let tips = tips();
    if tips.is_empty() {
        return Ok(None);
    }
    let words = ["pack-objects", "--revs", "--quiet", "--threads=1", "--window=2", DEPTH, "--delta-base-offset"];
    let run = git.run(words)?.arg("--compression=6").arg(dir.join("pack")).patience(PATIENCE);
    let said = run.ok_fed(|to| tips.iter().try_for_each(|tip| writeln!(to, "{tip}")))?;
    let new = format!("pack-{}", String::from_utf8_lossy(&said).trim());
    let hash = tips.first().map_or(20, |tip| tip.len() / 2);
    let Some(all) = names_in(&dir.join(format!("{new}.idx")), hash) else { return Ok(None) };
    let Ok(made) = fs::metadata(dir.join(format!("{new}.pack"))) else { return Ok(None) };
    // In a repository that several users share, none of them may lose read access.
    let replaced = |file: &Path| fs::symlink_metadata(file).is_ok_and(|old| readable_as(&made, &old));
    let again = known.iter().any(|pack| pack.name == new);
    let dead = unreachable(git, lost)?;
    let mut stay = HashSet::new();
    let mut left = LeftInPacks { bytes: made.len(), waiting: 0 };
    for pack in known.iter().filter(|pack| pack.name != new) {
        let held = Some(pack).filter(|pack| pack.free);
        let Some(held) = held.and_then(|pack| names_in(&dir.join(format!("{}.idx", pack.name)), hash)) else {
            left.bytes += pack.bytes;
            continue;
        };
        let file = dir.join(format!("{}.pack", pack.name));
        let packed = held.is_subset(&all) && (!again || held.len() < all.len());
        let needless = held.iter().all(|name| all.contains(name) || dead.contains(name));
        if replaced(&file) && (packed || needless && unused(&file, grace)) {
            for end in ["idx", "pack", "rev"] {
                let _ = fs::remove_file(dir.join(format!("{}.{end}", pack.name)));
            }
        } else {
            *(if needless { &mut left.waiting } else { &mut left.bytes }) += pack.bytes;
            stay.extend(held);
        }
    }
    lost.retain(|commit| bytes(commit).is_some_and(|name| stay.contains(&name) && dead.contains(&name)));
    for name in &all {
        let text: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let loose = objects.join(&text[..2]).join(&text[2..]);
        if replaced(&loose) {
            let _ = fs::remove_file(loose);
        }
    }
    Ok(Some(left))
}

/// Objects that these commits added and that no ref, reflog or index of any worktree reaches. Objects of their parents
/// are kept.
fn unreachable(git: &Git, commits: &BTreeSet<String>) -> Result<HashSet<Vec<u8>>, RunError> {
    if commits.is_empty() {
        return Ok(HashSet::new());
    }
    let words = ["rev-list", "--objects", "--no-object-names", "--ignore-missing", "--stdin"];
    let run = git.run(words)?.args(["--not", "--all", "--reflog", "--indexed-objects"]).patience(PATIENCE);
    let said = run.ok_fed(|to| commits.iter().try_for_each(|commit| writeln!(to, "{commit}^!")))?;
    Ok(String::from_utf8_lossy(&said).lines().filter_map(bytes).collect())
}

/// Whether git has not recently written this pack, or found an object in it that it was about to write.
fn unused(pack: &Path, grace: Duration) -> bool {
    let since = fs::metadata(pack).and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
    since.is_some_and(|since| since > grace)
}

/// The binary form of an object's hash.
fn bytes(name: &str) -> Option<Vec<u8>> {
    let pairs = name.as_bytes().chunks_exact(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Whether everyone who may read the old file may read the new one.
fn readable_as(new: &fs::Metadata, old: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let wanted = old.mode() & 0o444;
    let same = |bit: u32, equal: bool| wanted & bit == 0 || equal || new.mode() & 0o004 != 0;
    new.mode() & wanted == wanted && same(0o400, new.uid() == old.uid()) && same(0o040, new.gid() == old.gid())
}

/// Names of the objects in a pack, from its index (version 2); none if it cannot be read.
fn names_in(index: &Path, hash: usize) -> Option<HashSet<Vec<u8>>> {
    if fs::metadata(index).ok()?.len() > MOST_INDEX {
        return None;
    }
    let bytes = fs::read(index).ok()?;
    let header = bytes.strip_prefix(b"\xfftOc\x00\x00\x00\x02")?;
    let count = u32::from_be_bytes(header.get(255 * 4..256 * 4)?.try_into().ok()?) as usize;
    let names = header.get(256 * 4..256 * 4 + count * hash)?;
    Some(names.chunks_exact(hash).map(<[u8]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with as many commits of a growing file on `refs/toft/ledger`, each in a pack of its own.
    fn repository(commits: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let git_dir = dir.path().join(".git");
        Git::outside(dir.path()).run(["init", "--quiet"]).unwrap().ok().unwrap();
        let git = Git::of(&git_dir).unwrap();
        let mut text = String::new();
        for n in 0..commits {
            for line in 0..200 {
                text.push_str(&format!("{{\"id\":\"ab-{n}-{line}\",\"title\":\"{}\"}}\n", n * line));
            }
            let run = git.run(["fast-import", "--quiet", "--force", "--done"]).unwrap();
            run.ok_fed(|to| {
                writeln!(to, "commit refs/toft/ledger\ncommitter t <t@localhost> {n} +0000\ndata 0")?;
                if n > 0 {
                    writeln!(to, "from refs/toft/ledger^0")?;
                }
                writeln!(to, "M 100644 inline issues.jsonl\ndata {}\n{text}", text.len())?;
                writeln!(to, "done")
            })
            .unwrap();
        }
        (dir, git_dir)
    }

    #[test]
    fn packing_replaces_what_it_holds_and_nothing_else() {
        let (_dir, git_dir) = repository(6);
        let (git, objects) = (Git::of(&git_dir).unwrap(), git_dir.join("objects"));
        let text = |words: &[&str]| git.run(words).unwrap().text().unwrap();
        // Something of the user's: a commit in a pack of its own, an object that nothing refers to, a pack to be kept.
        let tip = text(&["rev-parse", "refs/toft/ledger"]);
        let user = git.run(["hash-object", "-w", "--stdin"]).unwrap().ok_fed(|to| to.write_all(b"mine")).unwrap();
        let user = String::from_utf8(user).unwrap().trim().to_owned();
        let kept = packs(&objects).remove(0).name;
        fs::write(objects.join("pack").join(format!("{kept}.keep")), "").unwrap();
        let log = text(&["log", "-p", "refs/toft/ledger"]);
        assert_eq!(packs(&objects).len(), 6);

        pack(&git, &objects, &|| vec![tip.clone()], &mut BTreeSet::new(), GRACE).unwrap();
        let left: Vec<String> = packs(&objects).into_iter().map(|pack| pack.name).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left.contains(&kept));
        assert_eq!(text(&["cat-file", "-p", &user]), "mine");
        assert_eq!(text(&["log", "-p", "refs/toft/ledger"]), log);
        git.run(["fsck", "--strict"]).unwrap().ok().unwrap();

        // Again: the same pack, and nothing goes.
        pack(&git, &objects, &|| vec![tip.clone()], &mut BTreeSet::new(), GRACE).unwrap();
        assert_eq!(packs(&objects).len(), 2);
    }

    #[test]
    fn a_pack_that_holds_anything_else_stays() {
        let (_dir, git_dir) = repository(3);
        let (git, objects) = (Git::of(&git_dir).unwrap(), git_dir.join("objects"));
        let run = git.run(["fast-import", "--quiet", "--force", "--done"]).unwrap();
        run.ok_fed(|to| {
            writeln!(to, "commit refs/heads/main\ncommitter t <t@localhost> 0 +0000\ndata 0\nfrom refs/toft/ledger^0")?;
            writeln!(to, "M 100644 inline code\ndata 3\nx=1\ndone")
        })
        .unwrap();
        let tip = git.run(["rev-parse", "refs/toft/ledger"]).unwrap().text().unwrap();
        pack(&git, &objects, &|| vec![tip.clone()], &mut BTreeSet::new(), GRACE).unwrap();
        assert_eq!(packs(&objects).len(), 2, "the ledger's and the user's");
        git.run(["fsck", "--strict"]).unwrap().ok().unwrap();
    }

    #[test]
    fn a_commit_that_was_replaced_goes_unless_it_is_used() {
        let (_dir, git_dir) = repository(4);
        let (git, objects) = (Git::of(&git_dir).unwrap(), git_dir.join("objects"));
        let text = |words: &[&str]| git.run(words).unwrap().text().unwrap();
        let lost = text(&["rev-parse", "refs/toft/ledger"]);
        text(&["update-ref", "refs/toft/ledger", "refs/toft/ledger~1"]);
        let tip = text(&["rev-parse", "refs/toft/ledger"]);
        let there = || git.run(["cat-file", "-e", &lost]).unwrap().end().unwrap().code == 0;
        let pack = || {
            let mut known = BTreeSet::from([lost.clone()]);
            pack(&git, &objects, &|| vec![tip.clone()], &mut known, GRACE).unwrap();
            assert_eq!(there(), known.contains(&lost) || git.run(["rev-parse", "mine"]).unwrap().ok().is_ok());
        };
        pack();
        assert!(there(), "git wrote it a moment ago");
        for known in packs(&objects) {
            let file = fs::File::open(objects.join("pack").join(format!("{}.pack", known.name))).unwrap();
            file.set_modified(std::time::SystemTime::now() - 2 * GRACE).unwrap();
        }
        text(&["update-ref", "refs/heads/mine", &lost]);
        pack();
        assert!(there(), "a branch of the user's reaches it");
        text(&["update-ref", "-d", "refs/heads/mine"]);
        pack();
        assert!(!there());
        git.run(["fsck", "--strict"]).unwrap().ok().unwrap();
    }

    #[test]
    fn what_a_replaced_commit_builds_on_stays() {
        let (_dir, git_dir) = repository(4);
        let (git, objects) = (Git::of(&git_dir).unwrap(), git_dir.join("objects"));
        let text = |words: &[&str]| git.run(words).unwrap().text().unwrap();
        let (lost, parent) = (text(&["rev-parse", "refs/toft/ledger"]), text(&["rev-parse", "refs/toft/ledger~1"]));
        // Another history was taken over meanwhile, which does not hold the parent either.
        text(&["update-ref", "refs/toft/ledger", "refs/toft/ledger~2"]);
        let tip = text(&["rev-parse", "refs/toft/ledger"]);
        for known in packs(&objects) {
            let file = fs::File::open(objects.join("pack").join(format!("{}.pack", known.name))).unwrap();
            file.set_modified(std::time::SystemTime::now() - 2 * GRACE).unwrap();
        }
        pack(&git, &objects, &|| vec![tip.clone()], &mut BTreeSet::from([lost.clone()]), GRACE).unwrap();
        let there = |commit: &str| git.run(["cat-file", "-e", commit]).unwrap().end().unwrap().code == 0;
        assert!(!there(&lost) && there(&parent));
    }

    #[test]
    fn a_pack_that_fewer_may_read_replaces_nothing() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_dir, git_dir) = repository(3);
        let (git, objects) = (Git::of(&git_dir).unwrap(), git_dir.join("objects"));
        let tip = git.run(["rev-parse", "refs/toft/ledger"]).unwrap().text().unwrap();
        git.run(["config", "core.sharedRepository", "0600"]).unwrap().ok().unwrap();
        for pack in packs(&objects) {
            let file = objects.join("pack").join(format!("{}.pack", pack.name));
            fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
        }
        pack(&git, &objects, &|| vec![tip.clone()], &mut BTreeSet::new(), GRACE).unwrap();
        assert_eq!(packs(&objects).len(), 4);
        git.run(["fsck", "--strict"]).unwrap().ok().unwrap();
    }

    #[test]
    fn only_paths_on_this_machine_are_local() {
        let (dir, git_dir) = repository(1);
        assert_eq!(local(dir.path().to_str().unwrap(), Path::new("/")), Some(git_dir.clone()));
        assert_eq!(local(&format!("file://{}", git_dir.display()), Path::new("/")), Some(git_dir));
        assert_eq!(local("ssh://host/path", Path::new("/")), None);
        assert_eq!(local("host:path", Path::new("/")), None);
    }
}
