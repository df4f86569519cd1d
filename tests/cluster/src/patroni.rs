//! Servers that Patroni manages, and the proxy that leads to their leader.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::process::{self, Daemon, wait_within};

const ETCD: &str = "/usr/bin/etcd";
const PATRONI: &str = "/usr/bin/patroni";
const HAPROXY: &str = "/usr/sbin/haproxy";

/// A member whose etcd lease was not renewed for this many seconds is no leader any more. Patroni's default is 30; from
/// 3.2 on it takes 20 for anything less, and so long lasts a failover then.
const TTL: u32 = 5;
/// Seconds between two looks of a member at etcd. Patroni's default is 10.
const LOOP_WAIT: u32 = 1;
/// Seconds for which a member retries etcd before it gives its leadership up. Patroni's default is 10.
const RETRY_TIMEOUT: u32 = 2;
/// Milliseconds between two questions of the proxy whether a member is the leader; two times "no" end its sessions.
const CHECK_EVERY: u32 = 300;

/// How long a failover may take, and how long until all members are in step again.
const PATIENCE: Duration = Duration::from_secs(90);
/// A look at the members costs them a query each.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether etcd, Patroni and HAProxy are installed, and a PostgreSQL server.
#[must_use]
pub fn patroni_available() -> bool {
    crate::available() && [ETCD, PATRONI, HAPROXY].into_iter().all(|program| Path::new(program).is_file())
}

/// What happens to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is asked to hand its leadership over: PostgreSQL ends in order, and the standby has everything.
    Switchover,
    /// Its machine crashes: Patroni and PostgreSQL are killed at the same time.
    Machine,
    /// PostgreSQL is killed. Patroni sees that at its next look and gives the leadership away.
    Server,
    /// Patroni is killed. PostgreSQL goes on and believes that it is the leader.
    Supervisor,
}

/// Three PostgreSQL servers that Patroni manages: one leader and two standbys, one of them synchronous. A proxy leads
/// to the leader. Dropping it ends all of them.
///
/// A crashed leader is replaced once its lease has ended, which takes between `TTL - LOOP_WAIT` and `TTL` seconds, here 4
/// to 5 and with Patroni's defaults 20 to 30, and once the others have seen that, at most `LOOP_WAIT` later.
pub struct Patroni {
    // Dropped in this order, the folders last.
    proxy: Daemon,
    members: Vec<Member>,
    _etcd: Daemon,
    folder: TempDir,
    port: u16,
}

struct Member {
    name: String,
    supervisor: Daemon,
    folder: TempDir,
    server_port: u16,
    api_port: u16,
}

impl Patroni {
    /// Makes and starts everything, and waits until commits are synchronous.
    ///
    /// # Panics
    ///
    /// If that takes too long, with the end of the logs.
    #[must_use]
    pub fn start() -> Self {
        let folder = process::fresh_folder();
        let (etcd, etcd_port) = start_etcd(&folder);
        let members: Vec<_> = (1..=3).map(|number| Member::start(number, etcd_port)).collect();
        let (proxy, port) = start_proxy(&folder, &members);
        let patroni = Self { proxy, members, _etcd: etcd, folder, port };
        patroni.require(|| patroni.leader().is_some(), "there is no leader");
        patroni.require(|| patroni.query("postgres", "create database toft").is_ok(), "the leader takes no writes");
        patroni.require(|| patroni.is_whole(), "the members are not in step");
        patroni
    }

