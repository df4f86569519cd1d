//! try: a village is built by five scripted agents, in a directory that can be thrown away.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::json;
use toft::{runner::in_shell, vcs::workspace::quoted};

use super::{App, Done};
use crate::{args::Try, exit::Failure, render::view_demo};

const PLACES: [&str; 8] = ["bakery", "smithy", "mill", "well", "barn", "market", "chapel", "bridge"];

/// An agent without a model: it reads its brief, works a moment, and does what agents do. Some fail, one crashes, one asks.
const AGENT: &str = r#"#!/bin/sh
title=$(sed -n '1s/^# [^:]*: <data>\(.*\)<\/data>$/\1/p')
moment() { sleep "0.$(( ($$ + $1) % 5 + 2 ))"; }
echo "reading the brief: $title"
moment 1
case "$TOFT_FENCE:$title" in
1.*:"Build the mill") echo "the beam broke" >&2; exit 1 ;;
1.*:"Furnish the smithy") echo "crashing"; kill -9 $$ ;;
1.*:"Open the chapel")
    echo "this needs a person"
    exec toft finish waiting -m "Ring the bell in the morning or in the evening?" ;;
esac
place=${title##* }
echo "$title" >> "village/$place.md"
toft save -m "$title: half of it stands" >/dev/null
moment 2
echo "done so far: $(wc -l < "village/$place.md") lines about the $place"
git add -A && git commit -qm "$title" && echo "$title"
"#;

/// What lands is checked, and the checkout of the village follows.
const CONFIG: &str = r#"[land]
check = ["! find village -name '*.md' -empty | grep ."]
union = ["village/*.md"]
update = "clean"
"#;

pub(super) fn demo(app: &App<'_>, args: &Try) -> Done {
    let dir = place(args)?;
    let failed = |what: &str, error: &dyn std::fmt::Display| Failure::stopped(format!("{what}: {error}"), "");
    let program = std::env::current_exe().map_err(|error| failed("toft", &error))?;
    let repo = dir.join("village");
    lay_out(&dir, &repo, &program).map_err(|error| failed("the demo could not be set up", &error))?;
    let variables = variables(&dir);
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let run = |line: &str| in_shell(line, &repo, &variables, None).map_err(|error| failed("sh", &error));
    let made = run(
        "git init -q -b main && git add -A && git commit -qm 'An empty field' && toft init -q >/dev/null && toft agent register villager --role human -q >/dev/null && toft add - -q < ../plan.jsonl >/dev/null",
    )?;
    if !made.success() {
        return Err(Failure::stopped("the demo could not be set up", "is git installed?"));
    }
    app.output.lines(&[format!("40 issues and 5 agents in {}", repo.display())]);
    let json = if app.output.machine() { " --json" } else { "" };
    run(&format!("toft run --land --slots {} --until-idle{json} -- ../agent", args.agents))?;
    if !app.output.machine() {
        run("toft status")?;
        run("git log --first-parent --format='%h %s' -8 main")?;
    }
    app.show(&view_demo(&repo, &format!(". {}", quoted(&dir.join("env")))))?;
    Ok(ExitCode::SUCCESS)
}

/// A new directory: the one that was named, or one that the system tidies up some day.
fn place(args: &Try) -> Result<PathBuf, Failure> {
    let dir = match &args.place {
        Some(dir) => std::path::absolute(dir).unwrap_or_else(|_| dir.clone()),
        None => std::env::temp_dir().join(format!("toft-try-{}", std::process::id())),
    };
    match fs::create_dir(&dir) {
        Ok(()) => Ok(dir),
        Err(error) => {
            Err(Failure::stopped(format!("{}: {error}", dir.display()), "name a directory that does not exist"))
        }
    }
}

fn lay_out(dir: &Path, repo: &Path, program: &Path) -> std::io::Result<()> {
    fs::create_dir_all(repo.join("village"))?;
    fs::create_dir(dir.join("bin"))?;
    fs::write(repo.join("README.md"), "# A village\n\nBuilt by agents that share their work through toft.\n")?;
    fs::write(repo.join("village/.keep"), "")?;
    fs::create_dir_all(dir.join("config/toft"))?;
    fs::write(dir.join("config/toft/config.toml"), CONFIG)?;
    fs::write(dir.join("plan.jsonl"), plan())?;
    fs::write(dir.join("agent"), AGENT)?;
    let exports: String = variables(dir)
        .into_iter()
        .map(|(name, value)| format!("export {name}={}\n", quoted(Path::new(&value))))
        .collect();
    fs::write(dir.join("env"), exports)?;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    fs::set_permissions(dir.join("agent"), fs::Permissions::from_mode(0o755))?;
    symlink(program, dir.join("bin/toft"))?;
    Ok(())
}

/// Everything stays inside: neither settings nor state of the user are seen or touched.
fn variables(dir: &Path) -> Vec<(String, String)> {
    let within = |name: &str| dir.join(name).display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let all = [
        ("PATH", format!("{}:{path}", within("bin"))),
        ("XDG_CONFIG_HOME", within("config")),
        ("XDG_DATA_HOME", within("data")),
        ("XDG_STATE_HOME", within("state")),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_AUTHOR_NAME", "agent".to_owned()),
        ("GIT_AUTHOR_EMAIL", "agent@example.org".to_owned()),
        ("GIT_COMMITTER_NAME", "agent".to_owned()),
        ("GIT_COMMITTER_EMAIL", "agent@example.org".to_owned()),
        ("TOFT_AGENT", "villager".to_owned()),
        ("TOFT_STORE", String::new()),
        ("TOFT_LAND_CLOSE", String::new()),
        ("TOFT_RETRY_BACKOFF", "500ms".to_owned()),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Forty issues: each place is laid out, built, furnished and painted, then opened.
fn plan() -> String {
    let mut text = String::new();
    for place in PLACES {
        let mut add = |verb: &str, needs: &[&str]| {
            let needs: Vec<String> = needs.iter().map(|need| format!("{need}-{place}")).collect();
            let name = format!("{}-{place}", verb.split(' ').next().unwrap_or_default());
            let body = format!("Write down in village/{place}.md that it is done.");
            text.push_str(
                &json!({ "title": format!("{verb} the {place}"), "name": name, "needs": needs, "body": body })
                    .to_string(),
            );
            text.push('\n');
        };
        add("Plan", &[]);
        add("Build", &["Plan"]);
        add("Furnish", &["Build"]);
        add("Paint", &["Build"]);
        add("Open", &["Furnish", "Paint"]);
    }
    text
}
