use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::process::{self, Daemon};

const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// Whether PgBouncer is installed.
#[must_use]
pub fn bouncer_available() -> bool {
    Path::new(PROGRAM).is_file()
}

/// A PgBouncer in transaction mode: up to 2000 clients share 20 connections to the server. Dropping it ends it.
pub struct Bouncer {
    // The process is dropped before its folder.
    _process: Daemon,
    _folder: TempDir,
    port: u16,
}

impl Bouncer {
    /// Starts a PgBouncer in front of `cluster`.
    ///
    /// # Panics
    ///
    /// With the end of its log, if no query gets through within 30 seconds.
    #[must_use]
    pub fn start(cluster: &Cluster) -> Self {
        let folder = process::fresh_folder();
        let port = process::free_port();
        let settings = format!(
            "[databases]
            * = host=127.0.0.1 port={server} user=toft
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {port}
            unix_socket_dir = {home}
            auth_type = any
            pool_mode = transaction
            default_pool_size = 20
            max_client_conn = 2000
            ignore_startup_parameters = extra_float_digits",
            server = cluster.port(),
            home = folder.path().display(),
        );
        let ini = folder.path().join("pgbouncer.ini");
        fs::write(&ini, settings).expect("no room for the settings");
        fs::set_permissions(&ini, Permissions::from_mode(0o644)).expect("the file is ours");

        // So many clients need more open files than a process may have at first.
        let raise_limit = r#"ulimit -S -n "$(ulimit -H -n)"; exec "$@""#;
        let mut command = process::command(&folder, Path::new("sh"));
        command.args(["-c", raise_limit, "sh", PROGRAM]).arg(&ini);
        let process = Daemon::spawn(&mut command, Signal::SIGTERM, folder.path().join("pgbouncer.log"));
        process.wait_until(|| process::psql(&folder, port, "toft", "select 1").is_ok());
        Self { _process: process, _folder: folder, port }
    }

    /// The address for toft to connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://toft@127.0.0.1:{}/toft", self.port)
    }
}
