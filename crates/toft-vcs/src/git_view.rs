//! A temporary git directory that toft controls, used in place of one that others can rewrite.
//!
//! A view exists for one operation. It has a configuration with harmless settings only, and the repository's refs and
//! objects. For the user's repository, the view replaces the common directory, from which git reads configuration,
//! hooks and attributes. For a clone or a submodule, it replaces the whole git directory. So nothing in the repository
//! can name a program, even if its files change during the operation.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, symlink},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    command::{Run, RunError},
    plain,
};

/// Maximum size of a file of a git directory that is read as a whole.
const LARGEST: u64 = 64 << 20;
/// Maximum number of loose refs.
const MOST_FILES: usize = 200_000;
/// Prefix of a view's directory name.
const PREFIX: &str = "toft-git-";
/// Age at which a view was certainly left by a killed process.
const LEFT: Duration = Duration::from_secs(86_400);
/// The HEAD of a view if the repository's own cannot be read.
const NO_HEAD: &[u8] = b"ref: refs/heads/none\n";

/// Settings as pairs of name and value.
pub(crate) type Settings = Vec<(String, String)>;

/// Who can write a repository's configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfigWriter {
    /// Only the user.
    User,
    /// An agent or a stranger.
    Anybody,
}

/// A temporary git directory, deleted when dropped.
pub(crate) struct GitView {
    dir: TempDir,
}

impl GitView {
    /// A view of the user's repository, as the common directory of its worktrees. Refs and objects are links to the
    /// originals, for reading and writing.
    pub(crate) fn linked(common: &Path) -> Result<Self, RunError> {
        let view = Self::begin(common, common, ConfigWriter::User)?;
        for name in ["objects", "refs", "logs", "packed-refs", "reftable", "shallow", "worktrees"] {
            view.link(&common.join(name), name)?;
        }
        for name in ["exclude", "attributes"] {
            view.link(&common.join("info").join(name), &format!("info/{name}"))?;
        }
        Ok(view)
    }

