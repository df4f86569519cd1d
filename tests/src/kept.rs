//! What stories about nothing being lost share: every byte of a workspace, before and after.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{Home, workspaces::commit_all};

/// Every file, link and directory below a workspace, but git's own at its top: with permissions and content.
pub type Bytes = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// Looks at everything.
pub fn every_byte(dir: &Path) -> Bytes {
    let mut found = Bytes::new();
    let mut look = vec![dir.to_owned()];
    while let Some(at) = look.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_owned();
            if [".git", ".hg", ".jj"].iter().any(|own| name == Path::new(own)) {
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            let bytes = match () {
                () if meta.is_dir() => {
                    look.push(path);
                    Vec::new()
                }
                () if meta.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                () => fs::read(&path).unwrap(),
            };
            found.insert(name, (meta.mode(), bytes));
        }
    }
    found
}

/// What is missing or different, but for what was named as left.
pub fn lost(before: &Bytes, after: &Bytes, left: &[String]) -> Vec<String> {
    let named = |path: &Path| left.iter().any(|left| path.starts_with(left));
    let differs = |(path, file): &(&PathBuf, &(u32, Vec<u8>))| !named(path) && after.get(*path) != Some(file);
    let told = |file: Option<&(u32, Vec<u8>)>| {
        file.map(|(mode, bytes)| format!("{mode:o} {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)])))
    };
    let lost = before.iter().filter(differs);
    lost.map(|(path, file)| format!("{}: {:?} became {:?}", path.display(), told(Some(file)), told(after.get(path))))
        .collect()
}

/// What the store says went without a rescue.
pub fn left(home: &Home, repo: &Path, name: &str) -> Vec<String> {
    let shown = home.toft(repo, &["ws", "list", name, "--json"]).data();
    let left = shown["left"].as_array().cloned().unwrap_or_default();
    left.iter().map(|left| left["path"].as_str().unwrap().trim_end_matches('/').to_owned()).collect()
}

/// Writes a file, with the directories it is in.
pub fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A repository with files in a directory, and rules for what is ignored.
pub fn project(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    for n in 0..6 {
        write(&repo.join(format!("src/f{n}.txt")), &format!("line {n}\n"));
    }
    write(&repo.join(".gitignore"), ".env\ndata/\nnotes/\ntarget/\nvendor/\n*.sqlite\n");
    commit_all(home, &repo, "files");
    repo
}

/// With a submodule `lib`.
pub fn with_submodule(home: &Home) -> PathBuf {
    let library = home.git("library");
    write(&library.join("lib.txt"), "library\n");
    write(&library.join(".gitignore"), ".env\n");
    commit_all(home, &library, "library");
    let repo = project(home);
    home.run(&repo, "git", &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../library", "lib"]);
    home.run(&repo, "git", &["commit", "-q", "-m", "with a library"]);
    repo
}

/// Makes a workspace.
pub fn create(home: &Home, repo: &Path, name: &str, more: &[&str]) -> PathBuf {
    let mut args = vec!["ws", "create", "--name", name, "-q"];
    args.extend(more);
    PathBuf::from(home.toft(repo, &args).ok().trim())
}

/// Fills the submodule of a workspace.
pub fn fill_submodule(home: &Home, dir: &Path) {
    home.run(dir, "git", &["config", "submodule.lib.url", home.path().join("library").to_str().unwrap()]);
    home.run(dir, "git", &["-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init"]);
}

/// Begins a repository in a directory, with a commit that only it has; gives the commit.
pub fn begin_repository(home: &Home, dir: &Path) -> String {
    fs::create_dir_all(dir).unwrap();
    home.run(dir, "git", &["init", "-q", "-b", "inner"]);
    write(&dir.join("inner.txt"), "inner work\n");
    home.run(dir, "git", &["add", "inner.txt"]);
    home.run(dir, "git", &["commit", "-q", "-m", "inner work"]);
    fs::remove_file(dir.join("inner.txt")).unwrap();
    home.run(dir, "git", &["rev-parse", "HEAD"]).trim().to_owned()
}
