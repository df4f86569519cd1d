//! Makes one statement of many that differ in their values only.

use std::collections::BTreeMap;

use crate::{
    postgres::wire::Statement,
    query::Query,
    value::{Bind as _, Value},
};

/// Statements, by query: the values of each, without the space.
#[derive(Default)]
pub(super) struct Statements(BTreeMap<Query, Vec<Vec<Value<'static>>>>);

impl Statements {
    pub(super) fn add(&mut self, query: Query, values: &[Value<'_>]) {
        self.0.entry(query).or_default().push(values.iter().map(Value::keep).collect());
    }

    /// What deletes comes first: what is new may be in its place.
    pub(super) fn merged(self, space: &str, batch: &mut Vec<Statement>) {
        let (deletes, others): (Vec<_>, Vec<_>) =
            self.0.into_iter().partition(|(query, _)| query.postgres().starts_with("DELETE"));
        for (query, rows) in deletes.into_iter().chain(others) {
            let text = query.postgres();
            let of_space = |values: Vec<Value<'static>>| std::iter::once(space.bind().keep()).chain(values).collect();
            let one = if rows.len() > 1 { insert(text, &rows[0]).or_else(|| delete(text, &rows[0])) } else { None };
            match one {
                Some(text) => batch.push((text, of_space(columns(&rows)))),
                None => batch.extend(rows.into_iter().map(|values| (text.to_owned(), of_space(values)))),
            }
        }
    }
}

/// Each column as an array.
fn columns(rows: &[Vec<Value<'static>>]) -> Vec<Value<'static>> {
    let count = rows.first().map_or(0, Vec::len);
    (0..count).map(|column| array(rows.iter().map(|row| &row[column])).bind().keep()).collect()
}

/// The text of an array.
pub(super) fn array<'v>(values: impl Iterator<Item = &'v Value<'static>>) -> String {
    let mut out = String::from("{");
    for value in values {
        if out.len() > 1 {
            out.push(',');
        }
        match value {
            Value::Text(Some(text)) => {
                out.push('"');
                for c in text.chars() {
                    if matches!(c, '"' | '\\') {
                        out.push('\\');
                    }
                    out.push(c);
                }
                out.push('"');
            }
            Value::Int(Some(number)) => out.push_str(&number.to_string()),
            Value::Real(Some(number)) => out.push_str(&number.to_string()),
            Value::Text(None) | Value::Int(None) | Value::Real(None) => out.push_str("NULL"),
        }
    }
    out.push('}');
    out
}

fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Text(_) => "text",
        Value::Int(_) => "bigint",
        Value::Real(_) => "double precision",
    }
}

/// `INSERT … VALUES ($1, $2, …) …` for many rows.
fn insert(text: &str, first: &[Value<'_>]) -> Option<String> {
    let (front, rest) = text.split_once("VALUES (").filter(|_| text.starts_with("INSERT"))?;
    let (given, tail) = rest.split_once(')')?;
    let expected: Vec<String> = (1..=first.len() + 1).map(|n| format!("${n}")).collect();
    if given != expected.join(", ") || tail.contains('$') {
        return None;
    }
    let arrays: Vec<String> =
        first.iter().enumerate().map(|(n, value)| format!("CAST(${} AS {}[])", n + 2, kind(value))).collect();
    // Without an alias of its own, `WHERE true` keeps ON CONFLICT from being read as part of a join.
    Some(format!("{front}SELECT $1, u.* FROM unnest({}) AS u WHERE true{tail}", arrays.join(", ")))
}

/// `DELETE … AND column = $2` for many rows.
fn delete(text: &str, first: &[Value<'_>]) -> Option<String> {
    let [only] = first else { return None };
    let front = text.trim_end().strip_suffix("= $2").filter(|_| text.starts_with("DELETE"))?;
    Some(format!("{front}= ANY (CAST($2 AS {}[]))", kind(only)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::kept;

    #[test]
    fn rows_of_one_statement_become_arrays_and_hostile_text_stays_a_value() {
        let mut statements = Statements::default();
        statements.add(Query::agent_put, &kept!["a1", "ana", "{\"x\":\"\\\\\"}"]);
        statements.add(Query::agent_put, &kept!["a2", "', \"}", Option::<String>::None]);
        statements.add(Query::lease_drop, &kept!["t1"]);
        statements.add(Query::lease_drop, &kept!["t2"]);
        let mut batch = Vec::new();
        statements.merged("main", &mut batch);
        let [(drop, gone), (put, rows)] = batch.as_slice() else { panic!("{batch:?}") };
        assert!(drop.ends_with("AND task = ANY (CAST($2 AS text[]))"), "{drop}");
        assert_eq!(gone, &kept!["main", "{\"t1\",\"t2\"}"]);
        assert!(put.contains("unnest(CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]))"), "{put}");
        assert!(put.contains("ON CONFLICT"), "{put}");
        assert_eq!(rows[2], "{\"ana\",\"', \\\"}\"}".bind().keep());
        assert_eq!(rows[3], "{\"{\\\"x\\\":\\\"\\\\\\\\\\\"}\",NULL}".bind().keep());
    }

    #[test]
    fn the_statements_of_hot_rows_can_be_merged() {
        for query in [
            Query::attempt_put,
            Query::lease_put,
            Query::receipt_put,
            Query::task_put,
            Query::task_state_put,
            Query::workflow_put,
        ] {
            let count = query.postgres().matches("excluded.").count().max(30);
            let fits = (1..count).any(|n| insert(query.postgres(), &vec![7i64.bind(); n]).is_some());
            assert!(fits, "{query:?}");
        }
    }
}
