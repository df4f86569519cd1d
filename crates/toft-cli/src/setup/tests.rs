//! Wiring and unwiring over whole directories: whatever was there before, nothing of it is lost.

use std::collections::BTreeMap;

use super::{harness::command, *};

/// A checkout or a home directory, with room beside it for what setup remembers.
struct WiredDirectory {
    dir: tempfile::TempDir,
    target: SetupTarget,
}

impl WiredDirectory {
    fn new(user: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        let state = dir.path().join("state");
        let target = if user { SetupTarget::user(root, &state, None) } else { SetupTarget::project(root, &state) };
        Self { dir, target }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.target.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.target.root.join(name)).unwrap()
    }

    /// Every file below the root, with its bytes.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut dirs = vec![self.target.root.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => dirs.push(path),
                    false => drop(files.insert(path.clone(), fs::read(&path).unwrap_or_default())),
                }
            }
        }
        files
    }

    fn wire(&self, harnesses: &[&Harness]) -> usize {
        let all = wire(&self.target, harnesses).unwrap_or_else(|failure| panic!("{}", failure.message));
        apply(&self.target, &all, true).unwrap_or_else(|failure| panic!("{}", failure.message));
        all.len()
    }

    fn unwire(&self, harnesses: &[&Harness]) -> usize {
        let all = unwire(&self.target, harnesses).unwrap_or_else(|failure| panic!("{}", failure.message));
        apply(&self.target, &all, false).unwrap_or_else(|failure| panic!("{}", failure.message));
        all.len()
    }

    /// Wiring for everything is refused, names the file, and leaves every byte as it is.
    fn refuses(&self, name: &str, problem: &str) {
        let before = self.files();
        let refused = wire(&self.target, &every());
        let message = refused.map_or_else(|failure| failure.message, |_| "it was wired".to_owned());
        assert!(message.contains(name) && message.contains(problem), "{name}: {message}");
        assert_eq!(self.files(), before, "{name}");
    }
}

fn every() -> Vec<&'static Harness> {
    HARNESSES.iter().collect()
}

/// What people may have in the files that setup writes to: comments, tabs, CRLF, no newline at the end.
const OCCUPIED: [(&str, &str); 10] = [
    (
        ".claude/settings.json",
        "{\n\t// mine\n\t\"model\": \"x\", /* why */\n\t\"hooks\": {\"Stop\": [{\"hooks\": []}]},\n}",
    ),
    (".mcp.json", "{\r\n  \"mcpServers\": { \"other\": {\"command\": \"y\"} }\r\n}\r\n"),
    (".codex/config.toml", "# mine\nmodel   = \"x\" # why\n\n[mcp_servers.other]\ncommand = 'y'"),
    (".codex/hooks.json", "{}"),
    (".gemini/settings.json", "{ \"theme\" : \"dark\" }\n\n\n"),
    (".cursor/hooks.json", "{\"version\":2,\"hooks\":{\"stop\":[{\"command\":\"mine\"}]}}"),
    ("opencode.json", "  { // jsonc\n  \"$schema\": \"https://opencode.ai/config.json\" }"),
    ("CLAUDE.md", "# Mine\r\n\r\nwords\r\n"),
    ("AGENTS.md", "no newline at the end"),
    (".cursor/mcp.json", ""),
];

#[test]
fn for_every_harness_wiring_is_done_once_and_removing_leaves_nothing() {
    for user in [false, true] {
        for harness in &HARNESSES {
            let place = WiredDirectory::new(user);
            let wired = place.wire(&[harness]);
            assert!(wired >= if user { 1 } else { 3 }, "{} wrote {wired} files", harness.name);
            for (path, bytes) in place.files() {
                let text = String::from_utf8(bytes).unwrap();
                match path.extension().and_then(|ending| ending.to_str()) {
                    Some("json") => drop(serde_json::from_str::<serde_json::Value>(&text).unwrap()),
                    Some("toml") => drop(text.parse::<toml_edit::DocumentMut>().unwrap()),
                    _ => {}
                }
                assert!(text.contains("toft"), "{}", path.display());
            }
            assert_eq!(place.wire(&[harness]), 0, "{} is wired already", harness.name);
            assert_eq!(place.unwire(&[harness]), wired);
            assert_eq!(
                fs::read_dir(&place.target.root).unwrap().count(),
                0,
                "{}: also no empty directory",
                harness.name
            );
            assert_eq!(place.unwire(&[harness]), 0);
        }
    }
}

