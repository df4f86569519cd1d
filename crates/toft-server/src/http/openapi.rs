//! The description of the interface, in OpenAPI 3.1, from the types of the verbs.

use serde_json::{Map, Value, json};
use toft_core::{verbs::calls, wire::PROTOCOL};

use super::routes::RESOURCES;

/// The whole description.
pub fn openapi() -> Value {
    let mut schema = calls::schema(None);
    refer_to_components(&mut schema);
    let mut schemas = schema["$defs"].as_object().cloned().unwrap_or_default();
    let mut verbs = schema["calls"].as_object().cloned().unwrap_or_default();
    for (name, verb) in &mut verbs {
        name_outcome(name, &mut verb["outcome"], &mut schemas);
    }
    let mut paths = Map::new();
    for (name, verb) in &verbs {
        paths.insert(format!("/v1/verbs/{name}"), json!({ "post": of_verb(name, verb) }));
    }
    for (path, name, field) in RESOURCES {
        paths.insert(path.to_owned(), json!({ "get": of_resource(path, name, field, &verbs[name]) }));
    }
    paths.insert("/v1/events".into(), json!({ "get": of_events() }));
    paths.insert("/v1/token".into(), json!({ "get": of_token() }));
    paths.insert("/v1/changes".into(), json!({ "get": of_changes() }));
    paths.insert("/healthz".into(), json!({ "get": of_health("health", "Whether the server runs") }));
    paths.insert("/readyz".into(), json!({ "get": of_health("readiness", "Whether the server can answer") }));
    schemas.insert("SentError".into(), error_schema(&schema));
    schemas.extend(caller_schemas());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "toft",
            "version": PROTOCOL,
            "summary": "State and coordination for fleets of coding agents",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "tags": [
            { "name": "verbs", "description": "Every verb of toft: one request, one transaction, one outcome." },
            { "name": "resources", "description": "Names for verbs that read." },
            { "name": "server", "description": "The server itself." },
        ],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
        },
    })
}

/// A list as an outcome gets a name of its own, as other outcomes have one: not every program reads lists of pairs elsewhere.
fn name_outcome(name: &str, outcome: &mut Value, schemas: &mut Map<String, Value>) {
    if outcome["type"] == "array" {
        let named = format!("{}Outcome", capital(&operation_id(name)));
        let refer = json!({ "$ref": format!("#/components/schemas/{named}") });
        schemas.insert(named, std::mem::replace(outcome, refer));
    }
}

fn of_verb(name: &str, verb: &Value) -> Value {
    let summary = verb["request"]["description"].as_str().unwrap_or(name);
    let wait = json!({
        "name": "wait", "in": "query", "required": false,
        "description": "Milliseconds to wait until it can be done, up to 30,000.",
        "schema": { "type": "integer", "minimum": 0, "maximum": 30_000 },
    });
    json!({
        "operationId": operation_id(name),
        "summary": summary,
        "tags": ["verbs"],
        "parameters": [wait],
        "requestBody": { "required": true, "content": { "application/json": { "schema": {
            "type": "object",
            "properties": {
                "caller": { "$ref": "#/components/schemas/SentCaller" },
                "op": { "$ref": "#/components/schemas/Operation" },
                "request": verb["request"],
            },
            "required": ["request"],
        } } } },
        "responses": answers(&verb["outcome"]),
    })
}

fn of_resource(path: &str, name: &str, field: Option<&str>, verb: &Value) -> Value {
    let in_path =
        field.map(|_| json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }));
    let id = format!("get{}", capital(&operation_id(&path.trim_start_matches("/v1/").replace(['/', '{', '}'], "."))));
    json!({
        "operationId": id,
        "summary": format!("`{name}`, as a resource"),
        "tags": ["resources"],
        "parameters": in_path.into_iter().collect::<Vec<_>>(),
        "responses": answers(&verb["outcome"]),
    })
}

fn answers(outcome: &Value) -> Value {
    let content = json!({ "application/json": { "schema": {
        "type": "object", "properties": { "outcome": outcome }, "required": ["outcome"],
    } } });
    let mut answers = json!({ "200": { "description": "It is done.", "content": content } });
    let refused = [
        ("400", "The request cannot be read."),
        ("401", "The token is missing or not known."),
        ("403", "The token or the role does not allow it."),
        ("404", "It does not exist, or nothing is ready."),
        ("409", "The state does not allow it."),
        ("422", "A value is not allowed."),
        ("500", "The store failed."),
        ("503", "Nobody can answer now; ask again."),
    ];
    for (status, description) in refused {
        answers[status] = json!({
            "description": description,
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/SentError" } } },
        });
    }
    answers
}

