//! A container around a command: it sees its image, its workspace, and of the repository what a commit needs.
//!
//! toft inside is this program, mounted; it calls toft outside (`socket.rs`) and ends with the attempt, and the container
//! with it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use toft_session::config::ContainerRules;

use super::sandbox::{Network, View};

/// Where this program is in a container.
const PROGRAM: &str = "/run/toft/toft";
/// Variables that the container has of its own.
const ITS_OWN: [&str; 3] = ["TMPDIR", "PATH", "PWD"];

/// How commands are put into containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub kind: ContainerKind,
    pub network: Network,
    /// Directories of the agent's own that it may write to, besides its workspace.
    pub writable: Vec<PathBuf>,
}

/// What makes a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerKind {
    /// A program that understands the options of `docker run`.
    Engine {
        /// `docker` or `podman`.
        program: String,
        /// Its image, and more options.
        rules: ContainerRules,
    },
    /// A command of the user's, followed by the agent's. `{workspace}` is its directory, `{socket}` the directory of the
    /// socket.
    Command(Vec<String>),
}

/// What a container is put around.
pub(super) struct Contained<'a> {
    /// Its name.
    pub(super) name: String,
    pub(super) toft: &'a Path,
    pub(super) workspace: &'a Path,
    /// The directory of the attempt's sockets.
    pub(super) sockets: &'a Path,
    /// What it sees of this machine, and how.
    pub(super) mounts: BTreeMap<PathBuf, View>,
    /// An empty directory for each one of those that is hidden.
    pub(super) empty: BTreeMap<PathBuf, PathBuf>,
    pub(super) variables: &'a [(String, String)],
}

impl Container {
    /// A description of what is prevented.
    pub fn promise(&self) -> String {
        match &self.kind {
            ContainerKind::Engine { program, rules } => {
                let network = match &self.network {
                    Network::Open => "the network is open".to_owned(),
                    Network::Closed => "no network".to_owned(),
                    Network::Hosts(hosts) => format!("reaches only {}", hosts.join(", ")),
                };
                let image = rules.image.as_deref().unwrap_or_default();
                let more: String = self.writable.iter().map(|path| format!(", {}", path.display())).collect();
                format!(
                    "{program}: sees the image {image}, its workspace{more} and what a commit needs; writes only those, but not git's configuration, and the container; {network}"
                )
            }
            ContainerKind::Command(words) => format!("`{}`: toft itself confines nothing", words.join(" ")),
        }
    }

    /// The command with the container around it.
    pub(super) fn around(&self, contained: &Contained<'_>, command: Vec<String>) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let (mut words, toft) = match &self.kind {
            ContainerKind::Command(words) => {
                let workspace = text(contained.workspace);
                let filled = |word: &String| {
                    word.replace("{workspace}", &workspace).replace("{socket}", &text(contained.sockets))
                };
                (words.iter().map(filled).collect(), text(contained.toft))
            }
            ContainerKind::Engine { program, rules } => (self.engine(program, rules, contained), PROGRAM.to_owned()),
        };
        words.extend([toft, "sandboxed".to_owned(), "--hold".to_owned()]);
        if self.network.hosts().is_some() {
            words.push("--proxy".to_owned());
        }
        words.push("--".to_owned());
        words.extend(command);
        words
    }

    fn engine(&self, program: &str, rules: &ContainerRules, contained: &Contained<'_>) -> Vec<String> {
        let mut words = vec![program.to_owned(), "run".to_owned(), "--rm".to_owned(), "-i".to_owned()];
        let mut put = |option: &str, value: String| words.extend([option.to_owned(), value]);
        put("--name", contained.name.clone());
        put("--workdir", contained.workspace.display().to_string());
        // Files keep their owner, and their labels.
        put("--security-opt", "label=disable".to_owned());
        let user = nix::unistd::geteuid();
        match program.ends_with("podman") {
            true if !user.is_root() => put("--userns", "keep-id".to_owned()),
            _ => put("--user", format!("{user}:{}", nix::unistd::getegid())),
        }
        if self.network != Network::Open {
            put("--network", "none".to_owned());
        }
        for (path, view) in &contained.mounts {
            match (view, contained.empty.get(path)) {
                (View::Writable, _) => put("--mount", mount(path, path, false)),
                (View::ReadOnly, _) => put("--mount", mount(path, path, true)),
                (View::Hidden, Some(empty)) => put("--mount", mount(empty, path, true)),
                (View::Hidden | View::Private, _) => {}
            }
        }
        put("--mount", mount(contained.toft, Path::new(PROGRAM), true));
        put("--mount", mount(contained.sockets, contained.sockets, true));
        // By name: what stands in a command line is read by everybody on this machine.
        for (name, _) in contained.variables.iter().filter(|(name, _)| !ITS_OWN.contains(&name.as_str())) {
            put("--env", name.clone());
        }
        if !self.writable.is_empty() {
            // Where the agent looks for its own directories.
            put("--env", format!("HOME={}", toft_session::config::home().display()));
        }
        words.extend(rules.args.iter().cloned());
        words.extend(rules.image.clone());
        words
    }
}

/// A mount as `--mount` takes it: fields with commas between them, which a path may contain, too.
fn mount(source: &Path, target: &Path, read_only: bool) -> String {
    let field = |name: &str, path: &Path| {
        let field = format!("{name}={}", path.display());
        if field.contains([',', '"', '\n']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
    };
    let end = if read_only { ",readonly" } else { "" };
    format!("type=bind,{},{}{end}", field("source", source), field("target", target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_names_any_path() {
        let plain = mount(Path::new("/a:b"), Path::new("/c d"), true);
        assert_eq!(plain, "type=bind,source=/a:b,target=/c d,readonly");
        let quoted = mount(Path::new("/a,\"b"), Path::new("/c"), false);
        assert_eq!(quoted, "type=bind,\"source=/a,\"\"b\",target=/c");
    }
}
