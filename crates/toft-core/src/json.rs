//! JSON between types and values, by way of text.
//!
//! A type that is read from a value, from bytes and from text is compiled three times, and with it everything that it
//! contains. Types are read from text alone, and written to text alone; these functions take the way there and back.

use serde::{
    Serialize,
    de::{self, DeserializeOwned},
};
use serde_json::{Result, Value};

/// Reads a type from a value. The error does not name a place: nobody sees the text.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T> {
    serde_json::from_str(&value.to_string()).map_err(|error| without_place(&error))
}

fn without_place(error: &serde_json::Error) -> serde_json::Error {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    de::Error::custom(text.strip_suffix(&place).unwrap_or(&text))
}

/// Writes a type as a value. Keys of objects are in the order of the alphabet.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value> {
    serde_json::from_str(&serde_json::to_string(value)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn value_comes_back_through_a_type() {
        let value = json!({ "text": "ä\n\u{0}", "whole": u64::MAX, "part": -0.5, "list": [null, true], "of": {} });
        let typed: serde_json::Map<String, Value> = from_value(&value).unwrap();
        assert_eq!(to_value(&typed).unwrap(), value);
    }

    #[test]
    fn error_says_what_is_wrong_and_no_line() {
        let error = from_value::<u8>(&json!("a")).unwrap_err().to_string();
        assert_eq!(error, "invalid type: string \"a\", expected u8");
    }
}
