//! What the documents show runs, and says what it says.

#[cfg(unix)]
use toft_stories::agents::script;
use toft_stories::older;
use toft_stories::prelude::*;

/// A command of a transcript, the exit code it gives, and the lines it prints.
struct Step {
    command: String,
    code: i32,
    lines: Vec<String>,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(kind) => inside = kind == "console",
            None if !inside => {}
            None => {
                if let Some(command) = line.strip_prefix("$ ") {
                    steps.push(Step { command: command.into(), code: 0, lines: vec![] });
                } else if let (Some(more), Some(step)) = (line.strip_prefix("> "), steps.last_mut()) {
                    step.command.push_str(&format!("\n{more}"));
                } else if let (Some(code), Some(step)) = (line.strip_prefix("? "), steps.last_mut()) {
                    step.code = code.parse().unwrap();
                } else if let Some(step) = steps.last_mut() {
                    step.lines.push(line.into());
                }
            }
        }
    }
    steps
}

/// `[..]` stands for anything within a line.
fn matches(pattern: &str, line: &str) -> bool {
    let mut rest = line;
    let mut parts = pattern.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    let parts: Vec<_> = parts.collect();
    for (n, part) in parts.iter().enumerate() {
        if n + 1 == parts.len() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// A home whose commands print ids as users see them.
fn typing() -> Home {
    let mut home = Home::new();
    home.show_short_ids();
    home.until_landed();
    home
}

/// Runs a document's transcripts, one after the other, in a new repository.
fn runs(document: &str, at_least: usize) {
    let text = std::fs::read_to_string(toft_stories::stories_dir().join("..").join(document)).unwrap();
    let home = typing();
    let repo = home.git("work");
    let bin = toft_bin();
    let path = format!("{}:{}", bin.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let steps = steps(&text);
    assert!(steps.len() >= at_least, "{document} has a transcript");
    for Step { command, code, lines } in steps {
        let output =
            home.command(&repo, "sh", &["-c", &format!("{command} 2>&1")]).env("PATH", &path).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {out}");
        let printed: Vec<_> = out.lines().collect();
        let cwd = repo.canonicalize().unwrap().display().to_string();
        let expected: Vec<_> = lines.iter().map(|line| line.replace("[CWD]", &cwd)).collect();
        let same = printed.len() == expected.len()
            && expected.iter().zip(&printed).all(|(pattern, line)| matches(pattern, line));
        assert!(same, "{command}\n--- {document}\n{}\n--- printed\n{out}", expected.join("\n"));
    }
}

/// Runs a document's transcripts in one shell, from an empty home, as somebody would type them.
fn is_typed(document: &str, home: &Home) {
    is_typed_with(document, home, |text| text);
}

/// The same, with something else in place of what the text names.
fn is_typed_with(document: &str, home: &Home, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(toft_stories::stories_dir().join("..").join(document)).unwrap();
    let text = change(text);
    let place = home.path().join("home");
    let path = format!("{}:{}", toft_bin().parent().unwrap().display(), home.variable("PATH"));
    let mut shell = home
        .command(&place, "sh", &[])
        .env("PATH", &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (mut says, hears) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let mut lines = BufReader::new(hears).lines();
    let steps = steps(&text);
    assert!(steps.len() > 5, "{document} has a transcript");
    for Step { command, code, lines: expected } in steps {
        // In a group, not a shell of its own: what it sets and where it goes stays.
        writeln!(says, "{{ {command}\n}} 2>&1 </dev/null\nprintf '@@%s\\n' $?").unwrap();
        let mut printed = Vec::new();
        let ended = loop {
            let line = lines.next().unwrap_or_else(|| panic!("{command}: the shell is gone")).unwrap();
            match line.split_once("@@") {
                Some((rest, ended)) => {
                    printed.extend(Some(rest.to_owned()).filter(|rest| !rest.is_empty()));
                    break ended.to_owned();
                }
                None => printed.push(line),
            }
        };
        let said = printed.join("\n");
        assert_eq!(ended, code.to_string(), "{document}: {command}\n{said}");
        let same = printed.len() == expected.len()
            && expected.iter().zip(&printed).all(|(pattern, line)| matches(pattern, line));
        assert!(same, "{command}\n--- {document}\n{}\n--- printed\n{said}", expected.join("\n"));
    }
    drop(says);
    shell.wait().unwrap();
}

#[test]
fn the_tutorial_really_runs() {
    is_typed("docs/tutorial.md", &typing());
}

#[test]
fn the_guide_to_sharing_really_runs() {
    is_typed("docs/guides/share.md", &Home::new());
}

#[test]
fn the_guide_to_contributing_really_runs() {
    is_typed("docs/guides/contribute.md", &Home::new());
}

#[test]
fn the_guide_to_a_fleet_really_runs() {
    let free = toft_stories::fleet::free_port().to_string();
    is_typed_with("docs/operate/server.md", &typing(), |text| text.replace("7878", &free));
}

#[test]
fn the_guide_to_landing_really_runs() {
    is_typed("docs/guides/land.md", &typing());
}

#[test]
fn the_guide_to_migrating_really_runs() {
    let home = typing();
    older::beads(&home.path().join("home/project/.beads"));
    let here = home.path().canonicalize().unwrap().join("home/project");
    older::caw(&home, &home.path().join("home/.caw"), &here);
    older::langgraph(&home, &home.path().join("home/.agentos"), &here);
    is_typed("docs/guides/migrate.md", &home);
}

/// Asks about money, and commits a file for anything else.
#[cfg(unix)]
const SCRIPTED_CLAUDE: &str = "\
#!/bin/sh
case \"$(head -n 1 \"$TOFT_BRIEF\")\" in
*currency*) toft finish waiting -q -m 'Which amount wins when the two differ?' ;;
*) echo \"$TOFT_ISSUE\" > \"$TOFT_ISSUE.txt\" && git add . && git commit -qm 'Work on it' ;;
esac
";

/// Where `claude` and `make` are scripts, and `shop` is a repository with a plan.
#[cfg(unix)]
#[test]
fn the_readme_really_runs() {
    let mut home = typing();
    std::fs::create_dir(home.path().join("bin")).unwrap();
    script(&home, "bin/claude", SCRIPTED_CLAUDE);
    script(&home, "bin/make", "#!/bin/sh\ntest -f plan.md\n");
    let path = format!("{}:{}", home.path().join("bin").display(), home.variable("PATH"));
    home.set("PATH", &path);
    let shop = home.path().join("home/shop");
    std::fs::create_dir(&shop).unwrap();
    let plan = "# Checkout\n\n- Round prices to 0.05\n- Add gift cards\n- Store prices in one currency\n";
    std::fs::write(shop.join("plan.md"), plan).unwrap();
    for args in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-q", "-m", "Begin"]] {
        home.run(&shop, "git", args);
    }
    is_typed("README.md", &home);
}

#[test]
fn the_guide_to_workspaces_really_runs() {
    runs("docs/guides/workspaces.md", 6);
}

#[test]
fn the_guide_to_planning_really_runs() {
    runs("docs/guides/plan.md", 6);
}

#[test]
fn the_guide_to_agents_really_runs() {
    runs("docs/guides/run.md", 3);
}