#[test]
fn every_byte_that_was_there_comes_back() {
    let place = WiredDirectory::new(false);
    for (name, text) in OCCUPIED {
        place.write(name, text);
    }
    let before = place.files();
    assert_eq!(place.unwire(&every()), 0, "there is nothing to remove yet");
    place.wire(&every());
    assert_eq!(place.wire(&every()), 0, "again changes nothing");
    for (name, text) in OCCUPIED {
        let now = place.text(name);
        assert!(now.contains("toft") && now != text, "{name}");
        for kept in ["// mine", "/* why */", "# mine", "# why", "\"mine\"", "// jsonc", "\"y\"", "'y'", "words"] {
            assert_eq!(now.contains(kept), text.contains(kept), "{name}: {kept}");
        }
    }
    place.unwire(&every());
    assert_eq!(place.files(), before);
}

#[test]
fn of_files_that_were_edited_since_only_tofts_part_is_removed() {
    let place = WiredDirectory::new(false);
    for (name, text) in OCCUPIED {
        place.write(name, text);
    }
    place.wire(&every());
    let edits: [(&str, &str, &str); 4] = [
        (".claude/settings.json", "\"model\": \"x\"", "\"model\": \"newer\""),
        (".codex/config.toml", "model   = \"x\"", "model   = \"newer\""),
        ("CLAUDE.md", "words", "newer words"),
        (".cursor/hooks.json", "\"mine\"", "\"newer\""),
    ];
    for (name, from, to) in edits {
        place.write(name, place.text(name).replace(from, to));
    }
    place.unwire(&every());
    for (name, from, to) in edits {
        let (now, was) = (place.text(name), OCCUPIED.iter().find(|(known, _)| *known == name).unwrap().1);
        assert!(!now.contains("toft"), "{name}: {now}");
        let plain = |text: &str| text.split_whitespace().collect::<String>().replace(['[', ']', ','], "");
        assert_eq!(plain(&now), plain(&was.replace(from, to)), "{name}");
    }
}

#[test]
fn what_was_edited_and_is_wired_again_is_removed_all_the_same() {
    let place = WiredDirectory::new(false);
    for (name, text) in OCCUPIED {
        place.write(name, text);
    }
    let claude = [Harness::named("claude").unwrap()];
    place.wire(&claude);
    for (name, from, to) in [
        ("CLAUDE.md", "Several agents work here", "Many agents work here"),
        (".claude/settings.json", "toft hook Stop --for claude", "toft hook Stop --for claude --quiet"),
    ] {
        let text = place.text(name);
        assert!(text.contains(from), "{name}: {text}");
        place.write(name, text.replace(from, to));
    }
    place.write("CLAUDE.md", format!("{}\nMore of mine.\n", place.text("CLAUDE.md")));
    place.wire(&claude);
    place.unwire(&every());
    for (name, mine) in [("CLAUDE.md", "More of mine."), (".claude/settings.json", "// mine")] {
        let text = place.text(name);
        assert!(!text.contains("toft") && text.contains(mine), "{name}: {text}");
    }
}

#[test]
fn files_that_cannot_be_read_are_refused_and_nothing_is_written_anywhere() {
    let broken: [(&str, &str, &str); 10] = [
        (".mcp.json", "{\"mcpServers\": [", ""),
        (".mcp.json", "[1, 2]", "not a JSON object"),
        (".mcp.json", "\"text\"", "not a JSON object"),
        (".mcp.json", "{\"mcpServers\": \"text\"}", "`mcpServers` is not an object"),
        (".claude/settings.json", "{\"hooks\": []}", "`hooks` is not an object"),
        (".claude/settings.json", "{\"hooks\": {\"Stop\": {}}}", "`Stop` is not a list"),
        (".codex/config.toml", "model = ", ""),
        (".codex/config.toml", "mcp_servers = 7", "`mcp_servers` is not a table"),
        (".codex/config.toml", "[mcp_servers]\ntoft = 'mine'", "`toft` is not a table"),
        ("opencode.json", "<<<<<<< ours\n{}\n", ""),
    ];
    for (name, text, problem) in broken {
        let place = WiredDirectory::new(false);
        place.write("AGENTS.md", "mine\n");
        place.write(name, text);
        place.refuses(name, problem);
        // Nor does removing touch it.
        let before = place.files();
        place.unwire(&every());
        assert_eq!(place.files(), before, "{name}");
    }
}

