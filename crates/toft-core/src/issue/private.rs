//! Finds private data in a text that is about to be published: ids and titles of private issues, local paths, secrets.
//! A person decides about each finding.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use super::Put;
use crate::secret;

/// A title of one word that is shorter than this is probably an everyday word.
const SHORTEST_WORD: usize = 8;
/// A title shorter than this is ignored.
const SHORTEST: usize = 4;
/// Maximum length of a finding that is displayed.
const SHOWN: usize = 80;

/// The private data to search for.
#[derive(Debug, Default)]
pub struct Private {
    ids: Vec<String>,
    id_finder: Option<AhoCorasick>,
    titles: Vec<(String, String)>,
    title_finder: Option<AhoCorasick>,
}

/// A case-insensitive finder for several texts, in one pass.
fn finder<'t>(texts: impl ExactSizeIterator<Item = &'t String>) -> Option<AhoCorasick> {
    if texts.len() == 0 {
        return None;
    }
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::LeftmostLongest).ascii_case_insensitive(true);
    builder.build(texts).ok()
}

/// Indexes of the texts that occur in `text` as whole words.
fn whole_words<'f>(finder: &'f Option<AhoCorasick>, text: &'f str) -> impl Iterator<Item = usize> + 'f {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let places = finder.iter().flat_map(move |finder| finder.find_iter(text));
    places.filter_map(move |place| {
        let (before, after) = (text[..place.start()].chars().next_back(), text[place.end()..].chars().next());
        (edge(before) && edge(after)).then(|| place.pattern().as_usize())
    })
}

/// Private data in a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PrivateText {
    /// The id of a private issue.
    Id(String),
    /// The title of a private issue.
    Title {
        /// The id of that issue.
        id: String,
        title: String,
    },
    /// A path on this machine.
    Path(String),
    /// Text that looks like a secret. It is not displayed.
    Secret(String),
}

impl PrivateText {
    /// What makes it this finding: another text under the same words is another one.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Secret(text) => format!("secret {text}"),
            shown => shown.to_string(),
        }
    }
}

impl fmt::Display for PrivateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| text.chars().take(SHOWN).collect::<String>();
        match self {
            Self::Id(id) => write!(f, "names {id}, which is private"),
            Self::Title { id, title } => write!(f, "has the title of {id}, which is private: {}", short(title)),
            Self::Path(path) => write!(f, "has a path of this machine: {}", short(path)),
            Self::Secret(_) => f.write_str("has something that looks like a secret"),
        }
    }
}

impl Private {
    /// Searches for the ids and titles of these private issues.
    pub fn new(issues: impl IntoIterator<Item = (String, String)>) -> Self {
        let (mut ids, mut titles) = (Vec::new(), Vec::new());
        for (id, title) in issues {
            let title = title.trim().to_owned();
            let telling = title.len() >= SHORTEST_WORD || title.len() >= SHORTEST && title.contains(' ');
            if telling {
                titles.push((title, id.clone()));
            }
            if !id.is_empty() {
                ids.push(id);
            }
        }
        ids.sort();
        let id_finder = finder(ids.iter());
        let title_finder = finder(titles.iter().map(|(title, _)| title));
        Self { ids, id_finder, titles, title_finder }
    }

    /// The same, without issues that are published together.
    #[must_use]
    pub fn without(&self, published: &[String]) -> Self {
        let titles: HashMap<&str, &str> = self.titles.iter().map(|(title, id)| (id.as_str(), title.as_str())).collect();
        let title_of = |id: &str| titles.get(id).copied().unwrap_or_default().to_owned();
        let stays = self.ids.iter().filter(|id| !published.contains(id));
        Self::new(stays.map(|id| (id.clone(), title_of(id))))
    }

