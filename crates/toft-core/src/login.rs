//! Login: which role a person has whom an identity provider knows, and under which name.

use std::str::FromStr;

use crate::token::TokenRole;

/// Whom an identity provider gives which role in which space: `SPACE/ROLE=VALUE`, or `ROLE=VALUE` for the first space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRule {
    /// The space; the server's first one if absent.
    pub space: Option<String>,
    pub role: TokenRole,
    /// What the provider has to say of the person.
    pub value: String,
}

impl FromStr for RoleRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (who, value) = text.split_once('=').ok_or("write ROLE=VALUE, or SPACE/ROLE=VALUE")?;
        let (space, role) = match who.rsplit_once('/') {
            Some((space, role)) => (Some(space.to_owned()).filter(|space| !space.is_empty()), role),
            None => (None, who),
        };
        let known = TokenRole::parse(role).filter(|role| *role >= TokenRole::Viewer);
        let role =
            known.ok_or_else(|| format!("`{role}` is no role; there are viewer, worker, coordinator and admin"))?;
        match value.is_empty() {
            true => Err("the value is empty".to_owned()),
            false => Ok(Self { space, role, value: value.to_owned() }),
        }
    }
}

/// The highest role that rules give to a person in a space.
#[must_use]
pub fn role_in(rules: &[RoleRule], space: &str, first: &str, values: &[String]) -> Option<TokenRole> {
    let here = |rule: &&RoleRule| rule.space.as_deref().unwrap_or(first) == space && values.contains(&rule.value);
    rules.iter().filter(here).map(|rule| rule.role).max()
}

/// The name of a person, from what the provider says: letters, digits and dots.
#[must_use]
pub fn person_name(said: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '.' };
    said.trim().to_lowercase().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_role_counts_in_its_space_only() {
        let rules: Vec<RoleRule> =
            ["viewer=staff", "coordinator=leads", "red/admin=red-leads"].map(|text| text.parse().unwrap()).into();
        let of = |space: &str, values: &[&str]| {
            let values: Vec<String> = values.iter().map(|text| (*text).to_owned()).collect();
            role_in(&rules, space, "main", &values)
        };
        assert_eq!(of("main", &["staff", "leads"]), Some(TokenRole::Coordinator));
        assert_eq!(of("main", &["red-leads"]), None);
        assert_eq!(of("red", &["red-leads", "staff"]), Some(TokenRole::Admin));
        assert_eq!(of("main", &[]), None);
        assert_eq!(person_name("Ana.B@Example.com"), "ana.b.example.com");
        for wrong in ["admin", "job=x", "join=x", "admin="] {
            assert!(wrong.parse::<RoleRule>().is_err(), "{wrong}");
        }
    }
}