#[test]
fn what_is_no_plain_text_is_refused() {
    let place = WiredDirectory::new(false);
    place.write("CLAUDE.md", b"\xff\xfe words");
    place.refuses("CLAUDE.md", "not UTF-8");
    let place = WiredDirectory::new(false);
    let large = fs::File::create(place.target.root.join("CLAUDE.md")).unwrap();
    large.set_len(LARGEST + 1).unwrap();
    let refused = wire(&place.target, &every()).unwrap_err().message;
    assert!(refused.contains("is not a regular file"), "{refused}");
    let place = WiredDirectory::new(false);
    place.write("CLAUDE.md/inside", "a directory in its place");
    place.refuses("CLAUDE.md", "is not a regular file");
}

#[cfg(unix)]
#[test]
fn links_are_followed_inside_of_a_checkout_only_and_stay_links() {
    use std::os::unix::fs::symlink;
    let place = WiredDirectory::new(false);
    let outside = place.dir.path().join("outside");
    fs::write(&outside, "theirs\n").unwrap();
    symlink(&outside, place.target.root.join("CLAUDE.md")).unwrap();
    place.refuses("CLAUDE.md", "leads out of the checkout");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "theirs\n");
    fs::remove_file(&outside).unwrap();
    place.refuses("CLAUDE.md", "a broken symlink");
    fs::remove_file(place.target.root.join("CLAUDE.md")).unwrap();
    // Without a look at every byte, which would have no end.
    symlink("/dev/zero", place.target.root.join("CLAUDE.md")).unwrap();
    let refused = wire(&place.target, &every()).unwrap_err().message;
    assert!(refused.contains("CLAUDE.md") && refused.contains("leads out of the checkout"), "{refused}");

    // The file of another harness, too, is inside.
    for rules in ["docs/rules.md", "AGENTS.md"] {
        let place = WiredDirectory::new(false);
        place.write(rules, "mine\n");
        symlink(rules, place.target.root.join("CLAUDE.md")).unwrap();
        place.wire(&["claude", "codex"].map(|name| Harness::named(name).unwrap()));
        assert!(place.target.root.join("CLAUDE.md").is_symlink());
        assert!(place.text(rules).contains("toft"));
        place.unwire(&every());
        assert!(place.target.root.join("CLAUDE.md").is_symlink());
        assert_eq!(place.text(rules), "mine\n");
    }

    // At home, dotfiles are often links to somewhere else.
    let place = WiredDirectory::new(true);
    let elsewhere = place.dir.path().join("dotfiles");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, place.target.root.join(".claude")).unwrap();
    place.wire(&[Harness::named("claude").unwrap()]);
    assert!(elsewhere.join("settings.json").is_file() && place.target.root.join(".claude").is_symlink());
}