    /// The address of the proxy, for toft to connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/toft", self.port)
    }

    /// Lets `fault` happen to the leader, and waits until another member takes writes. Returns the time that passed.
    ///
    /// # Panics
    ///
    /// If no other member becomes the leader in time: the members must be in step.
    pub fn fail_over(&self, fault: Fault) -> Duration {
        let mut leader = None;
        let is_led = || {
            leader = self.leader();
            leader.is_some()
        };
        self.require(is_led, "there is no leader");
        let old = leader.expect("it was there a moment ago");
        let start = Instant::now();
        match fault {
            // A member that is slow just now is asked again.
            Fault::Switchover => self.require(|| self.switches_over(old), "no member takes over"),
            Fault::Machine => old.kill_both(),
            Fault::Server => assert!(old.kill_server(), "PostgreSQL's processes would not end"),
            Fault::Supervisor => {
                assert!(old.supervisor.kill(), "Patroni would not end");
                assert!(old.server().is_some(), "PostgreSQL ended with Patroni");
            }
        }
        let is_replaced = || {
            let leader = self.leader().filter(|new| new.name != old.name);
            leader.is_some_and(|new| self.writes_on() == Some(new.server_port))
        };
        self.require(is_replaced, "no other member takes writes");
        start.elapsed()
    }

    /// Starts members that were killed, and waits until all are in step, so that the next
    /// [`fail_over`](Self::fail_over) can come.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn repair(&mut self) {
        for member in &mut self.members {
            member.restart_supervisor();
        }
        self.require(|| self.is_whole(), "the members are not in step");
    }

    /// Runs SQL on the leader, by way of the proxy.
    ///
    /// # Errors
    ///
    /// What `psql` complained of.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        self.query("toft", sql)
    }

    fn query(&self, database: &str, sql: &str) -> Result<String, String> {
        let server = format!("host=127.0.0.1 port={} user=postgres connect_timeout=2 dbname={database}", self.port);
        process::try_run(&self.folder, &["psql", "-XAtq", "-d", &server, "-c", sql])
    }

    /// The port of the server that confirmed a commit just now.
    fn writes_on(&self) -> Option<u16> {
        let write = "select inet_server_port() from pg_logical_emit_message(true, 'toft-cluster', '')";
        self.query("postgres", write).ok()?.parse().ok()
    }

    fn leader(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.is("primary"))
    }

    /// Whether there is a leader that waits for a synchronous standby, and both standbys follow it.
    fn is_whole(&self) -> bool {
        let count = |role: &str| self.members.iter().filter(|member| member.is(role)).count();
        let streaming = "select count(*) from pg_stat_replication where state = 'streaming'";
        count("primary") == 1
            && count("replica") == self.members.len() - 1
            && count("sync") == 1
            && self.query("postgres", streaming).is_ok_and(|standbys| standbys == (self.members.len() - 1).to_string())
    }

    /// Whether another member is the leader, after this one was asked to give its leadership away.
    fn switches_over(&self, old: &Member) -> bool {
        let body = format!(r#"{{"leader": "{}"}}"#, old.name);
        let answer = old.ask("POST", "/switchover", &body);
        answer.is_some_and(|(status, _)| status == 200) || self.leader().is_some_and(|leader| leader.name != old.name)
    }

    fn require(&self, done: impl FnMut() -> bool, complaint: &str) {
        if wait_within(PATIENCE, PAUSE, done) {
            return;
        }
        let proxy = if self.proxy.is_running() { "runs" } else { "has ended" };
        let mut logs = format!("the proxy {proxy}");
        for Member { name, folder, .. } in &self.members {
            let log = fs::read(folder.path().join("patroni.log")).unwrap_or_default();
            let end = String::from_utf8_lossy(&log[log.len().saturating_sub(3000)..]);
            logs.push_str(&format!("\n{name}'s log ends:\n{end}"));
        }
        panic!("{complaint}; {logs}");
    }
}

impl Member {
    fn start(number: usize, etcd_port: u16) -> Self {
        let (folder, name) = (process::fresh_folder(), format!("m{number}"));
        let (server_port, api_port) = (process::free_port(), process::free_port());
        let settings = settings(&name, folder.path(), etcd_port, server_port, api_port);
        write(&folder, "patroni.yml", &settings);
        let supervisor = Self::spawn(&folder);
        Self { name, supervisor, folder, server_port, api_port }
    }

    /// Patroni would end PostgreSQL in order and in its own time, so it is not asked to end but killed.
    fn spawn(folder: &TempDir) -> Daemon {
        let mut patroni = process::command(folder, Path::new(PATRONI));
        patroni.arg("patroni.yml");
        Daemon::spawn(&mut patroni, Signal::SIGKILL, folder.path().join("patroni.log"))
    }

    fn restart_supervisor(&mut self) {
        if !self.supervisor.is_running() {
            self.supervisor = Self::spawn(&self.folder);
        }
    }

    /// Whether Patroni says that it is a `primary`, a `replica`, or a `sync` replica.
    fn is(&self, role: &str) -> bool {
        self.ask("GET", &format!("/{role}"), "").is_some_and(|(status, _)| status == 200)
    }

