//! Values as text in a statement.

use std::fmt::Write as _;

use crate::value::Value;

/// The SQL type of a value.
fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Text(_) => "text",
        Value::Int(_) => "bigint",
        Value::Real(_) => "double precision",
    }
}

fn literal(out: &mut String, value: &Value<'_>) {
    match value {
        Value::Text(Some(text)) => {
            // Said outright where it matters: the server may have been told that a backslash is special.
            let backslash = text.contains('\\');
            out.push_str(if backslash { " E'" } else { "'" });
            for c in text.chars() {
                match c {
                    '\'' => out.push_str("''"),
                    '\\' => out.push_str("\\\\"),
                    // Text in PostgreSQL holds everything but this.
                    '\0' => {}
                    c => out.push(c),
                }
            }
            out.push('\'');
        }
        // Writing to a string cannot fail.
        Value::Int(Some(number)) => drop(write!(out, "{number}")),
        Value::Real(Some(number)) => drop(write!(out, "\'{number}\'")),
        Value::Text(None) | Value::Int(None) | Value::Real(None) => out.push_str("NULL"),
    }
}

/// A prepared statement with a name.
pub(super) fn prepare(out: &mut String, name: &str, text: &str, values: &[Value<'_>]) {
    let kinds: Vec<_> = values.iter().map(kind).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let _ = write!(out, "PREPARE {name}{kinds} AS\n{text}\n;");
}

/// The execution of a prepared statement.
pub(super) fn execute(out: &mut String, name: &str, values: &[Value<'_>]) {
    out.push_str("EXECUTE ");
    out.push_str(name);
    for (n, value) in values.iter().enumerate() {
        out.push(if n == 0 { '(' } else { ',' });
        literal(out, value);
    }
    out.push_str(if values.is_empty() { ";" } else { ");" });
}

/// A statement with inlined values.
pub(super) fn inline(out: &mut String, text: &str, values: &[Value<'_>]) {
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if let Some(value) = rest[..digits].parse::<usize>().ok().and_then(|place| values.get(place.wrapping_sub(1))) {
            out.push_str("CAST(");
            literal(out, value);
            let _ = write!(out, " AS {})", kind(value));
        }
        rest = &rest[digits..];
    }
    out.push_str(rest);
    out.push_str("\n;");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::values;

    #[test]
    fn hostile_text_stays_a_value() {
        let mut out = String::new();
        inline(&mut out, "SELECT $1, $2 -- x", &values!["a\'; DROP TABLE tasks; --\\\0", Option::<i64>::None]);
        assert_eq!(out, "SELECT CAST( E'a''; DROP TABLE tasks; --\\\\' AS text), CAST(NULL AS bigint) -- x\n;");
        out.clear();
        execute(&mut out, "toft_1", &values!["a'b", 7i64, 0.5f64]);
        assert_eq!(out, "EXECUTE toft_1('a''b',7,'0.5');");
        out.clear();
        prepare(&mut out, "toft_1", "SELECT $1", &values![7i64]);
        assert_eq!(out, "PREPARE toft_1 (bigint) AS\nSELECT $1\n;");
    }
}