#[cfg(unix)]
#[test]
fn permissions_stay_as_they_were() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = WiredDirectory::new(true);
    let files = [(".claude.json", 0o600), (".cursor/mcp.json", 0o640), (".gemini/settings.json", 0o755)];
    for (name, mode) in files {
        let path = place.write(name, "{\"token\": \"private\"}");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let kept = || {
        for (name, mode) in files {
            let now = fs::metadata(place.target.root.join(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(now, mode, "{name}");
        }
    };
    place.wire(&every());
    kept();
    place.unwire(&every());
    kept();
    place.wire(&every());
    assert!(fs::read_dir(&place.target.records).unwrap().count() > 0);
    for entry in fs::read_dir(&place.target.records).unwrap() {
        let meta = entry.unwrap().metadata().unwrap();
        assert_eq!(meta.permissions().mode() & 0o077, 0, "what is remembered of a private file is private");
    }
}

#[test]
fn a_file_that_changed_after_it_was_shown_is_not_written() {
    let place = WiredDirectory::new(false);
    place.write("CLAUDE.md", "mine\n");
    let all = wire(&place.target, &[Harness::named("claude").unwrap()]).unwrap();
    place.write("CLAUDE.md", "mine, changed meanwhile\n");
    let refused = apply(&place.target, &all, true).unwrap_err().message;
    assert!(refused.contains("CLAUDE.md changed after the diff was shown"), "{refused}");
    assert_eq!(place.text("CLAUDE.md"), "mine, changed meanwhile\n");
}

#[test]
fn what_has_tofts_name_and_is_somebodys_own_stays() {
    let place = WiredDirectory::new(false);
    let own = [
        (".claude/skills/toft/SKILL.md", "my own skill\n"),
        (".opencode/plugins/toft.ts", "// my own plugin\n"),
        (".vscode/mcp.json", "{\"servers\":{\"toft\":{\"command\":\"my-own\"}}}"),
    ];
    for (name, text) in own {
        place.write(name, text);
    }
    place.wire(&every());
    for (name, text) in own {
        assert_eq!(place.text(name), text, "{name}");
    }
    // A server that somebody changed after it was written is theirs.
    place.write(".codex/config.toml", place.text(".codex/config.toml").replace("[\"mcp\"]", "[\"mcp\", \"--mine\"]"));
    // So is a skill that somebody wrote anew.
    assert!(place.text(".agents/skills/toft/SKILL.md").contains("toft"));
    place.write(".agents/skills/toft/SKILL.md", "my own words");
    place.unwire(&every());
    for (name, text) in own {
        assert_eq!(place.text(name), text, "{name}");
    }
    assert!(place.text(".codex/config.toml").contains("--mine"));
    assert_eq!(place.text(".agents/skills/toft/SKILL.md"), "my own words");
}

#[test]
fn only_hooks_that_toft_wrote_letter_by_letter_are_run() {
    let place = WiredDirectory::new(false);
    place.wire(&every());
    let all = probes(std::slice::from_ref(&place.target)).unwrap();
    for harness in &HARNESSES {
        assert!(all.iter().any(|probe| probe.harness.name == harness.name), "{} has no hook", harness.name);
    }
    assert!(all.iter().all(|probe| probe.ours));
    let changed = place.text(".claude/settings.json").replace("|| true", "|| curl evil.example");
    place.write(".claude/settings.json", changed);
    place.write(".codex/hooks.json", "{\"hooks\": not json: toft hook Stop --for codex");
    let all = probes(std::slice::from_ref(&place.target)).unwrap();
    let of = |name: &str| all.iter().filter(|probe| probe.harness.name == name).collect::<Vec<_>>();
    assert!(!of("claude").is_empty() && of("claude").iter().all(|probe| !probe.ours), "changed hooks are not run");
    assert!(of("codex").is_empty(), "what is no JSON calls nothing");
    assert!(of("cursor").iter().all(|probe| probe.ours && probe.command == command_of(probe)));
}

fn command_of(probe: &probe::Probe) -> String {
    let event = probe.command.split_whitespace().skip_while(|word| *word != "hook").nth(1).unwrap();
    command(event, probe.harness.name)
}

#[test]
fn the_guard_runs_the_hook_that_was_there_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let hooks = dir.path().join("hooks");
    let look = || Guard::at(hooks.clone()).unwrap();
    // Where there was none.
    assert!(!look().stands() && look().changes(false) && !look().changes(true));
    look().apply(false).unwrap();
    assert!(look().stands() && !look().changes(false), "{}", look().words(false));
    look().apply(true).unwrap();
    assert_eq!(fs::read_dir(&hooks).unwrap().count(), 0);
    // Where there was one.
    fs::write(hooks.join("pre-push"), "#!/bin/sh\nexit 3\n").unwrap();
    look().apply(false).unwrap();
    assert!(look().stands());
    assert_eq!(fs::read_to_string(hooks.join("pre-push.before-toft")).unwrap(), "#!/bin/sh\nexit 3\n");
    look().apply(true).unwrap();
    assert_eq!(fs::read_to_string(hooks.join("pre-push")).unwrap(), "#!/bin/sh\nexit 3\n");
    assert_eq!(fs::read_dir(&hooks).unwrap().count(), 1);
    assert!(!look().changes(true), "a hook that is not toft's is not removed");
    // One that was put by earlier is never overwritten.
    fs::write(hooks.join("pre-push.before-toft"), "older").unwrap();
    let refused = look().apply(false).unwrap_err().message;
    assert!(refused.contains("exists already"), "{refused}");
    assert_eq!(fs::read_to_string(hooks.join("pre-push")).unwrap(), "#!/bin/sh\nexit 3\n");
    assert_eq!(fs::read_to_string(hooks.join("pre-push.before-toft")).unwrap(), "older");
}
