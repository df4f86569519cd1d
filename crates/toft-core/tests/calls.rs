//! What leaves and enters toft as JSON, held by a snapshot: a changed name or type shows up in review.

use serde_json::Value;
use toft_core::{
    ready::Reason,
    refusal::{SentError, VerbError},
    verbs::calls,
};

/// Without the sentences, which may be reworded.
fn without_descriptions(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, value)| name != "description" || !value.is_string())
            .map(|(name, value)| (name, without_descriptions(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_descriptions).collect(),
        other => other,
    }
}

#[test]
fn the_schema_of_every_call_is_as_it_was() {
    insta::assert_snapshot!(format!("{:#}", without_descriptions(calls::schema(None))));
}

#[test]
fn every_type_has_a_name_of_its_own() {
    let schema = calls::schema(None);
    let numbered = |name: &&String| name.ends_with(|last: char| last.is_ascii_digit());
    assert_eq!(schema["$defs"].as_object().unwrap().keys().find(numbered), None, "two types share a name");
}

#[test]
fn what_a_newer_toft_says_is_read() {
    let reason = serde_json::from_str(r#"{ "why": "moon_phase", "phase": "full" }"#).unwrap();
    assert_eq!(Reason::Other, reason);
    let error = r#"{ "refused": true, "message": "the moon is full", "error": { "code": "moon_phase" } }"#;
    let sent: SentError = serde_json::from_str(error).unwrap();
    assert_eq!(VerbError::from(sent).to_string(), "the moon is full");
    let failure = r#"{ "refused": false, "message": "no moon", "error": { "code": "eclipse" } }"#;
    let sent: SentError = serde_json::from_str(failure).unwrap();
    assert!(VerbError::from(sent).to_string().contains("no moon"));
}