    /// A view of a repository that an agent can write: a copy of its refs and logs, and read access to its objects.
    /// Everything that git writes is deleted with the view, so nothing is written through a planted link.
    pub(crate) fn copied(git_dir: &Path, common: &Path) -> Result<Self, RunError> {
        let view = Self::begin(git_dir, common, ConfigWriter::Anybody)?;
        let objects = common.join("objects");
        if objects.as_os_str().as_bytes().contains(&b'\n') {
            return Err(odd(&objects, "its path has a line break"));
        }
        view.write("objects/info/alternates", &[objects.as_os_str().as_bytes(), b"\n"].concat())?;
        let shared = ["shallow", "info/exclude", "info/attributes"].map(|name| (common, name));
        for (from, name) in shared.into_iter().chain([(git_dir, "info/sparse-checkout")]) {
            if let Some(bytes) = plain_file(&from.join(name))? {
                view.write(name, &bytes)?;
            }
        }
        view.copy_files(git_dir, "logs/HEAD", |_, bytes| Some(bytes))?;
        view.copy_files(common, "logs/refs", |_, bytes| Some(bytes))?;
        // The index may be split into two files.
        for entry in fs::read_dir(git_dir).map_err(|cause| failed(git_dir, cause))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("sharedindex.") {
                view.link(&entry.path(), &name)?;
            }
        }
        match common.join("reftable").is_dir() {
            true => view.copy_files(common, "reftable", |_, bytes| Some(bytes))?,
            false => view.copy_refs(common)?,
        }
        view.make("refs/heads")?;
        Ok(view)
    }

    fn begin(git_dir: &Path, common: &Path, writer: ConfigWriter) -> Result<Self, RunError> {
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir();
        let view = Self { dir: dir.map_err(|cause| failed(&std::env::temp_dir(), cause))? };
        view.make("info")?;
        let settings = settings(&common.join("config"), |key| harmless(key, writer))?;
        view.write("config", written(&settings).as_bytes())?;
        let head = plain_file(&git_dir.join("HEAD"))?.unwrap_or_else(|| NO_HEAD.to_vec());
        view.write("HEAD", &head)?;
        Ok(view)
    }

    /// The directory of the view.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    fn make(&self, name: &str) -> Result<(), RunError> {
        let path = self.path().join(name);
        fs::create_dir_all(&path).map_err(|cause| failed(&path, cause))
    }

    fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> Result<(), RunError> {
        let path = self.path().join(name);
        let dir = path.parent().unwrap_or(&path);
        fs::create_dir_all(dir).and_then(|()| fs::write(&path, bytes)).map_err(|cause| failed(&path, cause))
    }

    fn link(&self, to: &Path, name: &str) -> Result<(), RunError> {
        let path = self.path().join(name);
        symlink(to, &path).map_err(|cause| failed(&path, cause))
    }

    /// Copies every ref of a repository, read as data.
    fn copy_refs(&self, common: &Path) -> Result<(), RunError> {
        let packed = plain_file(&common.join("packed-refs"))?.unwrap_or_default();
        let mut refs: BTreeMap<Vec<u8>, String> = BTreeMap::new();
        for line in packed.split(|byte| *byte == b'\n') {
            let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
            let (hash, name) = (String::from_utf8_lossy(&line[..space]).into_owned(), &line[space + 1..]);
            if is_hash(&hash) && is_ref(name) {
                refs.insert(name.to_vec(), hash);
            }
        }
        self.copy_files(common, "refs", |path, bytes| {
            let (name, text) = (path.as_os_str().as_bytes(), String::from_utf8_lossy(&bytes).trim_end().to_owned());
            if is_ref(name) && is_hash(&text) {
                refs.insert(name.to_vec(), text);
            } else if is_ref(name) && text.strip_prefix("ref: ").is_some_and(|target| is_ref(target.as_bytes())) {
                return Some(bytes);
            }
            None
        })?;
        let mut text = Vec::new();
        for (name, hash) in &refs {
            text.extend_from_slice(&[hash.as_bytes(), b" ", name, b"\n"].concat());
        }
        self.write("packed-refs", &text)
    }

    /// Copies regular files at and below a name; `kept` returns the bytes to write, or none.
    fn copy_files(
        &self,
        from: &Path,
        name: &str,
        mut kept: impl FnMut(&Path, Vec<u8>) -> Option<Vec<u8>>,
    ) -> Result<(), RunError> {
        let (mut look, mut seen) = (vec![PathBuf::from(name)], 0);
        while let Some(at) = look.pop() {
            seen += 1;
            if seen > MOST_FILES {
                return Err(odd(from, "it has more refs than toft reads"));
            }
            let path = from.join(&at);
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                let entries = fs::read_dir(&path).map_err(|cause| failed(&path, cause))?;
                look.extend(entries.flatten().map(|entry| at.join(entry.file_name())));
            } else if meta.is_file()
                && let Some(bytes) = plain_file(&path)?
                && let Some(bytes) = kept(&at, bytes)
            {
                self.write(&at, &bytes)?;
            }
        }
        Ok(())
    }
}

