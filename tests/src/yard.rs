//! A repository whose finished work lands.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Home, issues::add, snapshot, workspaces::commit_all};

/// A repository whose agents do what a script of the issue's name says.
pub struct Yard {
    /// The user's home.
    pub home: Home,
    /// The user's checkout, on branch main.
    pub repo: PathBuf,
}

/// What every agent runs: the script of its issue, or the one for work that was sent back.
const AGENT: &str = r#"
title=$(sed -n '1s/^# [^:]*: //p' "$TOFT_BRIEF" | sed 's/<[^>]*>//g' | tr -d '"')
if grep -q 'It was sent back' "$TOFT_BRIEF"; then
  newest=$(sed -n 's/.*`git merge \([^`]*\)`.*/\1/p' "$TOFT_BRIEF" | head -1)
  cp "$TOFT_BRIEF" "$HOME/briefs/$title"
  . "$HOME/agents/$title.again"
else
  . "$HOME/agents/$title"
fi
git add -A; test -e "$(git rev-parse --git-path MERGE_HEAD)" || ! git diff --cached --quiet || exit 0
git commit -q -m "do $title"
"#;

/// Configuration with a check, and a file in which both sides are kept.
pub const CHECKED: &str = "[land]\ncheck = [\"sh check.sh\"]\nunion = [\"CHANGELOG.md\"]\n";

impl Yard {
    /// With this configuration of the user, and a check that refuses two services on one port.
    pub fn new(config: &str) -> Self {
        let mut home = Home::new();
        home.until_landed();
        home.toft_on_path();
        home.set("TOFT_RETRY_BACKOFF", "50ms");
        let repo = home.repo("yard");
        let yard = Self { home, repo };
        yard.write("CHANGELOG.md", "# Changes\n\n- start\n");
        yard.write("shared.txt", "words:\n");
        yard.write("ports/zero", "1\n");
        yard.write(
            "check.sh",
            "twice=$(cat ports/* | sort | uniq -d)\n[ -z \"$twice\" ] || { echo \"two services use port $twice\"; exit 1; }\n",
        );
        yard.commit("start");
        let dir = yard.home.path().join("home");
        fs::create_dir_all(dir.join("agents")).unwrap();
        fs::create_dir_all(dir.join("briefs")).unwrap();
        yard.configure(config);
        yard
    }

    /// Replaces the user's configuration.
    pub fn configure(&self, config: &str) {
        self.home.configure(config);
    }

    /// Writes a file of the checkout.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.repo.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Commits everything.
    pub fn commit(&self, message: &str) {
        commit_all(&self.home, &self.repo, message);
    }

    /// Runs git in the checkout.
    pub fn git(&self, args: &[&str]) -> String {
        self.home.run(&self.repo, "git", args).trim().to_owned()
    }

    /// An issue whose agent runs this script, and the other one when it was sent back.
    pub fn issue(&self, title: &str, script: &str, again: &str) -> String {
        let dir = self.home.path().join("home/agents");
        fs::write(dir.join(title), script).unwrap();
        fs::write(dir.join(format!("{title}.again")), again).unwrap();
        add(&self.home, &self.repo, &[title])
    }

    /// An issue that an agent has finished.
    pub fn finish(&self, title: &str, script: &str, again: &str) -> String {
        let id = self.issue(title, script, again);
        self.run(&[]);
        id
    }

    /// The script that every agent runs.
    pub fn agent(&self) -> String {
        let agent = self.home.path().join("home/agent.sh");
        fs::write(&agent, AGENT).unwrap();
        agent.display().to_string()
    }

    /// Runs agents until no work is left.
    pub fn run(&self, args: &[&str]) -> String {
        let agent = self.agent();
        let mut all = vec!["run", "--until-idle"];
        all.extend(args);
        all.extend(["--", "sh", &agent]);
        self.home.toft(&self.repo, &all).ok()
    }

    /// Lands what is finished, as JSON.
    pub fn land(&self) -> Value {
        self.home.toft(&self.repo, &["land", "--json"]).data()
    }

    /// Lands what is finished, after which an issue is closed.
    pub fn land_and_close(&self, id: &str) -> Value {
        let landed = self.land();
        assert_eq!(self.status(id), "closed", "{landed}");
        landed
    }

    /// The status of an issue.
    pub fn status(&self, id: &str) -> String {
        let shown = self.home.toft(&self.repo, &["show", id, "--json"]).data();
        shown["status"].as_str().or(shown["issue"]["status"].as_str()).unwrap_or_default().to_owned()
    }

    /// The brief of work that was sent back.
    pub fn brief(&self, title: &str) -> String {
        fs::read_to_string(self.home.path().join("home/briefs").join(title)).unwrap()
    }

    /// How often each landing is in the target.
    pub fn landed(&self) -> BTreeMap<String, usize> {
        let said = self.git(&["log", "--format=%(trailers:key=Toft-Landing,valueonly)", "main"]);
        let mut count = BTreeMap::new();
        for id in said.lines().filter_map(|line| line.split_whitespace().next()) {
            *count.entry(id.to_owned()).or_default() += 1;
        }
        count
    }

    /// Runs the check on every commit that the target ever pointed at.
    pub fn every_state_of_the_target_is_green(&self) -> usize {
        let states = self.git(&["log", "-g", "--format=%H", "main"]);
        let dir = self.home.path().join("states");
        fs::create_dir_all(&dir).unwrap();
        // The first commit has no check.
        let states: Vec<&str> = states.lines().rev().skip(1).collect();
        for state in &states {
            let dir = dir.join(state);
            self.git(&["worktree", "add", "-q", "--detach", &dir.display().to_string(), state]);
            let checked = self.home.command(&dir, "sh", &["check.sh"]).output().unwrap();
            assert!(checked.status.success(), "{state}: {}", String::from_utf8_lossy(&checked.stdout));
            self.git(&["worktree", "remove", "--force", &dir.display().to_string()]);
        }
        states.len()
    }
}

/// Files of a checkout, without those of version control.
pub fn snapshot_of_checkout(repo: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = snapshot(repo);
    files.retain(|path, _| !path.starts_with(repo.join(".git")));
    let head = ["HEAD", "index", "refs/heads/main"].map(|name| repo.join(".git").join(name));
    files.extend(head.map(|path| (path.clone(), fs::read(path).unwrap_or_default())));
    files
}
