//! Clones that toft makes on machines that work for a fleet.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use toft_core::{repository::Repository, verbs::visit};
use toft_store::private;
use toft_vcs::RepoLock;

use crate::{
    config::{Config, StoreLocation, data_home},
    engine::Home,
    error::{Error, io},
    session::Session,
};

/// What a clone that toft made is configured with: its ledger is exchanged while agents work.
const CONFIGURATION: &str = "[sync]\nauto = \"10s\"\n";

impl Session {
    /// Clones of all repositories of the store that have an address to clone from. What is missing is cloned if `make`; `say`
    /// is told before.
    pub fn fleet_clones(&self, make: bool, mut say: impl FnMut(&str)) -> Result<Vec<PathBuf>, Error> {
        let clones = clones_dir();
        // Two runners clone one after the other.
        let _turn = match make {
            true => Some(wait_for_turn(&clones)?),
            false => None,
        };
        let (mut dirs, mut last) = (Vec::new(), None);
        for (repository, _) in self.perform(visit::List {})? {
            let Some(url) = &repository.clone_url else { continue };
            let dir = clones.join(directory_name(&repository));
            let ready = match make {
                true => self.prepare_clone(&repository, url, &dir, &mut say),
                false => Ok(()),
            };
            match ready {
                Ok(()) if dir.exists() => dirs.push(dir),
                Ok(()) => {}
                Err(error) => {
                    say(&format!("{} is left out: {error}", repository.name));
                    last = Some(error);
                }
            }
        }
        match last.filter(|_| dirs.is_empty()) {
            Some(error) => Err(error),
            None => Ok(dirs),
        }
    }

    fn prepare_clone(
        &self,
        repository: &Repository,
        url: &str,
        dir: &Path,
        say: &mut impl FnMut(&str),
    ) -> Result<(), Error> {
        if dir.exists() {
            toft_vcs::clone::follow(dir, url)?;
            return self.register_clone(repository, dir);
        }
        say(&format!("cloning {} from {url}", repository.name));
        toft_vcs::clone::clone(url, dir)?;
        self.register_clone(repository, dir).inspect_err(|_| {
            // Nobody worked in it: another address may be right.
            let _ = fs::remove_dir_all(dir);
        })
    }

    /// Registers a new clone in this store. A clone of something else is an error.
    fn register_clone(&self, repository: &Repository, dir: &Path) -> Result<(), Error> {
        let Home::Remote(address) = &self.located().store else {
            return Err(Error::Config {
                path: "store".into(),
                problem: "only a toft server says what is cloned; name it with --store https://…".into(),
            });
        };
        let file = dir.join(".git").join("toft").join("config.toml");
        if !file.exists() {
            private::write(&file, CONFIGURATION.as_bytes()).map_err(io("write", &file))?;
        }
        let store = Some(StoreLocation::Remote(address.to_string()));
        let (session, _) = Self::init(&Config { store, dir: Some(dir.to_owned()), ..Config::default() }, false)?;
        if session.located().repository.as_ref() == Some(&repository.id) {
            return Ok(());
        }
        let url = repository.clone_url.clone().unwrap_or_default();
        let problem = format!("{url} is no clone of {}: its history is another one", repository.name);
        Err(Error::Config { path: dir.display().to_string(), problem })
    }
}

/// Where clones that toft makes are.
fn clones_dir() -> PathBuf {
    data_home().join("clones")
}

fn wait_for_turn(clones: &Path) -> Result<RepoLock, Error> {
    loop {
        if let Some(turn) = RepoLock::attempt(clones, "clones")? {
            return Ok(turn);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// A name for a directory of a repository.
pub(crate) fn directory_name(repository: &Repository) -> String {
    let fits = |letter: char| if letter.is_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
    let fitting = |text: &str| text.chars().map(fits).collect::<String>();
    // Names may be the same; ids are not.
    let (name, id) = (fitting(&repository.name), fitting(repository.id.as_str().trim_start_matches("rp_")));
    format!("{}-{id}", name.trim_matches('.'))
}

/// Brings a clone that toft made up to date, if that was not done for `every`.
pub fn refresh_clone(session: &Session, every: Duration) -> Result<(), Error> {
    let Some(checkout) = session
        .located()
        .checkout
        .as_ref()
        .filter(|checkout| checkout.root.starts_with(clones_dir()) && toft_vcs::clone::is_made(checkout))
    else {
        return Ok(());
    };
    let stamp = checkout.state_dir().join("refreshed");
    let recent =
        fs::metadata(&stamp).and_then(|meta| meta.modified()).is_ok_and(|at| at.elapsed().is_ok_and(|age| age < every));
    let Some(_turn) = RepoLock::attempt(&checkout.state_dir(), "refresh")?.filter(|_| !recent) else {
        return Ok(());
    };
    // Whether or not it works, the next try is as long away.
    private::write(&stamp, b"").map_err(io("write", &stamp))?;
    Ok(toft_vcs::clone::refresh(checkout)?)
}
