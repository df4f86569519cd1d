use std::mem;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::process::{free_port, wait_until};

/// A commit that needs no table.
const WRITE: &str = "select pg_logical_emit_message(true, 'toft-cluster', '')";

/// A primary and a synchronous standby: a commit is confirmed only once both have it on disk.
pub struct Pair {
    primary: Cluster,
    /// After a fail-over and until the rebuild, this is the dead primary.
    standby: Cluster,
    url: String,
}

impl Pair {
    /// Makes and starts both servers, and waits until commits are synchronous.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    #[must_use]
    pub fn start() -> Self {
        // A new standby must find the log that the primary wrote since the copy, however busy it is. A standby that has
        // lost its primary now and then sleeps through its promotion, five seconds unless told otherwise.
        let settings = [("wal_keep_size", "1GB"), ("wal_retrieve_retry_interval", "100ms")];
        let primary = Cluster::start_with(&settings);
        let standby = Self::attach_standby(&primary, free_port());
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
        let url = format!("postgres://toft@{hosts}/toft?target_session_attrs=read-write");
        Self { primary, standby, url }
    }

    /// The address of both servers, for toft to find the one that takes writes. It stays the same over a fail-over.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The server that takes writes now.
    #[must_use]
    pub fn primary(&self) -> &Cluster {
        &self.primary
    }

    /// Kills the primary as [`Cluster::kill_server`] does and makes the standby the primary. Returns the time from the
    /// kill to the first write that the new primary took.
    ///
    /// From here on the new primary is alone, and its commits wait for no one until the [`rebuild`](Self::rebuild).
    ///
    /// # Panics
    ///
    /// If there is no standby, or it takes no writes within 30 seconds.
    pub fn fail_over(&mut self) -> Duration {
        assert!(self.standby.is_running(), "there is no standby: rebuild the pair first");
        let start = Instant::now();
        self.primary.kill_server();
        self.standby.promote();
        mem::swap(&mut self.primary, &mut self.standby);
        let writable = wait_until(|| self.primary.try_psql(WRITE).is_ok());
        assert!(writable, "the new primary takes no writes");
        start.elapsed()
    }

    /// Kills the standby: from here on no commit is confirmed.
    ///
    /// # Panics
    ///
    /// If a process stays.
    pub fn lose_standby(&self) {
        self.standby.kill_server();
    }

    /// Puts a new standby in the dead primary's place, on its port, and waits until commits are synchronous again, so
    /// that the next [`fail_over`](Self::fail_over) can come.
    ///
    /// Until this returns, commits on the primary are not synchronous: a fail-over could not keep them if it came then.
    /// Those that were confirmed before the return are all in the new standby.
    ///
    /// # Panics
    ///
    /// If there was no fail-over, or the new standby does not come up in time.
    pub fn rebuild(&mut self) {
        assert!(!self.standby.is_running(), "the pair has its standby: fail over first");
        self.standby = Self::attach_standby(&self.primary, self.standby.port());
    }

    /// Makes a standby and then has the primary wait for it at each commit. In this order the standby's copy of the
    /// settings does not ask for that, so that it can go on alone when it becomes the primary.
    fn attach_standby(primary: &Cluster, port: u16) -> Cluster {
        let standby = Cluster::standby_of(primary, port);
        primary.psql("alter system set synchronous_standby_names = '*'");
        primary.psql("select pg_reload_conf()");
        let standbys = "select string_agg(sync_state, ',') from pg_stat_replication where state = 'streaming'";
        let in_step = wait_until(|| primary.psql(standbys) == "sync");
        assert!(in_step, "the standby is not in step with its primary");
        // Commits begin to wait once the checkpointer has seen the new setting, which it has when it obeys. The write
        // then waits until the standby has all that was committed before.
        primary.psql("checkpoint");
        primary.psql(WRITE);
        standby
    }
}
