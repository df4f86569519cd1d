//! Filters by field, as a person types them: `author=me`, `label=db`.

use super::Issue;
use crate::refusal::Refusal;

/// Fields to filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterField {
    Author,
    Assignee,
    Label,
    Status,
    Type,
    Ledger,
}

/// Each field by its name.
const FIELDS: [(&str, FilterField); 6] = [
    ("author", FilterField::Author),
    ("assignee", FilterField::Assignee),
    ("label", FilterField::Label),
    ("status", FilterField::Status),
    ("type", FilterField::Type),
    ("ledger", FilterField::Ledger),
];

/// One condition on an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFilter {
    field: FilterField,
    value: String,
}

impl FieldFilter {
    /// Reads `FIELD=VALUE`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let known = FIELDS.map(|(name, _)| name).join(", ");
        let invalid = |problem: String| Refusal::Invalid { field: "filter".to_owned(), problem };
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| invalid(format!("`{text}` is not FIELD=VALUE with one of the fields {known}")))?;
        let field = FIELDS.iter().find(|(known, _)| *known == name);
        let (_, field) = *field.ok_or_else(|| invalid(format!("`{name}` is not one of the fields {known}")))?;
        Ok(Self { field, value: value.to_owned() })
    }

    /// Whether an issue of that ledger has the value. `me` means a name for which `is_me` is true.
    pub fn fits(&self, issue: &Issue, ledger: &str, is_me: impl Fn(&str) -> bool) -> bool {
        let same = |name: &str| name == self.value || self.value == "me" && is_me(name);
        match self.field {
            FilterField::Author => issue.created.as_ref().is_some_and(|created| same(&created.by)),
            FilterField::Assignee => issue.assignee.as_deref().is_some_and(same),
            FilterField::Label => issue.labels.contains(&self.value),
            FilterField::Status => issue.status == self.value,
            FilterField::Type => issue.kind == self.value,
            FilterField::Ledger => ledger == self.value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_a_known_field() {
        assert!(FieldFilter::parse("label=db").is_ok());
        assert!(FieldFilter::parse("label").unwrap_err().to_string().contains("author, assignee"));
        assert!(FieldFilter::parse("colour=red").unwrap_err().to_string().contains("`colour`"));
    }

    #[test]
    fn an_issue_fits_by_its_field_and_me_is_one_of_my_names() {
        let issue = Issue {
            labels: vec!["db".into()],
            assignee: Some("ana@example.org".into()),
            status: "open".into(),
            kind: "bug".into(),
            ..Issue::default()
        };
        let fits = |text: &str| FieldFilter::parse(text).unwrap().fits(&issue, "team", |name| name.starts_with("ana"));
        for (text, expected) in [
            ("label=db", true),
            ("label=d", false),
            ("status=open", true),
            ("type=task", false),
            ("ledger=team", true),
            ("assignee=me", true),
            ("assignee=ana@example.org", true),
            ("assignee=bea", false),
            ("author=me", false),
        ] {
            assert_eq!(fits(text), expected, "{text}");
        }
    }
}
