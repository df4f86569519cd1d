//! The table of coding agents: each client, at the version that is pinned and at the newest, by what works with it.
//!
//! Every cell is a story of `tests/tests/stories/clients.rs`, told with the real client.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// Each client: how a story calls it, its program, its package.
const CLIENTS: [(&str, &str, &str); 3] = [
    ("claude_code", "claude", "@anthropic-ai/claude-code"),
    ("codex", "codex", "@openai/codex"),
    ("gemini", "gemini", "@google/gemini-cli"),
];
/// Each capability: its heading, and the story that shows it, without the client.
const STORIES: [(&str, &str); 5] = [
    ("finishes", "CLIENT_finishes_a_task"),
    ("asks, resumes", "CLIENT_asks_and_goes_on_with_the_answer"),
    ("setup, hooks, MCP", "CLIENT_uses_what_setup_writes"),
    ("is told", "CLIENT_hears_what_it_is_told"),
    ("limits", "a_limit_of_CLIENT_is_nobodys_failure"),
];

/// Prints the table.
#[expect(clippy::print_stdout, reason = "the table is what was asked for")]
pub(crate) fn table(root: &Path, env: &[(&str, &str)]) -> Result<()> {
    let default = || crate::build_dir().join("tools");
    let tools = std::env::var_os("TOFT_TEST_TOOLS").map_or_else(default, PathBuf::from);
    let newest = tools.join("clients-newest");
    install_newest(&newest)?;
    println!("| client | version | {} |", STORIES.map(|(heading, _)| heading).join(" | "));
    println!("| --- | --- |{}", " --- |".repeat(STORIES.len()));
    for dir in [tools.join("clients"), newest] {
        let results = tell(root, &dir, env)?;
        for (name, _, package) in CLIENTS {
            let cell = |(_, story): (&str, &str)| match results.get(&story.replace("CLIENT", name)) {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "not run",
            };
            println!("| {package} | {} | {} |", version(&dir, package)?, STORIES.map(cell).join(" | "));
        }
    }
    Ok(())
}

fn install_newest(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let packages = CLIENTS.map(|(_, _, package)| format!("{package}@latest"));
    let status = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--prefix"])
        .arg(dir)
        .args(packages)
        .status()
        .context("npm")?;
    if !status.success() {
        bail!("the newest clients could not be installed");
    }
    for (_, program, _) in CLIENTS {
        if !dir.join("node_modules/.bin").join(program).exists() {
            bail!("{program} was not installed");
        }
    }
    Ok(())
}

/// Tells the stories with the clients in a directory; which passed.
fn tell(root: &Path, clients: &Path, env: &[(&str, &str)]) -> Result<BTreeMap<String, bool>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(crate::TEST)
        .args(["--run-ignored", "all", "--color=never", "-E", "binary(stories) & test(/^clients::/)"])
        .envs(env.iter().copied())
        .env("TOFT_CLIENTS", clients)
        .current_dir(root)
        .output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    let result = |line: &str| {
        let mut words = line.split_whitespace();
        let passed = match words.next()? {
            "PASS" => true,
            "FAIL" | "TIMEOUT" => false,
            _ => return None,
        };
        Some((words.last()?.rsplit("::").next()?.to_owned(), passed))
    };
    let results: BTreeMap<String, bool> = said.lines().filter_map(result).collect();
    if results.is_empty() {
        bail!("no story was told:\n{said}");
    }
    Ok(results)
}

fn version(dir: &Path, package: &str) -> Result<String> {
    let file = dir.join("node_modules").join(package).join("package.json");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let found = text.lines().find_map(|line| line.trim().strip_prefix("\"version\": \"")?.split('"').next());
    Ok(found.unwrap_or("unknown").to_owned())
}
