//! Machines of a fleet: each has a home, a token and a name that no other machine has.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{FleetServer, Home};

/// A machine that has logged in to a server.
pub struct FleetMachine {
    /// Where its user is.
    pub home: Home,
    /// Its token.
    pub secret: String,
}

impl FleetMachine {
    /// A machine whose user is `name`.
    pub fn new(server: &FleetServer, owner: &Home, name: &str, role: &str) -> Self {
        let mut home = Home::new();
        home.toft_on_path();
        let secret = server.token(owner, name, role);
        home.set("TOFT_STORE", &server.url);
        home.set("TOFT_TOKEN", &secret);
        home.set("TOFT_AGENT", name);
        home.set("TOFT_HOST", &format!("machine-of-{name}"));
        Self { home, secret }
    }

    /// A clone of a repository, registered in the server's store.
    pub fn clone_of(&self, url: &str, name: &str) -> PathBuf {
        self.home.run(self.home.path(), "git", &["clone", "-q", url, name]);
        let clone = self.home.path().join(name);
        self.home.toft(&clone, &["init"]).ok();
        clone
    }

    /// Plans tasks of these titles.
    pub fn plan(&self, clone: &Path, titles: &[&str]) {
        for title in titles {
            self.home.toft(clone, &["flow", "new", title]).ok();
        }
    }

    /// Writes this clone's own configuration.
    pub fn configure(clone: &Path, text: &str) {
        let dir = clone.join(".git/toft");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("config.toml"), text).unwrap();
    }
}

/// A server, a coordinator and a worker, each with a clone of one repository.
pub struct FleetTeam {
    /// Where the server is.
    pub owner: Home,
    /// What serves.
    pub server: FleetServer,
    /// The repository that everybody clones.
    pub url: String,
    /// The coordinator.
    pub ana: FleetMachine,
    /// The worker.
    pub far: FleetMachine,
    /// The coordinator's clone.
    pub here: PathBuf,
    /// The worker's clone.
    pub there: PathBuf,
}

impl FleetTeam {
    /// A team whose server keeps everything in files.
    #[expect(clippy::new_without_default, reason = "starting a server is not a default")]
    pub fn new() -> Self {
        Self::served(Home::new(), &[])
    }

    /// A team whose server is started by `owner` with these arguments.
    pub fn served(owner: Home, args: &[&str]) -> Self {
        let server = FleetServer::start(&owner, &owner.path().join("fleet.db").display().to_string(), args);
        let seed = owner.git("seed");
        let url = owner.path().join("shop.git").display().to_string();
        owner.run(&seed, "git", &["clone", "-q", "--bare", ".", &url]);
        let ana = FleetMachine::new(&server, &owner, "ana", "coordinator");
        let far = FleetMachine::new(&server, &owner, "far", "worker");
        let (here, there) = (ana.clone_of(&url, "shop"), far.clone_of(&url, "shop"));
        Self { owner, server, url, ana, far, here, there }
    }

    /// Plans tasks of these titles.
    pub fn plan(&self, titles: &[&str]) {
        self.ana.plan(&self.here, titles);
    }
}
