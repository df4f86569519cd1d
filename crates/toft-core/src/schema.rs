//! JSON schemas of the types that leave and enter toft.
//!
//! With the feature `schema` they are derived from the types; a test compares them with the files that every other
//! program contains, and `cargo xtask reference` writes these files.

#[cfg(feature = "schema")]
pub use schemars::JsonSchema;
#[cfg(not(feature = "schema"))]
pub use toft_schema::JsonSchema;

/// A type with a schema, where schemas are derived; elsewhere any type.
#[cfg(feature = "schema")]
pub trait HasSchema: JsonSchema {}
#[cfg(feature = "schema")]
impl<T: JsonSchema> HasSchema for T {}

/// A type with a schema, where schemas are derived; elsewhere any type.
#[cfg(not(feature = "schema"))]
pub trait HasSchema {}
#[cfg(not(feature = "schema"))]
impl<T> HasSchema for T {}

/// Reads a schema that was checked in.
pub fn checked_in(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_default()
}
