//! Real clients, each in a home of its own, with models on loopback: Claude Code, Codex and Gemini CLI, as npm has them.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::{
    Home,
    models::{Model, Step},
    tool_dir,
};

/// The clients that are tried.
pub const CLIENTS: [&str; 3] = ["claude", "codex", "gemini"];

/// Where npm put the clients: below `TOFT_CLIENTS`, or where `.ci/run` puts the versions that are pinned.
pub fn installed(client: &str) -> Option<PathBuf> {
    let pinned = || tool_dir("clients");
    let bin = std::env::var_os("TOFT_CLIENTS").map_or_else(pinned, PathBuf::from).join("node_modules/.bin");
    let found = bin.join(client).exists();
    assert!(found || std::env::var_os("TOFT_TEST_ALL").is_none(), "{client} is not installed; .ci/run installs it");
    found.then_some(bin)
}

/// A client in a home of its own, and a repository with a test that fails.
pub struct Lab {
    /// The client.
    pub client: &'static str,
    /// Its home.
    pub home: Home,
    /// Its repository.
    pub repo: PathBuf,
}

impl Lab {
    /// Nothing if the client is not installed.
    pub fn new(client: &'static str) -> Option<Self> {
        let Some(bin) = installed(client) else {
            eprintln!("{client} is not installed; nothing was tried");
            return None;
        };
        // Codex puts helpers below its home, and refuses to do so in the directory for temporary files.
        let mut home = Home::outside_of_tmp();
        home.toft_on_path();
        let path = format!("{}:{}", home.variable("PATH"), bin.display());
        home.set("PATH", &path);
        let repo = home.repo("shop");
        fs::write(repo.join("check.sh"), "grep -q hello greeting.txt && echo passed-$((6 * 7))\n").unwrap();
        home.run(&repo, "git", &["add", "check.sh"]);
        home.run(&repo, "git", &["commit", "-qm", "a test"]);
        for dir in [".codex", ".gemini"] {
            fs::create_dir(home.path().join("home").join(dir)).unwrap();
        }
        Some(Self { client, home, repo })
    }

    /// From now on the client talks to this model.
    pub fn talk_to(&mut self, model: &Model) {
        let user = self.home.path().join("home");
        match self.client {
            "claude" => {
                self.home.set("ANTHROPIC_BASE_URL", &model.url());
                self.home.set("ANTHROPIC_API_KEY", "none");
                self.home.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
                self.home.set("DISABLE_AUTOUPDATER", "1");
            }
            "codex" => {
                let config = format!(
                    "model = \"scripted\"\nmodel_provider = \"loopback\"\n[model_providers.loopback]\n\
                     name = \"loopback\"\nbase_url = \"{}/v1\"\nwire_api = \"responses\"\n\
                     request_max_retries = 0\nstream_max_retries = 0\n",
                    model.url()
                );
                fs::write(user.join(".codex/config.toml"), config).unwrap();
            }
            "gemini" => {
                self.home.set("GOOGLE_GEMINI_BASE_URL", &model.url());
                self.home.set("GEMINI_API_KEY", "none");
                let settings =
                    r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"telemetry":{"enabled":false}}"#;
                fs::write(user.join(".gemini/settings.json"), settings).unwrap();
            }
            "copilot" => {
                self.home.set("COPILOT_PROVIDER_BASE_URL", &model.url());
                self.home.set("COPILOT_PROVIDER_TYPE", "anthropic");
                self.home.set("COPILOT_PROVIDER_API_KEY", "none");
                self.home.set("COPILOT_MODEL", "claude-sonnet-4");
                self.home.set("COPILOT_OFFLINE", "true");
                self.home.set("COPILOT_AUTO_UPDATE", "false");
            }
            "opencode" => {
                let config = format!(
                    r#"{{"autoupdate":false,"share":"disabled","model":"loopback/scripted","provider":{{"loopback":{{"npm":"@ai-sdk/anthropic","name":"loopback","options":{{"baseURL":"{}/v1","apiKey":"none"}},"models":{{"scripted":{{"name":"scripted"}}}}}}}}}}"#,
                    model.url()
                );
                fs::create_dir_all(user.join(".config/opencode")).unwrap();
                fs::write(user.join(".config/opencode/opencode.json"), config).unwrap();
            }
            client => unreachable!("{client}"),
        }
    }

    /// Runs the client on one task; gives what was said, and the log of an issue.
    pub fn run(&self, id: &str) -> String {
        self.run_as(self.client, id)
    }

    /// The same, with another recipe.
    pub fn run_as(&self, agent: &str, id: &str) -> String {
        let ran = self.home.toft(&self.repo, &["run", "--agent", agent, "--once"]);
        let log = self.home.toft(&self.repo, &["show", id, "--log"]).out;
        format!("{}: {}{}\n{log}", self.client, ran.out, ran.err)
    }

    /// The client's own name for the step that a person takes, taken: it may use what the repository configures.
    pub fn trust(&mut self) {
        let user = self.home.path().join("home");
        let repo = self.repo.display();
        match self.client {
            "claude" => {
                let known = format!(
                    r#"{{"projects":{{"{repo}":{{"enabledMcpjsonServers":["toft"],"hasTrustDialogAccepted":true}}}}}}"#
                );
                fs::write(user.join(".claude.json"), known).unwrap();
            }
            "codex" => {
                let file = user.join(".codex/config.toml");
                let config = fs::read_to_string(&file).unwrap_or_default();
                fs::write(file, format!("{config}[projects.\"{repo}\"]\ntrust_level = \"trusted\"\n")).unwrap();
            }
            "gemini" => self.home.set("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            client => unreachable!("{client}"),
        }
    }

    /// Starts the client in the checkout, as a person does, without a runner.
    pub fn start(&self) -> String {
        let args: &[&str] = match self.client {
            "claude" => &["-p", "go on", "--allowedTools", "Bash", "mcp__toft"],
            "codex" => &[
                "exec",
                "--dangerously-bypass-hook-trust",
                "--dangerously-bypass-approvals-and-sandbox",
                "-c",
                "allow_login_shell=false",
                "go on",
            ],
            "gemini" => &["-p", "go on", "--approval-mode", "yolo"],
            client => unreachable!("{client}"),
        };
        let out = self.home.command(&self.repo, self.client, args).stdin(std::process::Stdio::null()).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    }

    /// What doctor says of the client.
    pub fn doctor(&self, title: &str) -> Value {
        let checks = self.home.toft(&self.repo, &["doctor", "--json"]).data();
        let found = checks.as_array().into_iter().flatten().find(|check| check["what"] == title);
        found.cloned().unwrap_or_else(|| panic!("{checks}"))
    }

    /// An issue, as JSON.
    pub fn issue(&self, id: &str) -> Value {
        self.home.toft(&self.repo, &["show", id, "--json"]).data()
    }

    /// The branches of toft.
    pub fn branch(&self) -> String {
        let list = ["branch", "--list", "toft/*", "--format", "%(refname:short)"];
        self.home.run(&self.repo, "git", &list).trim().to_owned()
    }
}

/// What a model does that works: edit, test, commit, report with toft's own command.
pub fn work(message: &str) -> Vec<Step> {
    vec![
        Step::shell("echo hello > greeting.txt"),
        Step::shell("sh check.sh"),
        Step::shell("git add greeting.txt && git commit -q -m 'say hello'"),
        Step::shell(&format!("toft finish --evidence HEAD -m '{message}'")),
        Step::say("All done."),
    ]
}
