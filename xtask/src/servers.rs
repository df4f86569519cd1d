//! The servers tests run against: started here, ended with the chore.

use anyhow::{Result, bail};
use toft_cluster::{Bouncer, Cluster};

/// A private PostgreSQL and a PgBouncer before it, where they are installed.
pub(crate) struct Servers {
    urls: Vec<(&'static str, String)>,
    /// Ended in this order.
    _running: Option<(Option<Bouncer>, Cluster)>,
}

impl Servers {
    /// Starts what is installed. In CI (`TOFT_TEST_ALL`) everything must be.
    pub(crate) fn start() -> Result<Self> {
        let (server, pooler) = (toft_cluster::available(), toft_cluster::bouncer_available());
        if std::env::var_os("TOFT_TEST_ALL").is_some() && !(server && pooler) {
            bail!("PostgreSQL and PgBouncer must be installed: TOFT_TEST_ALL is set");
        }
        if !server {
            eprintln!("== no PostgreSQL is installed: tests on a server are skipped");
            return Ok(Self { urls: Vec::new(), _running: None });
        }
        let cluster = Cluster::start();
        let mut urls = vec![("TOFT_TEST_POSTGRES", cluster.url())];
        let bouncer = pooler.then(|| Bouncer::start(&cluster));
        match &bouncer {
            Some(bouncer) => urls.push(("TOFT_TEST_PGBOUNCER", bouncer.url())),
            None => eprintln!("== no PgBouncer is installed: tests behind a pooler are skipped"),
        }
        Ok(Self { urls, _running: Some((bouncer, cluster)) })
    }

    /// What tests are told.
    pub(crate) fn env(&self) -> Vec<(&'static str, &str)> {
        self.urls.iter().map(|(name, url)| (*name, url.as_str())).collect()
    }
}