fn of_events() -> Value {
    let text = json!({ "text/event-stream": { "schema": { "type": "string" } } });
    let mut answers = answers(&json!({}));
    answers["200"] = json!({ "description": "Events as they happen; the id of each is its number.", "content": text });
    json!({
        "operationId": "followEvents",
        "summary": "The log, as a stream of server-sent events",
        "tags": ["server"],
        "parameters": [
            { "name": "after", "in": "query", "required": false, "schema": { "type": "integer", "minimum": 0 },
              "description": "Only events after this number." },
            { "name": "last-event-id", "in": "header", "required": false, "schema": { "type": "string" },
              "description": "The same, as browsers send it when they connect again." },
        ],
        "responses": answers,
    })
}

fn of_token() -> Value {
    let mut answers = answers(&json!({}));
    answers["200"]["content"]["application/json"]["schema"] = json!({ "$ref": "#/components/schemas/SentToken" });
    json!({ "operationId": "getOwnToken", "summary": "Whose the token is", "tags": ["server"], "responses": answers })
}

fn of_changes() -> Value {
    let mut answers = answers(&json!({}));
    answers["200"]["content"]["application/json"]["schema"] =
        json!({ "type": "object", "properties": { "counter": { "type": "integer" } }, "required": ["counter"] });
    json!({
        "operationId": "awaitChange",
        "summary": "A number that is different after every change",
        "tags": ["server"],
        "parameters": [
            { "name": "after", "in": "query", "required": false, "schema": { "type": "integer", "minimum": 0 } },
            { "name": "wait", "in": "query", "required": false, "schema": { "type": "integer", "minimum": 0 } },
        ],
        "responses": answers,
    })
}

fn of_health(id: &str, summary: &str) -> Value {
    let error = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/SentError" } } });
    json!({
        "operationId": id,
        "summary": summary,
        "tags": ["server"],
        "security": [],
        "responses": {
            "200": { "description": "Yes." },
            "503": { "description": "No.", "content": error },
            "4XX": { "description": "The request cannot be read." },
        },
    })
}

fn error_schema(schema: &Value) -> Value {
    let refused = &schema["errors"]["refused"];
    let failed = &schema["errors"]["failed"];
    json!({
        "type": "object",
        "description": "Why nothing was done.",
        "properties": {
            "refused": { "type": "boolean", "description": "A rule refused; otherwise the store failed." },
            "message": { "type": "string" },
            "error": { "anyOf": [refused, failed, { "type": "object" }, { "type": "null" }] },
        },
        "required": ["refused", "message"],
    })
}

/// Schemas of what is sent with every verb.
fn caller_schemas() -> Map<String, Value> {
    let mut schema = calls::schema_of_callers();
    refer_to_components(&mut schema);
    schema.as_object().cloned().unwrap_or_default()
}

/// Schemas refer to each other where OpenAPI keeps them, and what may be anything is an object: not every program knows a
/// schema that is only `true`.
fn refer_to_components(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            gather_words(fields);
            for (name, value) in fields.iter_mut() {
                match (name.as_str(), value) {
                    ("$ref", Value::String(text)) => *text = text.replace("#/$defs/", "#/components/schemas/"),
                    ("properties", Value::Object(all)) => all.values_mut().for_each(as_object),
                    ("prefixItems" | "anyOf" | "oneOf", Value::Array(all)) => all.iter_mut().for_each(as_object),
                    ("items" | "outcome" | "request", value) => as_object(value),
                    (_, value) => refer_to_components(value),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(refer_to_components),
        _ => {}
    }
}

/// Words that are alternatives become one list: not every program can choose among several constants.
fn gather_words(schema: &mut Map<String, Value>) {
    let word = |one: &Value| one["const"].as_str().map(|word| vec![word.to_owned()]);
    let words = |one: &Value| match one["enum"].as_array() {
        Some(all) => all.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>(),
        None => word(one),
    };
    let Some(Value::Array(alternatives)) = schema.get_mut("oneOf") else { return };
    let gathered: Vec<String> = alternatives.iter().filter_map(words).flatten().collect();
    if gathered.is_empty() {
        return;
    }
    alternatives.retain(|one| words(one).is_none());
    if alternatives.is_empty() {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), gathered.into());
    } else {
        alternatives.push(json!({ "type": "string", "enum": gathered }));
    }
}

fn as_object(schema: &mut Value) {
    match schema {
        Value::Bool(true) => *schema = json!({}),
        schema => refer_to_components(schema),
    }
}

/// `flow.new` is `flowNew`.
fn operation_id(name: &str) -> String {
    let mut words = name.split(['.', '_']).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |id, word| id + &capital(word))
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        fn follow(value: &Value, whole: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(to)) = fields.get("$ref") {
                        let path = to.strip_prefix('#').unwrap();
                        assert!(whole.pointer(path).is_some(), "{to}");
                    }
                    fields.values().for_each(|value| follow(value, whole));
                }
                Value::Array(all) => all.iter().for_each(|value| follow(value, whole)),
                _ => {}
            }
        }
        let whole = openapi();
        follow(&whole, &whole);
        assert_eq!(operation_id("land.record_pull_request"), "landRecordPullRequest");
    }
}
