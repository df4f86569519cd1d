//! Backups of a server by pgBackRest.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::process::{self, wait_until};

const PROGRAM: &str = "/usr/bin/pgbackrest";

/// Whether pgBackRest is installed, and a PostgreSQL server.
#[must_use]
pub fn backup_available() -> bool {
    crate::available() && Path::new(PROGRAM).is_file()
}

/// A server whose write-ahead log is archived, and the folder with its backups. Dropping it removes both.
pub struct BackupRepository {
    cluster: Cluster,
    folder: TempDir,
}

impl BackupRepository {
    /// Makes and starts a server, and an empty repository for its backups.
    ///
    /// # Panics
    ///
    /// If pgBackRest fails, or the server cannot archive.
    #[must_use]
    pub fn start() -> Self {
        let folder = process::fresh_folder();
        let archive =
            format!("{PROGRAM} --config={}/pgbackrest.conf --stanza=toft archive-push %p", folder.path().display());
        // The server retries until there is a repository to push to.
        let cluster = Cluster::start_with(&[("archive_mode", "on"), ("archive_command", &archive)]);
        let repository = Self { cluster, folder };
        repository.write_settings();
        repository.run(&["stanza-create"]);
        repository.run(&["check"]);
        repository
    }

    /// The server.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Makes a full backup while the server works.
    ///
    /// # Panics
    ///
    /// If pgBackRest fails.
    pub fn back_up(&self) {
        self.run(&["--type=full", "--start-fast", "backup"]);
    }

    /// Waits until everything that was committed before this call is in the archive.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn archive(&self) {
        let segment = self.cluster.psql("select pg_walfile_name(pg_switch_wal())");
        let archived = "select coalesce(last_archived_wal, '') from pg_stat_archiver";
        assert!(wait_until(|| self.cluster.psql(archived) >= segment), "{segment} was not archived");
    }

    /// Restores the newest moment that is in the archive, in place of the server's lost files, and starts the server.
    ///
    /// # Panics
    ///
    /// If pgBackRest fails, or the server takes no writes in time.
    pub fn restore(&mut self) {
        process::make_data_folder(&self.cluster.data());
        self.run(&["restore"]);
        self.cluster.restart();
        // It takes queries before it has read the whole archive.
        let recovering = || self.cluster.try_psql("select pg_is_in_recovery()");
        assert!(wait_until(|| recovering().is_ok_and(|answer| answer == "f")), "the server does not end its recovery");
    }

    fn write_settings(&self) {
        let (home, data) = (self.folder.path().display(), self.cluster.data());
        let settings = format!(
            "[global]
repo1-path={home}/repository
repo1-retention-full=2
log-level-file=off
lock-path={home}
spool-path={home}
[toft]
pg1-path={}
pg1-port={}
pg1-socket-path={}
",
            data.display(),
            self.cluster.port(),
            self.cluster.sockets().display(),
        );
        let file = self.folder.path().join("pgbackrest.conf");
        fs::write(&file, settings).expect("no room for the settings");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("the file is ours");
    }

    fn run(&self, words: &[&str]) {
        let config = format!("--config={}/pgbackrest.conf", self.folder.path().display());
        let words: Vec<_> = [&config, "--stanza=toft"].into_iter().chain(words.iter().copied()).collect();
        process::try_program(&self.folder, Path::new(PROGRAM), &words).unwrap_or_else(|error| panic!("{error}"));
    }
}
