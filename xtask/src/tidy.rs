//! Tidy: what the compiler cannot see. Who may depend on whom, which queries exist, which promises have tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{claims, docs, links, pages, promises, stories};

/// Which of our crates each may depend on. Siblings never meet.
const LAYERS: [(&str, &[&str]); 16] = [
    ("toft-schema", &[]),
    ("toft-core", &["toft-schema"]),
    ("toft-ledger", &[]),
    ("toft-store", &["toft-core"]),
    ("toft-vcs", &["toft-core"]),
    ("toft-client", &["toft-core"]),
    ("toft-session", &["toft-core", "toft-ledger", "toft-store", "toft-vcs", "toft-client"]),
    ("toft-plan", &["toft-core", "toft-ledger", "toft-store", "toft-vcs", "toft-session"]),
    ("toft-work", &["toft-core", "toft-store", "toft-vcs", "toft-session", "toft-plan"]),
    ("toft-runner", &["toft-core", "toft-store", "toft-vcs", "toft-session", "toft-plan", "toft-work"]),
    ("toft-land", &["toft-core", "toft-store", "toft-vcs", "toft-session", "toft-plan", "toft-work", "toft-runner"]),
    (
        "toft",
        &["toft-core", "toft-store", "toft-vcs", "toft-session", "toft-plan", "toft-work", "toft-runner", "toft-land"],
    ),
    ("toft-server", &["toft-core", "toft-session"]),
    ("toft-top", &["toft"]),
    ("toft-board", &["toft"]),
    ("toft-cli", &["toft", "toft-server", "toft-top", "toft-board"]),
];

/// What the core never does: I/O, a clock of its own, SQL.
const NOT_IN_CORE: [&str; 7] =
    ["std::fs", "std::net", "std::process", "std::env", "SystemTime", "Instant::now", "rusqlite"];

/// A file longer than this tells more than one story.
const LONGEST: usize = 600;

pub(crate) fn run(root: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    let sources = sources(root)?;
    layering(root, &mut wrong)?;
    dependencies(root, &sources, &mut wrong)?;
    for (path, text) in &sources {
        prose(path, text, &mut wrong);
    }
    names(&sources, &mut wrong);
    docs::check(&sources, &mut wrong);
    programs(root, &sources, &mut wrong)?;
    queries(root, &sources, &mut wrong)?;
    promises::check(root, &sources, &mut wrong)?;
    claims::check(root, &sources, &mut wrong)?;
    links::check(root, &mut wrong)?;
    links::check_reach(root, &mut wrong)?;
    pages::check(root, &mut wrong)?;
    stories::check(&sources, &mut wrong);
    variables(root, &sources, &mut wrong)?;
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

fn layering(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let allowed: BTreeMap<_, _> = LAYERS.into_iter().collect();
    for entry in fs::read_dir(root.join("crates"))? {
        let dir = entry?.path();
        if !dir.is_dir() {
            continue;
        }
        let manifest = dir.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        let table: toml::Table = text.parse()?;
        let name = table["package"]["name"].as_str().unwrap_or_default().to_owned();
        let Some(allowed) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name}: not in the table of layers in xtask/src/tidy.rs"));
            continue;
        };
        for on in table.get("dependencies").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys) {
            if on.starts_with("toft") && !allowed.contains(&on.as_str()) {
                wrong.push(format!(
                    "{name} depends on {on}: the table of layers in xtask/src/tidy.rs does not allow it"
                ));
            }
        }
    }
    Ok(())
}

/// What a crate depends on, it uses.
fn dependencies(root: &Path, sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join("crates"))? {
        let dir = entry?.path();
        if !dir.is_dir() {
            continue;
        }
        let table: toml::Table = fs::read_to_string(dir.join("Cargo.toml"))?.parse()?;
        let plain = ["dependencies", "dev-dependencies"].iter().filter_map(|kind| table.get(*kind)).cloned();
        let targets = table.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
        let of_targets = targets.filter_map(|target| target.get("dependencies")).cloned();
        let within: Vec<&String> =
            sources.iter().filter(|(path, _)| root.join(path).starts_with(&dir)).map(|(_, text)| text).collect();
        for section in plain.chain(of_targets) {
            for name in section.as_table().into_iter().flat_map(toml::Table::keys) {
                let word = name.replace('-', "_");
                if !within.iter().any(|text| text.contains(&word)) {
                    wrong.push(format!("{}: {name} is not used", dir.join("Cargo.toml").display()));
                }
            }
        }
    }
    Ok(())
}

fn prose(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let shown = path.display().to_string();
    let lines = text.lines().count();
    if lines > LONGEST {
        wrong.push(format!("{shown}: {lines} lines; split it where a second noun begins"));
    }
    for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("unimpl", "emented!")] {
        if text.contains(word) {
            wrong.push(format!("{shown}: says {word}"));
        }
    }
    if shown.contains("toft-core/src") && !shown.contains("/testing/") {
        for word in NOT_IN_CORE {
            if text.contains(word) {
                wrong.push(format!("{shown}: the core does not use {word}"));
            }
        }
    }
    if shown.contains("toft-cli/src") && !shown.contains("/render/") && text.contains("std::io::stdout") {
        wrong.push(format!("{shown}: only render/ prints"));
    }
}

