//! Links between pages: every relative link in a Markdown file leads to a file, and its anchor to a heading.

use std::{
    collections::BTreeMap,
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
fn links(text: &str) -> Vec<&str> {
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
