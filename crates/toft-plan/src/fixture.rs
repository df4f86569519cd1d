//! A repository for tests.

use std::{fs, path::Path};

use toft_core::issue::edit::Edit;
use toft_session::{
    config::{Config, StoreLocation},
    session::Session,
};

use crate::Plan;

/// A git directory that no git ever sees, with a store and these issues.
pub(crate) fn repository(dir: &Path, name: &str, titles: &[&str]) -> (Session, Vec<String>) {
    let repo = dir.join(name);
    for part in ["objects", "refs", "toft"] {
        fs::create_dir_all(repo.join(".git").join(part)).unwrap();
    }
    fs::write(repo.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    // The author's name would be asked of git.
    fs::write(repo.join(".git/toft/config.toml"), "sync.names = 'agent'\n").unwrap();
    let store = Some(StoreLocation::new_path(dir.join(format!("{name}.db"))));
    let session =
        Session::with(Config { store, dir: Some(repo), agent: Some("ana".into()), ..Config::default() }).unwrap();
    let plan = Plan::open(&session).unwrap().unwrap();
    let add = |title: &&str| {
        let edit = Edit { title: Some((*title).into()), labels: vec![name.to_owned()], ..Edit::default() };
        plan.add(&[edit], None, None).unwrap().remove(0).issue.id
    };
    let ids = titles.iter().map(add).collect();
    drop(plan);
    (session, ids)
}
