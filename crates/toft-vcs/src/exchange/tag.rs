//! Reads the text of annotated tags.

use super::{ExchangeError, git_dir};
use crate::{Checkout, git_run::Git};

/// Maximum number of nested tags.
const DEEPEST: usize = 8;

/// The text of a tag object and of the tags that it points to; empty for a commit.
pub fn tag_text(checkout: &Checkout, object: &str) -> Result<String, ExchangeError> {
    let Some(git_dir) = git_dir(checkout) else { return Ok(String::new()) };
    let (git, mut text, mut next) = (Git::of(&git_dir)?, String::new(), object.to_owned());
    for _ in 0..DEEPEST {
        let kind = git.run(["cat-file", "-t", "--end-of-options", &next])?.maybe()?.unwrap_or_default();
        if kind.trim() != "tag" {
            break;
        }
        let tag = git.run(["cat-file", "tag", "--end-of-options", &next])?.text()?;
        text.push_str(&tag);
        text.push('\n');
        next = match tag.lines().next().and_then(|line| line.strip_prefix("object ")) {
            Some(object) => object.trim().to_owned(),
            None => break,
        };
    }
    Ok(text)
}