/// Deletes old views that killed processes of this user left.
pub(crate) fn forget_left(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let me = nix::unistd::getuid().as_raw();
    for entry in entries.flatten().filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())) {
        let ours = entry.metadata().is_ok_and(|meta| {
            let age = meta.modified().ok().and_then(|at| at.elapsed().ok());
            meta.is_dir() && meta.uid() == me && age.is_some_and(|age| age > LEFT)
        });
        if ours {
            // The next call tries again.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn failed(path: &Path, cause: io::Error) -> RunError {
    RunError::Io { what: format!("git on {}", path.display()), cause }
}

fn odd(path: &Path, why: &str) -> RunError {
    RunError::Odd { path: path.to_owned(), why: why.to_owned() }
}

fn is_hash(text: &str) -> bool {
    [40, 64].contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether git accepts the name as a ref below `refs/`.
fn is_ref(name: &[u8]) -> bool {
    let part = |part: &[u8]| !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock");
    let letter = |byte: &u8| *byte > b' ' && !b"~^:?*[\\\x7f".contains(byte);
    let double = name.windows(2).any(|two| two == b".." || two == b"@{");
    name.starts_with(b"refs/") && !double && name.split(|byte| *byte == b'/').all(part) && name.iter().all(letter)
}

/// The bytes of a regular file; `None` if it does not exist. A link, a pipe or a device is refused: reading it may
/// never end.
pub(crate) fn plain_file(path: &Path) -> Result<Option<Vec<u8>>, RunError> {
    let file = match plain::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(odd(path, &error.to_string())),
        Err(cause) => return Err(failed(path, cause)),
    };
    // Reading without a size begins with 32 bytes.
    let size = file.metadata().map_or(0, |seen| seen.len().min(LARGEST));
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 1);
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|cause| failed(path, cause))?;
    if bytes.len() as u64 > LARGEST {
        return Err(odd(path, "it is too large"));
    }
    Ok(Some(bytes))
}

/// The settings of a configuration file that `wanted` accepts. Included files are not read.
pub(crate) fn settings(file: &Path, wanted: impl Fn(&str) -> bool) -> Result<Settings, RunError> {
    let Some(bytes) = plain_file(file)? else { return Ok(Vec::new()) };
    let mut all = match std::str::from_utf8(&bytes).ok().and_then(parse_plain_settings) {
        Some(all) => all,
        None => asked(&bytes)?,
    };
    all.retain(|(key, _)| wanted(key));
    Ok(all)
}

/// Parses a configuration file without quotes, escapes and comments after values; `None` for any other.
pub(crate) fn parse_plain_settings(text: &str) -> Option<Settings> {
    let (mut all, mut section) = (Vec::new(), String::new());
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = header.strip_suffix(']')?;
            let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            section = match header.split_once(" \"") {
                Some((name, below)) => {
                    let below = below.strip_suffix('"')?;
                    if !plain(name) || below.contains(['"', '\\']) {
                        return None;
                    }
                    format!("{}.{below}", name.to_ascii_lowercase())
                }
                None if plain(header) => header.to_ascii_lowercase(),
                None => return None,
            };
            continue;
        }
        let (name, value) = line.split_once('=').map_or((line, "true"), |(name, value)| (name.trim(), value.trim()));
        let known = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !known || value.contains(['"', '\\', '#', ';']) {
            return None;
        }
        all.push((format!("{section}.{}", name.to_ascii_lowercase()), value.to_owned()));
    }
    Some(all)
}

/// Lets git parse a configuration from memory, so that the file cannot change meanwhile.
fn asked(bytes: &[u8]) -> Result<Settings, RunError> {
    let run = Run::new("git", Path::new("/"))?.careful(&[], false).env("GIT_DIR", "/dev/null");
    let said = run.args(["config", "--file", "-", "--no-includes", "--list", "-z"]).ok_fed(|to| to.write_all(bytes))?;
    let words = said.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    Ok(words
        .map(|word| {
            let word = String::from_utf8_lossy(word).into_owned();
            match word.split_once('\n') {
                Some((key, value)) => (key.to_owned(), value.to_owned()),
                None => (word, "true".to_owned()),
            }
        })
        .collect())
}

/// Formats settings as a configuration file.
fn written(settings: &Settings) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = String::new();
    for (key, value) in settings {
        let Some((section, rest)) = key.split_once('.') else { continue };
        let header = match rest.rsplit_once('.') {
            Some((below, _)) if below.contains('\n') => continue,
            Some((below, _)) => format!("[{section} \"{}\"]", quoted(below)),
            None => format!("[{section}]"),
        };
        let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
        let value = quoted(value).replace('\n', "\\n").replace('\t', "\\t");
        text.push_str(&format!("{header}\n\t{name} = \"{value}\"\n"));
    }
    text
}