/// Every file that starts a program is in the table of `docs/programs.md`, which says what protects it.
/// No two types of the libraries have one name. Verbs are called by their module (`claim::Request`), and so are the command
/// line's arguments and views.
fn names(sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) {
    let mut known: BTreeMap<&str, &PathBuf> = BTreeMap::new();
    for (path, text) in sources {
        let shown = path.display().to_string();
        let library = shown.contains("crates/") && shown.contains("/src/") && !shown.contains("/toft-cli/");
        if !library || shown.contains("/verbs/") || shown.ends_with("tests.rs") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for name in code.lines().filter_map(type_name) {
            if let Some(first) = known.insert(name, path).filter(|first| *first != path) {
                let first = first.display();
                wrong.push(format!("{shown}: `{name}` is a type of {first}, too; give one of them a name of its own"));
            }
        }
    }
}

/// The name of the type that a line defines.
fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let rest = rest.strip_prefix('(').and_then(|rest| Some(rest.split_once(')')?.1)).unwrap_or(rest);
        rest.trim_start()
    });
    let rest = ["struct ", "enum ", "trait "].iter().find_map(|word| line.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    Some(&rest[..end])
}

fn programs(root: &Path, sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) -> Result<()> {
    const LIST: &str = "docs/programs.md";
    let list = fs::read_to_string(root.join(LIST))?;
    let starts = |text: &str| text.replace("clap::Command::new", "").contains("Command::new(");
    let ours = |path: &Path| path.starts_with("crates") && path.iter().any(|part| part == "src");
    for (path, _) in sources.iter().filter(|(path, text)| ours(path) && starts(text)) {
        if !list.contains(&format!("`{}`", path.display())) {
            wrong.push(format!("{}: starts a program and is not in {LIST}", path.display()));
        }
    }
    for named in list.split('`').filter(|part| part.starts_with("crates/") && part.ends_with(".rs")) {
        if !sources.get(Path::new(named)).is_some_and(|text| starts(text)) {
            wrong.push(format!("{LIST}: {named} starts no program"));
        }
    }
    Ok(())
}

/// Environment variables that only toft and its tests use.
const PRIVATE: [&str; 11] = [
    "TOFT_CONFINED",
    "TOFT_HOOK_PROBE",
    "TOFT_RUN_SLOT",
    "TOFT_RUN_WARDEN",
    "TOFT_PLAY_SEED",
    "TOFT_BLESS",
    "TOFT_IDS",
    "TOFT_LEASE_TTL",
    "TOFT_LEASE_CAP",
    "TOFT_RETRY_BACKOFF",
    "TOFT_LAND_CLOSE",
];

/// Every other environment variable is in the reference.
fn variables(root: &Path, sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) -> Result<()> {
    const PAGE: &str = "docs/reference/configuration.md";
    let page = fs::read_to_string(root.join(PAGE))?;
    let ours = |path: &Path| path.starts_with("crates") && path.iter().any(|part| part == "src");
    for (path, text) in sources.iter().filter(|(path, _)| ours(path) && !path.ends_with("tests.rs")) {
        let names = text.split("\"TOFT_").skip(1).filter_map(|rest| Some(format!("TOFT_{}", rest.split_once('"')?.0)));
        for name in names.filter(|name| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')) {
            if !PRIVATE.contains(&name.as_str()) && !page.contains(&name) {
                wrong.push(format!("{}: {name} is not in {PAGE}", path.display()));
            }
        }
    }
    Ok(())
}

/// Both engines have a file for every query in the list, and no others but those only one of them uses.
fn queries(root: &Path, sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) -> Result<()> {
    let store = root.join("crates/toft-store/src");
    let text = fs::read_to_string(store.join("query.rs"))?;
    let listed: BTreeSet<String> = text
        .split_once("queries! {\n")
        .map_or("", |(_, list)| list)
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && *line != "}")
        .map(str::to_owned)
        .collect();
    for engine in ["sqlite", "postgres"] {
        let dir = format!("toft-store/src/{engine}/");
        let mut own = BTreeSet::new();
        for (_, text) in sources.iter().filter(|(path, _)| path.to_string_lossy().contains(&dir)) {
            for part in text.split("sql!(\"").skip(1) {
                own.extend(part.split_once('"').map(|(name, _)| name.to_owned()));
            }
        }
        let expected: BTreeSet<_> = listed.union(&own).cloned().collect();
        let files = stems(&store.join(engine).join("queries"))?;
        wrong.extend(files.difference(&expected).map(|name| format!("{engine}/queries/{name}.sql is never used")));
        wrong.extend(expected.difference(&files).map(|name| format!("{engine}/queries/{name}.sql is missing")));
    }
    Ok(())
}

fn stems(dir: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        names.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    Ok(names)
}

/// Every Rust file of the project, by path from the root.
pub(crate) fn sources(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut sources = BTreeMap::new();
    let mut look: Vec<PathBuf> = ["crates", "tests", "bench", "xtask"].iter().map(|dir| root.join(dir)).collect();
    while let Some(dir) = look.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                look.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path)?;
                sources.insert(path.strip_prefix(root)?.to_owned(), text);
            }
        }
    }
    Ok(sources)
}
