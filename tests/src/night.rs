//! A night with many agents: what people look at in the evening and in the morning.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{Home, build_dir, workspaces::commit_all};

/// What the issues of a night are about.
const AREAS: [&str; 8] = ["checkout", "search", "orders", "prices", "mail", "login", "stock", "reports"];
const WORK: [&str; 14] = [
    "Answer within 200 ms",
    "Keep the choice of the last visit",
    "Say what is wrong with a form",
    "Work without JavaScript",
    "Count what is sold each hour",
    "Move to the new table",
    "Retry what the payment provider refuses",
    "Show prices in the customer's currency",
    "Read the report as a spreadsheet",
    "Forget visitors after thirty days",
    "Send one mail for each order, not three",
    "Accept names with any letters",
    "Log what an admin changes",
    "Test with a slow network",
];
const NAMES: [&str; 16] = [
    "amber", "blue", "coral", "dusky", "fawn", "green", "hazel", "indigo", "jade", "lilac", "mossy", "olive", "plum",
    "red", "sandy", "teal",
];
const ANIMALS: [&str; 13] =
    ["badger", "crane", "dove", "elk", "finch", "fox", "heron", "ibex", "jay", "lynx", "marten", "newt", "otter"];
const STEPS: [&str; 6] = [
    "the failing test is there",
    "the query is split; the tests of the old path pass",
    "12 of 17 tests pass, the rest wait for the new fixture",
    "reads the new table; writing is next",
    "found the cause: the cache is asked before the lock is taken",
    "everything passes here; running the slow tests",
];

/// A repository in the middle of a night.
pub struct Night {
    /// Its user.
    pub home: Home,
    /// Its checkout.
    pub repo: PathBuf,
    /// Who works on what.
    pub at_work: Vec<(String, String)>,
    /// An issue whose work waits for a review.
    pub reviewed: String,
}

impl Night {
    /// With so many issues, and agents at work; besides, there are questions, reviews, landings and a failure.
    pub fn new(issues: usize, agents: usize) -> Self {
        let mut home = Home::new();
        home.until_landed();
        home.show_short_ids();
        home.set("TOFT_LEASE_TTL", "4h");
        home.set("TOFT_RETRY_BACKOFF", "50ms");
        home.configure("[land]\nreview = \"human\"\n");
        let repo = home.repo("shop");
        let file = home.path().join("plan.jsonl");
        fs::write(&file, plan(issues, agents)).unwrap();
        home.toft(&repo, &["import", "beads", file.to_str().unwrap()]).ok();
        let mut night = Self { home, repo, at_work: Vec::new(), reviewed: String::new() };
        night.finish_some();
        for n in 0..agents {
            let agent = name(n);
            let claimed = night.home.toft(&night.repo, &["--as", &agent, "claim", "--json"]).data();
            night.at_work.push((agent, claimed["issue"]["id"].as_str().unwrap().to_owned()));
        }
        for n in 0..agents {
            night.save(n, STEPS[n % STEPS.len()]);
        }
        night.ask("Round prices up, or to the nearest cent?", &["up", "to the nearest cent"]);
        night.ask("The provider has no sandbox for refunds. May I test with one real order of 1 cent?", &[]);
        night
    }

    fn toft(&self, agent: &str, args: &[&str]) -> Value {
        self.home.toft(&self.repo, &[&["--as", agent][..], args, &["--json"]].concat()).data()
    }

