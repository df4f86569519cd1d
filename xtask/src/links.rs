//! Links between pages: every relative link in a Markdown file leads to a file, and its anchor to a heading.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result};

/// Where pages are; `.` stands for the root alone.
const PLACES: [&str; 4] = [".", "docs", "bench", ".github"];

pub(crate) fn check(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let pages = pages(root)?;
    for (page, text) in &pages {
        for link in links(text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains(':') {
                continue;
            }
            let there = match path {
                "" => page.clone(),
                path => normal(&page.parent().unwrap_or(Path::new("")).join(path)),
            };
            let found = match anchor {
                "" => root.join(&there).exists(),
                anchor => pages.get(&there).is_some_and(|text| anchors(text).iter().any(|known| known == anchor)),
            };
            if !found {
                wrong.push(format!("{}: the link to {link} leads nowhere", page.display()));
            }
        }
    }
    Ok(())
}

/// Pages that more than this many clicks lead to are not found.
const MAX_CLICKS: usize = 3;

/// Finds pages of the documentation that a reader of README does not reach.
pub(crate) fn check_reach(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let pages = pages(root)?;
    let mut reached = BTreeSet::from([PathBuf::from("README.md")]);
    for _ in 0..MAX_CLICKS {
        let next = reached.iter().flat_map(|page| linked(page, pages.get(page).map_or("", String::as_str)));
        reached = next.chain(reached.iter().cloned()).collect();
    }
    let far = pages.keys().filter(|page| !page.starts_with(".github") && !reached.contains(*page));
    wrong.extend(far.map(|page| format!("{} is more than {MAX_CLICKS} clicks from README.md", page.display())));
    Ok(())
}

/// The files of this repository that a page links to.
fn linked<'t>(page: &Path, text: &'t str) -> impl Iterator<Item = PathBuf> + use<'t> {
    let dir = page.parent().unwrap_or(Path::new("")).to_owned();
    let paths = links(text).into_iter().filter_map(|link| link.split('#').next());
    paths.filter(|path| !path.contains(':')).map(move |path| normal(&dir.join(path)))
}

/// Every page, by path from the root.
pub(crate) fn pages(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut pages = BTreeMap::new();
    for place in PLACES {
        read(root, &root.join(place), place != ".", &mut pages)?;
    }
    Ok(pages)
}

/// Reads the Markdown files of a directory, by path from the root.
fn read(root: &Path, dir: &Path, deep: bool, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && deep {
            read(root, &path, deep, pages)?;
        } else if path.extension().is_some_and(|kind| kind == "md") {
            pages.insert(normal(path.strip_prefix(root)?), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Targets of `[text](target)`, also of one that is broken over two lines, outside of code.
pub(crate) fn links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    for line in prose(text) {
        // Every second part is code.
        for part in line.split('`').step_by(2) {
            let targets = part.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
            links.extend(targets);
        }
    }
    links
}

/// Anchors of headings, as forges and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        let slug: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let earlier = seen.entry(slug.clone()).or_default();
        anchors.push(if *earlier == 0 { slug } else { format!("{slug}-{earlier}") });
        *earlier += 1;
    }
    anchors
}

/// Resolves `..` by the text alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_no_links() {
        let text = "See [a](a.md#b), [`c`](c.md) and `[x](y)`.\n```\n[no](no.md)\n```\n";
        assert_eq!(links(text), ["a.md#b", "c.md"]);
    }

    #[test]
    fn headings_have_the_anchors_that_forges_give_them() {
        assert_eq!(anchors("# A `b`, c!\n## x\n## x\n```\n# no\n```\n"), ["a-b-c", "x", "x-1"]);
    }
}
