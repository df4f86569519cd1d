//! Files that are generated from the types, and checked in.

use std::{fs, path::Path};

use serde_json::Value;

/// Compares a checked-in file with what the types say now; with `TOFT_BLESS` set, it writes the file.
pub fn assert_checked_in(path: &Path, derived: &Value) {
    let derived = one_line_for_each_entry(derived);
    if std::env::var_os("TOFT_BLESS").is_some() {
        fs::write(path, &derived).expect("the file can be written");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let differs = found.lines().zip(derived.lines()).find(|(found, derived)| found != derived);
    let path = path.display();
    assert!(
        found == derived,
        "{path} is not what the types say; `cargo xtask reference` writes it. First: {differs:#?}"
    );
}

/// Writes an object so that a review shows which of its entries changed.
fn one_line_for_each_entry(value: &Value) -> String {
    let Value::Object(groups) = value else { return format!("{value}\n") };
    let groups: Vec<String> = groups
        .iter()
        .map(|(name, group)| match group {
            Value::Object(entries) if !entries.is_empty() => {
                let entries: Vec<String> =
                    entries.iter().map(|(name, entry)| format!("{}:{entry}", Value::from(name.as_str()))).collect();
                format!("{}:{{\n{}\n}}", Value::from(name.as_str()), entries.join(",\n"))
            }
            other => format!("{}:{other}", Value::from(name.as_str())),
        })
        .collect();
    format!("{{\n{}\n}}\n", groups.join(",\n"))
}
