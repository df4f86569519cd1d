//! A machine of a fleet: a home, a token and a name that no other machine has.

use std::{fs, path::PathBuf};

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

    /// Writes this clone's own configuration.
    pub fn configure(clone: &std::path::Path, text: &str) {
        let dir = clone.join(".git/toft");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("config.toml"), text).unwrap();
    }
}
