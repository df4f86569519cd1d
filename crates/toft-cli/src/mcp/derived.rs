//! The schemas of tools, from the types of their arguments. `tools.json` holds them.

use std::path::Path;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use toft_core::testing::assert_checked_in;

use super::tools::{EVERYWHERE, TOOLS};

/// The schema without what a model does not need: null, defaults, widths of numbers.
pub(super) fn derive_schema<C: JsonSchema>() -> Value {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let whole = settings.into_generator().into_root_schema_for::<C>().to_value();
    let mut properties = Map::new();
    for (name, part) in whole["properties"].as_object().into_iter().flatten() {
        let mut part = part.clone();
        if let Some(part) = part.as_object_mut() {
            part.retain(|key, _| ["type", "items", "enum", "description"].contains(&key.as_str()));
            if let Some(kind) = part.get("type").and_then(|kind| kind.get(0)).cloned() {
                part.insert("type".to_owned(), kind);
            }
            if let Some(words) = part.get_mut("enum").and_then(Value::as_array_mut) {
                words.retain(|word| !word.is_null());
            }
        }
        properties.insert(name.clone(), part);
    }
    for name in EVERYWHERE {
        properties.insert(name.to_owned(), json!({ "type": "string" }));
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), Value::Object(properties));
    if let Some(required) = whole.get("required") {
        schema.insert("required".to_owned(), required.clone());
    }
    Value::Object(schema)
}

#[test]
fn checked_in_schemas_are_what_the_types_say() {
    let derived = TOOLS.iter().map(|tool| (tool.name.to_owned(), (tool.derive_schema)())).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mcp/tools.json");
    assert_checked_in(&path, &Value::Object(derived));
}
