//! The ledger of a new issue, if neither the caller nor a parent names one.
//!
//! An explicit route takes precedence over the rule for the user's role, which takes precedence over the default.
//! `--ledger` and the ledger of a parent take precedence over all of them; they are handled before this module is used.

use serde::{Deserialize, Serialize};

use crate::{refusal::Refusal, schema::JsonSchema};

/// The name of the repository's own ledger.
pub const OWN: &str = ".";

/// The user's role in the project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProjectRole {
    /// Maintains the repository's own ledger.
    #[default]
    Maintainer,
    /// Plans in a private ledger, and proposes issues.
    Contributor,
}

/// Whether routes by role apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Routes by role apply.
    #[default]
    Auto,
    /// Only routes by type, label and path apply.
    Explicit,
}

/// One rule: new issues that meet every condition go to `ledger`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Issues of this type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Issues with this label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Issues written in this directory of the repository, or below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Issues of users with this role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<ProjectRole>,
    /// The name of the ledger; `.` is the repository's own.
    pub ledger: String,
}

impl Route {
    /// Refuses a route without a condition, which would be a default, and one that mixes a role with other conditions.
    pub fn check(&self) -> Result<(), Refusal> {
        let explicit = self.kind.is_some() || self.label.is_some() || self.path.is_some();
        let problem = match (explicit, self.role.is_some()) {
            (false, false) => {
                "a route needs a type, a label, a path or a role; a default is set with `toft ledger default`"
            }
            (true, true) => "a route by role has no other condition",
            _ => return Ok(()),
        };
        Err(Refusal::Invalid { field: "route".into(), problem: problem.into() })
    }

    /// Whether two routes have the same conditions, wherever they lead.
    #[must_use]
    pub fn same_conditions(&self, other: &Self) -> bool {
        (&self.kind, &self.label, &self.path, self.role) == (&other.kind, &other.label, &other.path, other.role)
    }

    fn fits(&self, new: &NewIssue<'_>) -> bool {
        let below = |dir: &String| {
            let mut parts = new.path.split('/').filter(|part| !part.is_empty());
            dir.split('/').filter(|part| !matches!(*part, "" | ".")).all(|part| parts.next() == Some(part))
        };
        self.role.is_none()
            && self.kind.as_ref().is_none_or(|kind| kind == new.kind)
            && self.label.as_ref().is_none_or(|label| new.labels.contains(label))
            && self.path.as_ref().is_none_or(below)
    }
}

/// What is known about an issue before it is written.
#[derive(Clone, Copy, Debug)]
pub struct NewIssue<'a> {
    /// Its type.
    pub kind: &'a str,
    pub labels: &'a [String],
    /// The directory in which it is created, relative to the repository, with `/` as separator.
    pub path: &'a str,
}

/// The routing configuration of one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// Rules, in the order in which they are tried.
    pub routes: Vec<Route>,
    /// Whether routes by role apply.
    pub mode: Mode,
    /// The user's role.
    pub role: ProjectRole,
    /// The ledger of issues that match no rule; the repository's own ledger if absent.
    pub default: Option<String>,
}

impl Routing {
    /// The ledger that a new issue goes to, by name; none if nothing says so.
    #[must_use]
    pub fn ledger_for(&self, new: &NewIssue<'_>) -> Option<&str> {
        let fits = self.routes.iter().find(|route| route.fits(new));
        fits.map(|route| route.ledger.as_str()).or_else(|| self.usual())
    }

    /// The ledger for issues that no explicit route fits.
    #[must_use]
    pub fn usual(&self) -> Option<&str> {
        let by_role = self.routes.iter().find(|route| self.mode == Mode::Auto && route.role == Some(self.role));
        by_role.map(|route| route.ledger.as_str()).or(self.default.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> Route {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_explicit_route_beats_the_role_which_beats_the_default() {
        let mut routing = Routing {
            routes: vec![
                route(r#"{"type":"bug","ledger":"bugs"}"#),
                route(r#"{"label":"db","ledger":"data"}"#),
                route(r#"{"path":"docs/api","ledger":"docs"}"#),
                route(r#"{"role":"contributor","ledger":"planning"}"#),
            ],
            default: Some("team".into()),
            ..Routing::default()
        };
        let labels = ["db".to_owned()];
        let new = |kind, labels, path| NewIssue { kind, labels, path };
        assert_eq!(routing.ledger_for(&new("bug", &labels, "docs/api")), Some("bugs"));
        assert_eq!(routing.ledger_for(&new("task", &labels, "docs/api")), Some("data"));
        assert_eq!(routing.ledger_for(&new("task", &[], "docs/api/v2")), Some("docs"));
        assert_eq!(routing.ledger_for(&new("task", &[], "docs/apis")), Some("team"));
        routing.role = ProjectRole::Contributor;
        assert_eq!(routing.ledger_for(&new("task", &[], "")), Some("planning"));
        routing.mode = Mode::Explicit;
        assert_eq!(routing.ledger_for(&new("task", &[], "")), Some("team"));
        routing.default = None;
        assert_eq!(routing.ledger_for(&new("task", &[], "")), None);
    }

    #[test]
    fn a_route_has_conditions_and_nothing_unknown() {
        assert!(route(r#"{"ledger":"x"}"#).check().is_err());
        assert!(route(r#"{"role":"maintainer","label":"db","ledger":"x"}"#).check().is_err());
        assert!(serde_json::from_str::<Route>(r#"{"ledger":"x","priority":1}"#).is_err());
    }
}