    /// Patroni's answer to a request.
    fn ask(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.api_port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(if method == "GET" { Duration::from_secs(3) } else { PATIENCE })).ok()?;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {length}");
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer))
    }

    /// PostgreSQL's main process. Patroni starts it as nobody's child, and it works in its data folder.
    fn server(&self) -> Option<Pid> {
        let data = self.folder.path().join("data");
        let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let pid = file.lines().next()?.parse().ok().map(Pid::from_raw)?;
        let works_in = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        (works_in == data.canonicalize().ok()?).then_some(pid)
    }

    fn kill_server(&self) -> bool {
        self.server().is_none_or(process::kill_family)
    }

    /// Patroni first, so that it does nothing about PostgreSQL's end.
    fn kill_both(&self) {
        assert!(self.supervisor.kill(), "Patroni would not end");
        assert!(self.kill_server(), "PostgreSQL's processes would not end");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.supervisor.kill();
        self.kill_server();
    }
}

fn start_etcd(folder: &TempDir) -> (Daemon, u16) {
    let (clients, peers) = (process::free_port(), process::free_port());
    let (for_clients, for_peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
    let mut etcd = process::command(folder, Path::new(ETCD));
    etcd.args(["--data-dir", "etcd", "--name", "e1", "--initial-cluster", &format!("e1={for_peers}")]);
    etcd.args(["--listen-client-urls", &for_clients, "--advertise-client-urls", &for_clients]);
    etcd.args(["--listen-peer-urls", &for_peers, "--initial-advertise-peer-urls", &for_peers]);
    let daemon = Daemon::spawn(&mut etcd, Signal::SIGKILL, folder.path().join("etcd.log"));
    daemon.wait_until(|| TcpStream::connect(("127.0.0.1", clients)).is_ok());
    (daemon, clients)
}

/// A proxy that asks Patroni's REST API which member is the leader. When a member no longer is, the proxy ends its
/// sessions: a client must not go on with a server that was replaced.
fn start_proxy(folder: &TempDir, members: &[Member]) -> (Daemon, u16) {
    let port = process::free_port();
    let mut settings = format!(
        "defaults
    mode tcp
    timeout connect 1s
    timeout client 30m
    timeout server 30m
    timeout check 1s
listen leader
    bind 127.0.0.1:{port}
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter {CHECK_EVERY}ms fall 2 rise 1 on-marked-down shutdown-sessions\n"
    );
    for Member { name, server_port, api_port, .. } in members {
        settings.push_str(&format!("    server {name} 127.0.0.1:{server_port} check port {api_port}\n"));
    }
    write(folder, "haproxy.cfg", &settings);
    let mut haproxy = process::command(folder, Path::new(HAPROXY));
    haproxy.args(["-db", "-f", "haproxy.cfg"]);
    (Daemon::spawn(&mut haproxy, Signal::SIGKILL, folder.path().join("haproxy.log")), port)
}

/// A member's settings, in the order of Patroni's documentation. If PostgreSQL dies, the member does not try to start it
/// again as the leader (`primary_start_timeout: 0`): its synchronous standby takes over.
fn settings(name: &str, folder: &Path, etcd_port: u16, server_port: u16, api_port: u16) -> String {
    let (home, programs) = (folder.display(), process::programs().expect("no PostgreSQL server is installed"));
    let programs = programs.display();
    format!(
        "scope: toft
name: {name}
restapi:
  listen: 127.0.0.1:{api_port}
  connect_address: 127.0.0.1:{api_port}
etcd3:
  hosts: ['127.0.0.1:{etcd_port}']
bootstrap:
  dcs:
    ttl: {TTL}
    loop_wait: {LOOP_WAIT}
    retry_timeout: {RETRY_TIMEOUT}
    primary_start_timeout: 0
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 100
        wal_keep_size: 1GB
        wal_retrieve_retry_interval: 100ms
        autovacuum_naptime: 5s
  initdb:
  - encoding: UTF8
  - locale: C
  - data-checksums
postgresql:
  listen: 127.0.0.1:{server_port}
  connect_address: 127.0.0.1:{server_port}
  data_dir: {home}/data
  bin_dir: {programs}
  pgpass: {home}/pgpass
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: postgres}}
    rewind: {{username: postgres}}
  parameters:
    unix_socket_directories: {home}
  pg_hba:
  - local all all trust
  - host all all 127.0.0.1/32 trust
  - host replication all 127.0.0.1/32 trust
  basebackup:
  - checkpoint: fast
  - no-sync
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
"
    )
}

/// Writes a file that the servers' user can read.
fn write(folder: &TempDir, name: &str, text: &str) {
    let file = folder.path().join(name);
    fs::write(&file, text).expect("no room for the settings");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("the file is ours");
}
