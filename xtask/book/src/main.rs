//! Builds the book: `xtask-book ROOT OUT`.
//!
//! Pages keep their paths in the repository, so that a link between them works on a forge and in the book alike. mdBook copies
//! every file beside its pages, so the pages are first copied to a directory of their own.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use mdbook_driver::{MDBook, config::Config};

/// Where pages and pictures of the book are, besides the pages that the summary names.
const DOCS: &str = "docs";

fn main() -> Result<()> {
    let mut args = env::args_os().skip(1).map(PathBuf::from);
    let (Some(root), Some(out)) = (args.next(), args.next()) else { bail!("usage: xtask-book ROOT OUT") };
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
    }
    let pages = stage(&root, &out.join("src"))?;
    let mut config: Config = fs::read_to_string(root.join(DOCS).join("book.toml"))?.parse()?;
    config.book.src = "src".into();
    config.build.build_dir = "html".into();
    MDBook::load_with_config(&out, config)?.build()?;
    let broken = broken_links(&out.join("html"))?;
    if !broken.is_empty() {
        bail!("links of the book that lead nowhere:\n{}", broken.join("\n"));
    }
    println!("{pages} pages in {}", out.join("html").join("index.html").display());
    Ok(())
}

/// Copies the pages that the summary names, and everything in docs/ that is not a page. Returns the number of pages.
fn stage(root: &Path, to: &Path) -> Result<usize> {
    let summary = fs::read_to_string(root.join(DOCS).join("SUMMARY.md"))?;
    let mut staged = String::new();
    let mut pages = BTreeSet::new();
    for line in summary.lines() {
        // `[Title](path)`, as the summary is allowed to have them: one on a line.
        match line.split_once("](").and_then(|(title, rest)| Some((title, rest.strip_suffix(')')?))) {
            Some((title, path)) => {
                let page = normal(&Path::new(DOCS).join(path));
                staged.push_str(&format!("{title}]({})\n", in_book(&page.display().to_string())));
                pages.insert(page);
            }
            None => staged.push_str(&format!("{line}\n")),
        }
    }
    let missing = markdown(&root.join(DOCS))?.into_iter().map(|page| Path::new(DOCS).join(page));
    let missing: Vec<_> = missing.filter(|page| !page.ends_with("SUMMARY.md") && !pages.contains(page)).collect();
    if !missing.is_empty() {
        bail!("docs/SUMMARY.md does not name {missing:?}");
    }
    for page in &pages {
        let text = fs::read_to_string(root.join(page)).with_context(|| page.display().to_string())?;
        let path = to.join(in_book(&page.display().to_string()));
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::write(path, relinked(&text))?;
    }
    let is_picture = |file: &&PathBuf| file.extension().is_some_and(|kind| kind == "svg" || kind == "png");
    for picture in files(&root.join(DOCS))?.iter().filter(is_picture) {
        let path = to.join(DOCS).join(picture);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::copy(root.join(DOCS).join(picture), path)?;
    }
    fs::write(to.join("SUMMARY.md"), staged)?;
    Ok(pages.len())
}

/// A directory's page is its index in the book, and its README on a forge.
fn in_book(path: &str) -> String {
    path.replace("README.md", "index.md")
}

/// Finds links to files that the book does not hold: code, or the list of pages that each of its pages shows.
fn is_outside(target: &str) -> bool {
    target.ends_with(".rs") || target.ends_with("SUMMARY.md")
}

/// A page with links as they are in the book.
fn relinked(text: &str) -> String {
    let mut parts = text.split("](");
    let mut relinked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_at(part.find(')').unwrap_or_default());
        match relinked.rfind('[') {
            Some(start) if is_outside(target) => {
                relinked.remove(start);
                relinked.push_str(&rest[1..]);
            }
            _ => relinked.push_str(&format!("]({}{rest}", in_book(target))),
        }
    }
    relinked
}

/// Files below a directory, by path from there.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut look) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(next) = look.pop() {
        for entry in fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                look.push(path);
            } else {
                found.push(path.strip_prefix(dir)?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn markdown(dir: &Path) -> Result<Vec<PathBuf>> {
    Ok(files(dir)?.into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "md")).collect())
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

/// Relative links in the rendered pages whose file or anchor does not exist.
fn broken_links(html: &Path) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    // The page for printing repeats all others, from another place.
    let skipped = ["print.html", "404.html", "toc.html"];
    let pages = files(html)?.into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "html"));
    for page in pages.filter(|page| !skipped.iter().any(|name| page.ends_with(name))) {
        let text = fs::read_to_string(html.join(&page))?;
        let content = text.split_once("<main>").map_or(text.as_str(), |(_, rest)| rest);
        for attribute in ["href=\"", "src=\""] {
            for link in content.split(attribute).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0)) {
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                if path.contains(':') {
                    continue;
                }
                let there = match path {
                    "" => page.clone(),
                    path => normal(&page.parent().unwrap_or(Path::new("")).join(path)),
                };
                let known = match anchor {
                    "" => html.join(&there).is_file(),
                    anchor => fs::read_to_string(html.join(&there))
                        .is_ok_and(|text| text.contains(&format!("id=\"{anchor}\""))),
                };
                if !known {
                    broken.push(format!("{}: {link}", page.display()));
                }
            }
        }
    }
    Ok(broken)
}
