//! How finished work is verified, reviewed and landed, as configured.

use std::{collections::BTreeMap, time::Duration};
use toft_core::schema::JsonSchema;

use serde::{Deserialize, Serialize};
use toft_core::landing::Reviewer;

use crate::{error::Error, setup::Approval};

/// How commits get into the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LandHow {
    /// With a merge commit for each piece of work.
    #[default]
    Merge,
    /// As one commit for each piece of work.
    Squash,
    /// Each commit again, on top of the target.
    Rebase,
    /// By a pull request, through the forge's own program.
    Pr,
}

/// The program that speaks with a forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForgeProgram {
    /// GitHub's.
    Gh,
    /// GitLab's.
    Glab,
    /// Gitea's and Forgejo's.
    Tea,
}

/// What goes to the toft server that is the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerShare {
    /// Neither issues nor commits.
    Nothing,
    /// Issues.
    Issues,
    /// Issues and finished commits.
    #[default]
    All,
}

/// Whether a checkout of the target is updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpdateRule {
    /// Only the one in which `toft land` is called.
    #[default]
    Ask,
    /// Every one, if it is clean where the change touches it.
    Clean,
}

/// What a check may do: it runs what agents wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckSandbox {
    /// Everything that you may.
    #[default]
    None,
    /// Write only its own directory.
    Files,
    /// The same, without a network.
    Offline,
}

/// When the issue of finished work is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CloseRule {
    /// When the work has landed.
    #[default]
    Landed,
    /// When the work is done.
    Done,
}

/// Who reviews: one for all, or by label.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ReviewRule {
    /// For all work.
    All(String),
    /// By `label:NAME`, and `default` for everything else.
    By(BTreeMap<String, String>),
}

/// Commands of a configuration. Those that a repository brings run only once the user trusted that exact text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredCommands {
    pub commands: Vec<String>,
    /// The user wrote them; they need no trust.
    pub(crate) own: bool,
}

impl ConfiguredCommands {
    /// Whether the user trusted that exact text for this repository.
    pub fn trusted(&self, repository: &str) -> bool {
        self.own || self.commands.is_empty() || self.approval(repository).given()
    }

    /// Trusts that exact text for this repository, or revokes the trust.
    pub fn trust(&self, repository: &str, yes: bool) -> Result<(), Error> {
        match self.commands.is_empty() {
            true => Ok(()),
            false => self.approval(repository).set(yes, &self.commands.join("\n")),
        }
    }

    /// Fails unless the commands are trusted.
    pub fn require_trust(&self, doing: &'static str, repository: &str) -> Result<(), Error> {
        match self.trusted(repository) {
            true => Ok(()),
            false => Err(Error::Untrusted { doing, count: self.commands.len() }),
        }
    }

    fn approval(&self, repository: &str) -> Approval {
        Approval::of(&("checks", repository, &self.commands))
    }

    /// A short digest of the text.
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(&self.commands).unwrap_or_default();
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }
}

/// How work is landed.
#[derive(Clone, Debug, PartialEq)]
pub struct LandRules {
    /// The target branch; that of each workspace if absent.
    pub into: Option<String>,
    /// The user, and not a file that came with the repository, said where work lands: it may be pushed there.
    pub(crate) own_target: bool,
    pub how: LandHow,
    /// The remote that branches of pull requests are pushed to; that of `into` if absent.
    pub fork: Option<String>,
    /// The program that opens pull requests; by the address of the remote if absent.
    pub forge: Option<ForgeProgram>,
    pub check: ConfiguredCommands,
    pub sandbox: CheckSandbox,
    /// The longest time that a check may take.
    pub timeout: Duration,
    /// Maximum number of landings that are checked together.
    pub batch: usize,
    /// Who has to approve, by `label:NAME`, and `default`.
    pub review: BTreeMap<String, String>,
    pub update: UpdateRule,
    pub close: CloseRule,
    /// Files in which both sides of a conflict are kept.
    pub union: Vec<String>,
}

impl Default for LandRules {
    fn default() -> Self {
        Self {
            into: None,
            own_target: false,
            how: LandHow::default(),
            fork: None,
            forge: None,
            check: ConfiguredCommands::default(),
            sandbox: CheckSandbox::default(),
            timeout: Duration::from_secs(20 * 60),
            batch: 8,
            review: BTreeMap::from([("default".to_owned(), "none".to_owned())]),
            update: UpdateRule::default(),
            close: CloseRule::default(),
            union: Vec::new(),
        }
    }
}

impl LandRules {
    /// The target that may be a branch of a remote. What came with the repository does not say what is published.
    pub fn pushed(&self) -> Option<&str> {
        self.into.as_deref().filter(|_| self.own_target)
    }

    /// Who has to approve work with these labels.
    pub fn reviewer(&self, labels: &[String]) -> Reviewer {
        let by_label = labels.iter().find_map(|label| self.review.get(&format!("label:{label}")));
        let name = by_label.or_else(|| self.review.get("default")).map(String::as_str);
        name.and_then(|name| reviewer(name).ok()).unwrap_or_default()
    }
}

/// Reads `none`, `human` or `agent:NAME`.
pub(crate) fn reviewer(text: &str) -> Result<Reviewer, String> {
    match text {
        "none" => Ok(Reviewer::None),
        "human" => Ok(Reviewer::Human),
        _ => match text.strip_prefix("agent:").filter(|name| !name.is_empty()) {
            Some(name) => Ok(Reviewer::Agent(name.to_owned())),
            None => Err(format!("`{text}` is not none, human or agent:NAME")),
        },
    }
}

/// Every rule of a configuration by its key, checked.
pub(crate) fn review_rules(rule: &ReviewRule) -> Result<BTreeMap<String, String>, String> {
    let rules = match rule {
        ReviewRule::All(name) => BTreeMap::from([("default".to_owned(), name.clone())]),
        ReviewRule::By(rules) => rules.clone(),
    };
    for (key, name) in &rules {
        if key != "default" && !key.starts_with("label:") {
            return Err(format!("`{key}` is neither default nor label:NAME"));
        }
        reviewer(name)?;
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_decides_who_reviews_before_the_default() {
        let rules = [("default", "none"), ("label:risky", "human"), ("label:ui", "agent:eve")];
        let review = rules.iter().map(|(key, name)| ((*key).to_owned(), (*name).to_owned())).collect();
        let rules = LandRules { review, ..LandRules::default() };
        assert_eq!(rules.reviewer(&["x".into()]), Reviewer::None);
        assert_eq!(rules.reviewer(&["x".into(), "risky".into()]), Reviewer::Human);
        assert_eq!(rules.reviewer(&["ui".into()]), Reviewer::Agent("eve".into()));
        assert!(review_rules(&ReviewRule::All("nobody".into())).is_err());
        assert!(review_rules(&ReviewRule::By([("risky".to_owned(), "human".to_owned())].into())).is_err());
    }
}
