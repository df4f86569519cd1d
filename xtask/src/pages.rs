//! The pages of the documentation: each is listed in `docs/pages.toml` with who reads it, and has no more words than stand there.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::links;

const LIST: &str = "docs/pages.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageList {
    pages: BTreeMap<String, PageRules>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageRules {
    /// Who reads it, and what they ask.
    reader: String,
    /// The most words that it may have.
    words: usize,
}

pub(crate) fn check(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let mut listed = toml::from_str::<PageList>(&text).context(LIST)?.pages;
    for (page, text) in links::pages(root)? {
        let page = page.display().to_string();
        // Templates of a forge are no pages.
        if page.starts_with(".github") {
            continue;
        }
        let Some(rules) = listed.remove(&page) else {
            wrong.push(format!("{page} is not in {LIST}"));
            continue;
        };
        let words = text.split_whitespace().count();
        if words > rules.words {
            wrong.push(format!("{page} has {words} words, of {}", rules.words));
        }
        if rules.reader.is_empty() {
            wrong.push(format!("{LIST} does not say who reads {page}"));
        }
    }
    wrong.extend(listed.keys().map(|page| format!("{page} is in {LIST}, and is not there")));
    Ok(())
}
