//! A project that others keep, and a contributor to it, as stories see them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Home, issues::add, share::synced};

/// An upstream with one issue, its keeper's clone, a fork of it, and a contributor's clone of the fork.
pub struct Project {
    /// Everybody's home.
    pub home: Home,
    /// The project's repository.
    pub upstream: PathBuf,
    /// The contributor's fork of it.
    pub fork: PathBuf,
    /// Its keeper's clone.
    pub keeper: PathBuf,
    /// The contributor's clone of the fork.
    pub mine: PathBuf,
    /// Its issues are in the working tree.
    pub tree: bool,
    /// Upstream's own issue.
    pub theirs: String,
}

impl Project {
    /// A project whose issues are in the tree, or beside it; the contributor's clone plans in private.
    pub fn new(tree: bool) -> Self {
        let home = Home::new();
        let bare = |name: &str| {
            home.run(home.path(), "git", &["init", "-q", "--bare", "-b", "main", name]);
            home.path().join(name)
        };
        let (upstream, fork) = (bare("upstream.git"), bare("fork.git"));
        let keeper = home.git("keeper");
        home.run(&keeper, "git", &["remote", "add", "origin", upstream.to_str().unwrap()]);
        home.toft(&keeper, if tree { &["init", "--tree"] } else { &["init"] }).ok();
        let theirs = add(&home, &keeper, &["Upstream's own"]);
        let project = Self { mine: home.path().join("mine"), home, upstream, fork, keeper, tree, theirs };
        project.keeper_shares();
        let Self { home, upstream, fork, mine, .. } = &project;
        home.run(upstream, "git", &["push", "-q", "--mirror", fork.to_str().unwrap()]);
        home.run(home.path(), "git", &["clone", "-q", fork.to_str().unwrap(), "mine"]);
        home.run(mine, "git", &["remote", "add", "upstream", upstream.to_str().unwrap()]);
        home.run(mine, "git", &["fetch", "-q", "--all"]);
        assert!(home.toft(mine, &["init"]).ok().contains("toft init --contributor"), "the remotes suggest it");
        home.toft(mine, &["init", "--contributor"]).ok();
        project.sync();
        project
    }

    /// What the project's own ledger is called.
    pub fn ledger(&self) -> &'static str {
        if self.tree { "tree" } else { "branch" }
    }

    /// What the keeper did is on upstream.
    pub fn keeper_shares(&self) {
        match self.tree {
            true => {
                self.home.toft(&self.keeper, &["sync", "--commit"]).ok();
                self.home.run(&self.keeper, "git", &["push", "-q", "origin", "main"]);
            }
            false => {
                self.home.run(&self.keeper, "git", &["push", "-q", "origin", "main"]);
                self.home.toft(&self.keeper, &["sync"]).ok();
            }
        }
    }

    /// The contributor's sync; gives what came of proposals.
    pub fn sync(&self) -> Vec<Value> {
        let row = synced(&self.home, &self.mine, &[]).remove(self.ledger()).unwrap();
        assert!(["received", "synced"].contains(&row["how"].as_str().unwrap()), "{row}");
        row["came"].as_array().unwrap().clone()
    }

    /// Proposes an issue and opens what a forge calls a pull request; gives the lines it adds.
    pub fn propose(&self, id: &str) -> String {
        let (home, mine) = (&self.home, &self.mine);
        if self.tree {
            home.toft(mine, &["propose", id]).ok();
            home.run(mine, "git", &["checkout", "-q", "-B", "feature"]);
            home.run(mine, "git", &["add", ".toft"]);
            home.run(mine, "git", &["commit", "-qm", "Propose it"]);
            home.toft(mine, &["doctor", "--outgoing"]).ok();
            home.run(mine, "git", &["push", "-qf", "origin", "feature"]);
            home.run(&self.fork, "git", &["diff", "main", "feature"])
        } else {
            home.toft(mine, &["propose", id, "--push", "origin"]).ok();
            home.run(&self.fork, "git", &["diff", "toft-ledger", &format!("toft-propose/{id}")])
        }
    }

    /// The keeper merges the pull request, and their clone has it.
    pub fn merge(&self, id: &str) {
        let branch = if self.tree { "feature".to_owned() } else { format!("toft-propose/{id}") };
        let (home, into) = (&self.home, if self.tree { "main" } else { "toft-ledger" });
        home.run(&self.upstream, "git", &["fetch", "-q", self.fork.to_str().unwrap(), &format!("+{branch}:pr")]);
        home.run(&self.upstream, "git", &["update-ref", &format!("refs/heads/{into}"), "refs/heads/pr"]);
        if self.tree {
            home.run(&self.keeper, "git", &["pull", "-q", "origin", "main"]);
        }
        home.toft(&self.keeper, &["sync"]).ok();
    }

    /// An issue as a clone shows it.
    pub fn shown(&self, repo: &Path, id: &str) -> Value {
        self.home.toft(repo, &["show", id, "--json"]).data()
    }
}

/// Where the private plans of a clone are.
pub fn planning(home: &Home, repo: &Path) -> PathBuf {
    let rows = home.toft(repo, &["ledger", "list", "--json"]).data();
    let row = rows.as_array().unwrap().iter().find(|row| row["place"] == "planning").unwrap().clone();
    PathBuf::from(row["dir"].as_str().unwrap())
}