/// Whether a setting only describes how the repository is stored and what it contains. It must not name a program or a
/// path outside.
fn harmless(key: &str, writer: ConfigWriter) -> bool {
    const CORE: [&str; 16] = [
        "repositoryformatversion",
        "filemode",
        "symlinks",
        "ignorecase",
        "precomposeunicode",
        "protecthfs",
        "protectntfs",
        "autocrlf",
        "eol",
        "safecrlf",
        "trustctime",
        "checkstat",
        "sparsecheckout",
        "sparsecheckoutcone",
        "bigfilethreshold",
        "logallrefupdates",
    ];
    let Some((section, rest)) = key.split_once('.') else { return false };
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    let user = writer == ConfigWriter::User;
    match (section, name) {
        ("core", "excludesfile" | "attributesfile" | "sharedrepository") => user,
        ("core", name) => CORE.contains(&name),
        // Git must see an unknown extension and refuse the repository. `worktreeConfig` would make it read another
        // file.
        ("extensions", name) => name != "worktreeconfig",
        ("index", "sparse" | "version") | ("i18n", _) => true,
        ("user" | "author" | "committer", "name" | "email") => true,
        ("branch", "remote" | "merge") | ("remote", "url" | "fetch") => true,
        ("remote", "promisor" | "partialclonefilter") => user,
        ("diff", "renames" | "renamelimit" | "algorithm") => true,
        ("merge", "renames" | "renamelimit" | "directoryrenames") => true,
        _ => false,
    }
}

/// The settings that a worktree may set for itself, in a file that its agent can write.
pub(crate) fn of_worktree(git_dir: &Path) -> Result<Settings, RunError> {
    settings(&git_dir.join("config.worktree"), |key| {
        matches!(key, "core.sparsecheckout" | "core.sparsecheckoutcone" | "index.sparse")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_holds_plain_settings_only() {
        let dir = tempfile::tempdir().unwrap();
        let config = "[core]\n\tfileMode = false\n\tfsmonitor = /bin/evil\n\thooksPath = x\n[filter \"e\"]\n\tclean = evil\n\
                      [extensions]\n\tworktreeConfig = true\n\tobjectFormat = sha256\n[include]\n\tpath = other\n\
                      [remote \"origin\"]\n\turl = ext::evil\n\tuploadpack = evil\n[diff \"e\"]\n\ttextconv = evil\n";
        for text in [config.to_owned(), format!("{config}[alias]\n\tx = \"!evil # \\\"\"\n")] {
            fs::write(dir.path().join("config"), text).unwrap();
            let view = GitView::linked(dir.path()).unwrap();
            let kept = fs::read_to_string(view.path().join("config")).unwrap();
            let expected = "[core]\n\tfilemode = \"false\"\n[extensions]\n\tobjectformat = \"sha256\"\n\
                            [remote \"origin\"]\n\turl = \"ext::evil\"\n";
            assert_eq!(kept, expected);
        }
    }

    #[test]
    fn pipes_and_links_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, link) = (dir.path().join("pipe"), dir.path().join("link"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("/etc/passwd", &link).unwrap();
        assert!(matches!(plain_file(&pipe), Err(RunError::Odd { .. })));
        assert!(matches!(plain_file(&link), Err(RunError::Odd { .. })));
        assert!(plain_file(&dir.path().join("none")).unwrap().is_none());
    }

    #[test]
    fn a_ref_stays_below_refs() {
        for name in ["refs/heads/main", "refs/heads/-evil;touch", "refs/toft/rescue/w/1"] {
            assert!(is_ref(name.as_bytes()), "{name}");
        }
        for name in ["HEAD", "refs/../config", "refs/heads/.x", "refs/heads/x.lock", "refs/heads/a b", "refs//x"] {
            assert!(!is_ref(name.as_bytes()), "{name}");
        }
    }
}
