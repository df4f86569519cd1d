//! The promise map: each invariant that applies so far names the tests that show it, and they exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// How many invariants there are; all of them apply.
const INVARIANTS: u32 = 23;

pub(crate) fn check(root: &Path, sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) -> Result<()> {
    let path = root.join("docs/promises.md");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let tests = test_names(sources);
    let mut mapped = BTreeSet::new();
    for line in text.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let Some(number) = cells.get(1).and_then(|cell| cell.parse::<u32>().ok()) else { continue };
        mapped.insert(number);
        let named: Vec<_> =
            cells.last_chunk::<2>().map_or("", |chunk| chunk[0]).split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            wrong.push(format!("docs/promises.md: invariant {number} names no test"));
        }
        for name in named.into_iter().filter(|name| !tests.contains(*name)) {
            wrong.push(format!("docs/promises.md: invariant {number} names `{name}`, which is no test"));
        }
    }
    for number in (1..=INVARIANTS).filter(|number| !mapped.contains(number)) {
        wrong.push(format!("docs/promises.md: invariant {number} is missing"));
    }
    Ok(())
}

/// Names of functions under `#[test]`, in `proptest!`, or in the conformance suite.
pub(crate) fn test_names(sources: &BTreeMap<PathBuf, String>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, text) in sources {
        let suite = path.to_string_lossy().contains("/conformance/");
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            if line == "#[test]" {
                marked = true;
            } else if let Some(rest) = line.strip_prefix("pub fn ").or_else(|| line.strip_prefix("fn ")) {
                if marked || suite {
                    names.extend(rest.split_once('(').map(|(name, _)| name.to_owned()));
                }
                marked = false;
            }
        }
    }
    names
}
