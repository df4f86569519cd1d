//! Sets up a workspace: copies, links and runs what its repository configures.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use toft_core::workspace::Workspace;
use toft_session::{
    error::{Error, io},
    mask::{Mask, PIECE, Stream},
    setup::Setup,
};
use toft_store::private;
use toft_vcs::{
    shell,
    workspace::{WorkspaceBackend, behind_link, set_modified},
};

/// Time limit of one command.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// How often new output of a command is read.
const LOOK: Duration = Duration::from_millis(50);
/// The first port number.
const FIRST_PORT: u16 = 20_000;
/// Number of ports.
const PORTS: u16 = 10_000;

/// Ports without a listener, to choose from.
pub(crate) fn free_ports(setup: &Setup, seed: u16) -> Vec<u16> {
    // A few more than are needed: another workspace may have leased some.
    let wanted = if setup.ports.is_empty() { 0 } else { setup.ports.len() + 64 };
    let candidates = (0..PORTS).map(|n| FIRST_PORT + (seed.wrapping_add(n)) % PORTS);
    candidates.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(wanted).collect()
}

/// Sets up a workspace; `step` receives progress messages. All output is in the log. Returns what was missing.
pub(crate) fn run(
    setup: &Setup,
    backend: &WorkspaceBackend,
    from: &Path,
    workspace: &Workspace,
    log: &Path,
    mut step: impl FnMut(&str),
) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    let to = Path::new(&workspace.path);
    if let Some(dir) = log.parent() {
        private::create_dir_all(dir).map_err(io("make", dir))?;
    }
    let mut told = private::create(log).map_err(io("write", log))?;
    let mut newest = None;
    for (paths, link) in [(&setup.copy, false), (&setup.link, true)] {
        for path in paths {
            step(path);
            let (source, target) = (from.join(path), to.join(path));
            let what = if behind_link(from, Path::new(path)) || behind_link(to, Path::new(path)) {
                missing.push(format!("{path} is behind a link, and is not copied"));
                "is behind a link"
            } else if fs::symlink_metadata(&source).is_err() {
                missing.push(format!("{path} is not in {}", from.display()));
                "is not there to be taken"
            } else if fs::symlink_metadata(&target).is_ok() {
                "is there already"
            } else if link {
                make_room(&target)?;
                match link_to(backend, workspace, path, &source, &target)? {
                    true => "linked",
                    false => {
                        let why = "is not ignored, and a link to it would be committed: add it to .gitignore";
                        missing.push(format!("{path} {why}"));
                        "is not ignored"
                    }
                }
            } else {
                make_room(&target)?;
                let copied = copy(&source, &target)?;
                newest = newest.max(Some(copied).filter(|_| target.is_dir()));
                "copied"
            };
            writeln!(told, "{path}: {what}").map_err(io("write", log))?;
        }
    }
    drop(told);
    if let Some(newest) = newest {
        backend.keep_times(workspace, newest)?;
    }
    let mask = Mask::from_environment(None);
    for command in setup.commands() {
        step(&command);
        let said = SetupOutput::begin(&command, log, &mask)?;
        let ended = said.told().and_then(|told| {
            shell(to, &command, &variables(workspace), told, PATIENCE)
                .map_err(|error| Error::Setup { log: log.to_owned(), why: mask.mask(&error.to_string()) })
        });
        said.end()?;
        ended?;
    }
    Ok(missing)
}

/// Links to files of the main checkout in a way that is never committed; false if there are none. `dir/` in a
/// `.gitignore` does not match a link, so such a directory is a real one whose entries are links.
fn link_to(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    path: &str,
    source: &Path,
    target: &Path,
) -> Result<bool, Error> {
    symlink(source, target).map_err(io("link", target))?;
    if backend.ignores(workspace, path)? {
        return Ok(true);
    }
    fs::remove_file(target).map_err(io("remove", target))?;
    if !source.is_dir() {
        return Ok(false);
    }
    fs::create_dir(target).map_err(io("make", target))?;
    for entry in fs::read_dir(source).map_err(io("read", source))? {
        let name = entry.map_err(io("read", source))?.file_name();
        let link = target.join(&name);
        symlink(source.join(&name), &link).map_err(io("link", &link))?;
    }
    let own = target.join(".gitignore");
    if !backend.ignores(workspace, path)? && fs::symlink_metadata(&own).is_err() {
        fs::write(&own, "*\n").map_err(io("write", &own))?;
    }
    Ok(true)
}