    /// Work that landed, waits for its turn, conflicts, or waits for a review; a failure, and a budget.
    fn finish_some(&mut self) {
        for (n, (file, said)) in [
            ("search.txt", "answers within 140 ms at 10,000 products"),
            ("choice.txt", "the choice is kept for 30 days"),
            ("form.txt", "each field says what is wrong with it"),
        ]
        .into_iter()
        .enumerate()
        {
            self.finish(n, file, "on\n", said);
            self.approve(n);
        }
        self.home.toft(&self.repo, &["land"]).ok();
        self.finish(3, "retry.txt", "attempts: 3\n", "pages without JavaScript retry three times");
        self.approve(3);
        self.finish(4, "retry.txt", "attempts: 5\nwait: 2 s\n", "counts are retried, too");
        self.approve(4);
        let prices = "[prices]\ncurrency = \"EUR\"\nround = \"cent\"\n\n[taxes]\nincluded = true\n";
        self.finish(5, "prices.toml", prices, "prices are read from the new table; the old one is no longer written");
        self.finish(
            6,
            "mail.toml",
            "[mail]\nsends = \"once\"\n",
            "a refused payment is tried again after 2, 4 and 8 s",
        );
        for _ in 0..3 {
            self.toft("mossy-jay", &["claim", "sh-7", "--wait=10s"]);
            self.toft("mossy-jay", &["finish", "sh-7", "failed", "-m", "the fixture of the provider is gone (410)"]);
        }
        let made = self.toft("ana", &["flow", "new", "Translate the shop", "--task", "Danish", "--task", "Polish"]);
        self.home
            .toft(&self.repo, &["flow", "edit", made["tasks"][0]["workflow"].as_str().unwrap(), "--budget", "12"])
            .ok();
        let task = made["tasks"][0]["id"].as_str().unwrap();
        self.toft("lilac-newt", &["claim", task]);
        self.toft("lilac-newt", &["finish", task, "--no-change", "it was there", "--cost", "4.2"]);
        self.reviewed = "sh-5".to_owned();
    }

    /// An agent works on an issue in a workspace, and finishes.
    fn finish(&self, n: usize, file: &str, text: &str, said: &str) {
        let (id, agent) = (format!("sh-{n}"), name(n + 40));
        self.toft(&agent, &["claim", &id, "--ws"]);
        let workspace = self.home.toft(&self.repo, &["--as", &agent, "ws", "path", &id]).ok();
        let workspace = Path::new(workspace.trim());
        fs::write(workspace.join(file), text).unwrap();
        commit_all(&self.home, workspace, said);
        self.home.toft(workspace, &["--as", &agent, "finish", &id, "-m", said, "--evidence", "HEAD"]).ok();
    }

    fn approve(&self, n: usize) {
        self.home.toft(&self.repo, &["review", &format!("sh-{n}"), "--approve"]).ok();
    }

    /// The last agent at work asks a question.
    fn ask(&mut self, question: &str, choices: &[&str]) {
        let (agent, id) = self.at_work.pop().unwrap();
        let mut args = vec!["finish", &id, "waiting", "-m", question];
        args.extend(choices.iter().flat_map(|choice| ["--choice", choice]));
        self.toft(&agent, &args);
    }

    fn save(&self, n: usize, message: &str) {
        let (agent, id) = &self.at_work[n % self.at_work.len()];
        self.home.toft(&self.repo, &["--as", agent, "save", id, "-m", message]).ok();
    }

    /// An agent says how far it is; returns what it said.
    pub fn change(&self, n: usize) -> String {
        let message = format!("step {n}: {}", STEPS[n % STEPS.len()]);
        self.save(n, &message);
        message
    }
}

/// The name of an agent.
fn name(n: usize) -> String {
    format!("{}-{}", NAMES[n % NAMES.len()], ANIMALS[n % ANIMALS.len()])
}

/// The issues, in the format of beads: every third one waits for one that was planned before it.
fn plan(issues: usize, agents: usize) -> String {
    let row = |n: usize| {
        let id = format!("sh-{n}");
        let (area, work) = (AREAS[n % AREAS.len()], WORK[n % WORK.len()]);
        let before = format!("sh-{}", n.saturating_sub(agents));
        let needs = json!([{ "issue_id": id, "depends_on_id": before, "type": "blocks" }]);
        let waits = n.is_multiple_of(3) && n > 2 * agents.max(8);
        json!({
            "id": id, "title": format!("{work} ({area})"), "status": "open", "priority": n % 4, "labels": [area],
            "dependencies": if waits { needs } else { json!([]) },
            "created_at": "2026-11-01T08:00:00Z", "updated_at": "2026-11-01T08:00:00Z",
        })
    };
    (0..issues).map(|n| format!("{}\n", row(n))).collect()
}

/// Where pictures go.
pub fn pictures() -> PathBuf {
    let dir = build_dir().join("screens");
    fs::create_dir_all(&dir).unwrap();
    dir
}
