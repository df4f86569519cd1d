//! What leaves and enters toft as JSON, held by a snapshot: a changed name or type shows up in review.

use std::path::{Path, PathBuf};

use toft_core::{
    issue,
    ready::Reason,
    refusal::{SentError, VerbError},
    testing::assert_checked_in,
    verbs::calls,
};

fn source(path: &str) -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the package")).join("src").join(path)
}

#[test]
#[cfg(feature = "schema")]
fn checked_in_schemas_are_what_the_types_say() {
    assert_checked_in(&source("verbs/calls.json"), &calls::derive_schema());
    assert_checked_in(&source("verbs/callers.json"), &calls::derive_schema_of_callers());
    assert_checked_in(&source("issue/schema.json"), &issue::derive_schema());
}

#[test]
fn schema_of_one_call_has_the_types_it_refers_to() {
    let schema = calls::schema(Some("claim"));
    let names = |part: &str| schema[part].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names("calls"), ["claim"]);
    assert!(names("$defs").contains(&"Claimed".to_owned()) && !names("$defs").contains(&"Landing".to_owned()));
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