    /// Whether nothing is private.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether an issue is private.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.ids.binary_search_by(|known| known.as_str().cmp(id)).is_ok()
    }

    /// Private ids in a text.
    pub fn ids_in<'t>(&'t self, text: &'t str) -> impl Iterator<Item = &'t str> {
        whole_words(&self.id_finder, text).filter_map(|at| self.ids.get(at)).map(String::as_str)
    }

    /// Titles of private issues in a text.
    fn titles_in<'t>(&'t self, text: &'t str) -> impl Iterator<Item = PrivateText> + 't {
        let found = whole_words(&self.title_finder, text).filter_map(|at| self.titles.get(at));
        found.map(|(title, id)| PrivateText::Title { id: id.clone(), title: title.clone() })
    }

    /// Everything private in a text.
    #[must_use]
    pub fn look(&self, text: &str) -> Vec<PrivateText> {
        let mut found: Vec<PrivateText> = self.ids_in(text).map(|id| PrivateText::Id(id.to_owned())).collect();
        found.extend(self.titles_in(text));
        found.extend(paths_in(text).map(|path| PrivateText::Path(path.to_owned())));
        let secrets = secret::Finder::default().find(text.as_bytes());
        found.extend(
            secrets.iter().filter_map(|at| text.get(at.from..at.to)).map(|text| PrivateText::Secret(text.to_owned())),
        );
        let mut seen = HashSet::new();
        found.retain(|finding| seen.insert(finding.clone()));
        found
    }

    /// Everything private in what is about to be written for others, with the field that it is in. An issue's own title is
    /// what it is called.
    #[must_use]
    pub fn look_at(&self, puts: &[Put], title: &str) -> Vec<(String, PrivateText)> {
        let mut found = Vec::new();
        for put in puts {
            let (field, texts) = match put {
                Put::Field(name, Some(value)) => (name.as_ref(), texts_of(value)),
                Put::Label(word, true) => ("labels", vec![word.as_str()]),
                Put::Comment(said) => ("comments", vec![said.text.as_str(), said.by.as_str()]),
                Put::Dep(..) | Put::Field(..) | Put::Label(..) | Put::Unsay(_) => continue,
            };
            let own =
                |finding: &PrivateText| matches!(finding, PrivateText::Title { title: found, .. } if found == title);
            for finding in texts.into_iter().flat_map(|text| self.look(text)).filter(|finding| !own(finding)) {
                let finding = (field.to_owned(), finding);
                if !found.contains(&finding) {
                    found.push(finding);
                }
            }
        }
        found
    }
}

/// Every text in a value.
fn texts_of(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(members) => members.iter().flat_map(texts_of).collect(),
        Value::Object(members) => members.values().flat_map(texts_of).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Absolute paths, and paths below a home directory.
fn paths_in(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "\"'`<>()[]{},;|*".contains(c);
    text.split(ends).filter_map(|word| {
        // `key=/path`, `host:/path` and `file:///path` have one as well; other URLs have none.
        let word = word.strip_prefix("file://").unwrap_or(word);
        let at = if word.contains("://") { return None } else { word };
        let path = match at.find(['=', ':']) {
            Some(sign) if at[sign + 1..].starts_with(['/', '~']) => &at[sign + 1..],
            _ => at,
        };
        let path = path.trim_end_matches(['.', ':', '!', '?', '/']);
        let deep = |rest: &str| rest.split('/').filter(|part| !part.is_empty()).count() > 1;
        let drive = |path: &str| {
            let mut chars = path.chars();
            chars.next().is_some_and(|c| c.is_ascii_alphabetic())
                && chars.next() == Some(':')
                && chars.next() == Some('\\')
        };
        let absolute = path.starts_with('/') && !path.starts_with("//") && deep(path);
        (absolute || path.starts_with("~/") || drive(path)).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> Private {
        let issues = [("tf-0a1b", "Acquire Acme"), ("tf-9z9z", "Refactor everything"), ("tf-3333", "Fix")];
        Private::new(issues.map(|(id, title)| (id.to_owned(), title.to_owned())))
    }

    #[test]
    fn private_ids_titles_paths_and_secrets_are_found() {
        for (text, wanted) in [
            ("see tf-0a1b.", 1),
            ("see (tf-0a1b) and tf-0a1b", 1),
            ("see tf-0a1bc, tf-other", 0),
            ("we acquire acme soon", 1),
            ("we acquire acmes", 0),
            ("Fix it", 0),
            ("in /home/ana/notes.txt, and ~/plans", 2),
            ("log=/var/log/x.log on C:\\Users\\ana", 2),
            ("file:///home/ana/x", 1),
            ("https://example.org/a/b/c and either/or, and a / b", 0),
            ("the /api route", 0),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", 1),
        ] {
            let found = private().look(text);
            assert_eq!(found.len(), wanted, "{text}: {found:?}");
        }
    }

    #[test]
    fn every_text_that_is_published_is_looked_at() {
        let said = crate::issue::Comment {
            id: "1".into(),
            at: Default::default(),
            by: "ana".into(),
            text: "tf-0a1b first".into(),
        };
        let puts = [
            Put::Field("title".into(), Some("Acquire Acme".into())),
            Put::Field("body".into(), Some("like Refactor everything".into())),
            Put::Field("closed".into(), Some(serde_json::json!({ "reason": "see ~/x" }))),
            Put::Label("tf-9z9z".into(), true),
            Put::Label("tf-0a1b".into(), false),
            Put::Comment(said),
        ];
        let found = private().look_at(&puts, "Acquire Acme");
        let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(fields, ["body", "closed", "labels", "comments"], "{found:?}");
    }
}
