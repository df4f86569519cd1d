//! The claims of README: each under "What holds" has a row in `docs/claims.toml` with tests that show it, in the file that
//! it links to.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{links, promises::test_names};

const LIST: &str = "docs/claims.toml";
const SECTION: &str = "## What holds";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimList {
    claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    /// Words of it in README.
    text: String,
    /// Tests that show it; one at least is in a file that it links to.
    tests: Vec<String>,
}

pub(crate) fn check(root: &Path, sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) -> Result<()> {
    let list = fs::read_to_string(root.join(LIST)).context(LIST)?;
    let claims = toml::from_str::<ClaimList>(&list).context(LIST)?.claims;
    let readme = fs::read_to_string(root.join("README.md")).context("README.md")?;
    find_unproven(&readme, &claims, sources, wrong);
    Ok(())
}

fn find_unproven(readme: &str, claims: &[Claim], sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) {
    let tests = test_names(sources);
    let section = readme.split_once(SECTION).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let bullets: Vec<String> = section.split("\n- ").skip(1).map(|bullet| bullet.replace("\n  ", " ")).collect();
    for bullet in &bullets {
        let Some(claim) = claims.iter().find(|claim| bullet.contains(&claim.text)) else {
            wrong.push(format!("README.md claims what has no row in {LIST}: {bullet}"));
            continue;
        };
        let linked: Vec<&str> = links::links(bullet);
        let has = |test: &String| {
            linked.iter().any(|file| sources.get(Path::new(file)).is_some_and(|text| text.contains(test)))
        };
        if !claim.tests.iter().any(has) {
            wrong.push(format!("README.md: no test of `{}` is in a file that it links to", claim.text));
        }
    }
    for claim in claims {
        if !bullets.iter().any(|bullet| bullet.contains(&claim.text)) {
            wrong.push(format!("{LIST}: README.md does not claim `{}`", claim.text));
        }
        for test in claim.tests.iter().filter(|test| !tests.contains(*test)) {
            wrong.push(format!("{LIST}: `{test}` is no test"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_needs_a_row_and_a_test_in_the_file_it_links_to() {
        let readme = "# a\n\n## What holds\n\n- It wins,\n  [always](tests/a.rs).\n\n## Next\n\n- no claim\n";
        let sources = |test: &str| BTreeMap::from([("tests/a.rs".into(), format!("#[test]\nfn {test}() {{}}\n"))]);
        let claim = |text: &str| Claim { text: text.to_owned(), tests: vec!["it_wins".to_owned()] };
        let count = |claims: &[Claim], test: &str| {
            let mut wrong = Vec::new();
            find_unproven(readme, claims, &sources(test), &mut wrong);
            wrong.len()
        };
        assert_eq!(count(&[claim("It wins, [always]")], "it_wins"), 0);
        assert_eq!(count(&[], "it_wins"), 1, "no row");
        assert_eq!(count(&[claim("It wins"), claim("It loses")], "it_wins"), 1, "no claim");
        assert_eq!(count(&[claim("It wins")], "it_won"), 2, "no test, and not in that file");
    }
}