/// The output of a setup command. It is written to an unnamed file and copied from there into the log, masked: a secret
/// is never on disk under a name, and a background process of a command can still write when the output is no longer
/// read.
struct SetupOutput {
    raw: fs::File,
    log: PathBuf,
    over: Arc<AtomicBool>,
    copying: JoinHandle<std::io::Result<()>>,
}

impl SetupOutput {
    fn begin(command: &str, log: &Path, mask: &Mask) -> Result<Self, Error> {
        let path = log.with_extension(format!("{}.said", std::process::id()));
        let raw = private::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(io("write", &path))?;
        fs::remove_file(&path).map_err(io("remove", &path))?;
        let mut shown = private::options().append(true).open(log).map_err(io("write", log))?;
        writeln!(shown, "$ {}", mask.mask(command)).map_err(io("write", log))?;
        let over = Arc::<AtomicBool>::default();
        let (reader, done, mask) = (raw.try_clone().map_err(io("read", log))?, Arc::clone(&over), mask.clone());
        let copying = thread::spawn(move || copy_masked(&reader, shown, &done, &mask));
        Ok(Self { raw, log: log.to_owned(), over, copying })
    }

    /// The file to which the command writes.
    fn told(&self) -> Result<fs::File, Error> {
        self.raw.try_clone().map_err(io("write", &self.log))
    }

    /// Writes all output so far to the log.
    fn end(self) -> Result<(), Error> {
        self.over.store(true, Ordering::SeqCst);
        match self.copying.join() {
            Ok(copied) => copied.map_err(io("write", &self.log)),
            Err(_) => Err(io("write", &self.log)(std::io::ErrorKind::Other.into())),
        }
    }
}

fn copy_masked(from: &fs::File, mut to: fs::File, over: &AtomicBool, mask: &Mask) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    let (mut at, mut stream, mut buffer) = (0, Stream::default(), vec![0; PIECE]);
    let mut kept = Ok(());
    loop {
        let ended = over.load(Ordering::SeqCst);
        let count = from.read_at(&mut buffer, at)?;
        at += count as u64;
        let mut keep = |line: String| kept = std::mem::replace(&mut kept, Ok(())).and_then(|()| writeln!(to, "{line}"));
        stream.take(mask, &buffer[..count], &mut keep);
        if count == 0 && ended {
            stream.end(mask, &mut keep);
            return kept;
        }
        if count == 0 {
            thread::sleep(LOOK);
        }
    }
}

/// The environment variables of a workspace.
pub fn variables(workspace: &Workspace) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([("TOFT_WORKSPACE".to_owned(), workspace.path.clone())]);
    variables.extend(workspace.task.as_ref().map(|task| ("TOFT_TASK".to_owned(), task.to_string())));
    for (name, port) in &workspace.ports {
        variables.insert(format!("TOFT_PORT_{}", name.to_ascii_uppercase()), port.to_string());
    }
    variables
}

fn make_room(target: &Path) -> Result<(), Error> {
    match target.parent() {
        Some(dir) => fs::create_dir_all(dir).map_err(io("make", dir)),
        None => Ok(()),
    }
}

/// Copies a file, a link or a directory tree, with permissions and times; returns the time of the newest file. The
/// system shares blocks if the file system can. Other kinds of files are skipped.
pub(crate) fn copy(source: &Path, target: &Path) -> Result<SystemTime, Error> {
    let meta = fs::symlink_metadata(source).map_err(io("read", source))?;
    let mut newest = meta.modified().map_err(io("read", source))?;
    if meta.is_symlink() {
        let to = fs::read_link(source).map_err(io("read", source))?;
        symlink(to, target).map_err(io("link", target))?;
    } else if meta.is_dir() {
        fs::create_dir(target).map_err(io("make", target))?;
        for entry in fs::read_dir(source).map_err(io("read", source))? {
            let entry = entry.map_err(io("read", source))?;
            newest = newest.max(copy(&entry.path(), &target.join(entry.file_name()))?);
        }
        fs::set_permissions(target, meta.permissions()).map_err(io("set permissions of", target))?;
    } else if meta.is_file() {
        fs::copy(source, target).map_err(io("copy", target))?;
    } else {
        return Ok(newest);
    }
    let time = meta.modified().map_err(io("read", source))?;
    set_modified(target, time).map_err(io("set the time of", target))?;
    Ok(newest)
}
