use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::process::{self, Daemon, run};

/// What lets a program believe in another time.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// How a server is set up unless a test asks for something else.
const SETTINGS: [(&str, &str); 6] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("max_connections", "300"),
    ("autovacuum_naptime", "5s"),
    ("wal_level", "replica"),
    ("max_wal_senders", "5"),
];

/// A PostgreSQL server with an empty database `toft`. Dropping it ends the server and removes its files.
pub struct Cluster {
    // The server is dropped before its folder.
    server: Daemon,
    folder: TempDir,
    port: u16,
    /// A file that says how far its wall clock is off.
    clock: Option<PathBuf>,
}

impl Cluster {
    /// Makes and starts a server. Panics with the end of its log if it takes no connections within 30 seconds.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like [`start`](Self::start), with further settings for `postgresql.conf`, which win over our own.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start) does.
    #[must_use]
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        let folder = process::fresh_folder();
        run(&folder, "initdb -U postgres -A trust -E UTF8 --locale=C --no-sync -D data");
        let conf = folder.path().join("data/postgresql.conf");
        let mut conf = File::options().append(true).open(conf).expect("initdb made this file");
        for (name, value) in SETTINGS.iter().chain(settings) {
            writeln!(conf, "{name} = '{}'", value.replace('\'', "''")).expect("no room for the settings");
        }
        let cluster = Self::launch(folder, process::free_port());
        for make in ["create role toft login", "create database toft owner toft"] {
            cluster.query("postgres", make).expect("could not make the database");
        }
        cluster
    }

    /// Like [`start`](Self::start), with a wall clock that is as far off as the text in the file `clock` says (`+0`, `+120s`);
    /// nothing if that cannot be done here.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start) does.
    #[must_use]
    pub fn start_with_clock(clock: &Path) -> Option<Self> {
        if !Path::new(FAKETIME).exists() {
            return None;
        }
        let mut cluster = Self::start();
        cluster.clock = Some(clock.to_owned());
        cluster.restart();
        Some(cluster)
    }

    /// Makes and starts a standby that follows `primary`.
    pub(crate) fn standby_of(primary: &Self, port: u16) -> Self {
        let folder = process::fresh_folder();
        let source = format!("postgres://postgres@127.0.0.1:{}/toft?application_name=standby_{port}", primary.port());
        run(&folder, &format!("pg_basebackup -d {source} --write-recovery-conf --checkpoint=fast --no-sync -D data"));
        Self::launch(folder, port)
    }

    fn launch(folder: TempDir, port: u16) -> Self {
        let server = Self::spawn(&folder, port, None);
        let cluster = Self { server, folder, port, clock: None };
        cluster.wait_until_ready();
        cluster
    }

    /// The address is not in the settings file, since a standby begins with a copy of that.
    fn spawn(folder: &TempDir, port: u16, clock: Option<&Path>) -> Daemon {
        let mut postgres = process::command(folder, &process::program("postgres"));
        postgres.args(["-D", "data", "-h", "127.0.0.1", "-p", &port.to_string()]);
        postgres.arg("-k").arg(folder.path());
        if let Some(clock) = clock {
            postgres.env("LD_PRELOAD", FAKETIME).env("FAKETIME_TIMESTAMP_FILE", clock);
            postgres.envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")]);
        }
        Daemon::spawn(&mut postgres, Signal::SIGQUIT, folder.path().join("postgres.log"))
    }

    /// The address for toft to connect to, as a user with no other rights than its own database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://toft@127.0.0.1:{}/toft", self.port)
    }

    /// The loopback port, which stays the same over a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL in the database `toft` and returns what `psql` prints: a line for each row, with `|` between columns.
    ///
    /// # Panics
    ///
    /// If the SQL fails or takes more than a minute.
    pub fn psql(&self, sql: &str) -> String {
        self.try_psql(sql).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`psql`](Self::psql), for when the server may be down.
    ///
    /// # Errors
    ///
    /// What `psql` complained of.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        self.query("toft", sql)
    }

    fn query(&self, database: &str, sql: &str) -> Result<String, String> {
        process::psql(&self.folder, self.port, database, sql)
    }

    /// Waits until the server takes connections. Panics with the end of its log if that takes over 30 seconds, or if
    /// the server ends.
    pub fn wait_until_ready(&self) {
        self.server.wait_until(|| self.query("postgres", "select 1").is_ok());
    }

    pub(crate) fn is_running(&self) -> bool {
        self.server.is_running()
    }

    /// Kills the server and all its sessions at once, as if the machine had crashed, and waits until they are gone.
    /// Unlike in a real crash, what the server had handed to the operating system is not lost.
    ///
    /// Does nothing if the server is down already.
    ///
    /// # Panics
    ///
    /// If a process stays.
    pub fn kill_server(&self) {
        assert!(self.server.kill(), "PostgreSQL's processes would not end");
        // These files name a process that is gone, and whose number another may get.
        for stale in ["data/postmaster.pid", &format!(".s.PGSQL.{}.lock", self.port)] {
            let _ = fs::remove_file(self.folder.path().join(stale));
        }
    }

    /// Starts the server again with the same files and port, and waits until it takes connections. If it is still
    /// running, it is killed first. Panics as [`start`](Self::start) does.
    pub fn restart(&mut self) {
        self.kill_server();
        self.server = Self::spawn(&self.folder, self.port, self.clock.as_deref());
        self.wait_until_ready();
    }

    /// Kills a random session's process. PostgreSQL then ends all other sessions too and recovers, which takes a moment.
    ///
    /// Returns false if there is no session to kill, or the server is not taking connections.
    pub fn kill_a_backend(&self) -> bool {
        let sessions = "select pid from pg_stat_activity \
                        where backend_type = 'client backend' and pid <> pg_backend_pid() order by random() limit 1";
        let session = self.try_psql(sessions).ok().and_then(|pid| pid.parse().ok());
        let Some((session, server)) = session.map(Pid::from_raw).zip(self.server.pid()) else {
            return false;
        };
        let is_ours = process::stat(session).is_some_and(|(_, parent)| parent == server);
        if is_ours {
            process::send(session, Signal::SIGKILL);
        }
        is_ours
    }

    /// Kills the server as [`kill_server`](Self::kill_server) does and deletes its files: the disk is lost.
    ///
    /// # Panics
    ///
    /// If a process or a file stays.
    pub fn destroy(&self) {
        self.kill_server();
        fs::remove_dir_all(self.data()).expect("the files are ours");
    }

    /// Where its files are.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Where its socket is.
    pub(crate) fn sockets(&self) -> &Path {
        self.folder.path()
    }

    /// Tells a standby to become the primary, without waiting.
    pub(crate) fn promote(&self) {
        run(&self.folder, "pg_ctl promote --no-wait -D data");
    }
}
