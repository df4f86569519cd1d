//! Reads MessagePack as JSON; values that JSON does not have (bytes, extension types) are left out.

use serde_json::{Map, Value};

/// Maximum depth of nesting.
const DEEPEST: usize = 64;

/// Reads one value; none if the bytes are invalid.
pub(super) fn read(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader { bytes };
    let value = reader.value(0)?;
    reader.bytes.is_empty().then_some(value)
}

struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    /// A number of this many bytes.
    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, bytes: usize) -> Option<Value> {
        let shift = 64 - 8 * bytes as u32;
        Some(((self.number(bytes)? << shift) as i64 >> shift).into())
    }

    fn text(&mut self, bytes: usize) -> Option<Value> {
        Some(String::from_utf8_lossy(self.take(bytes)?).into_owned().into())
    }

    /// Skips bytes, or an extension type with `more` bytes of type.
    fn left_out(&mut self, bytes: usize, more: usize) -> Option<Value> {
        self.take(bytes + more)?;
        Some(Value::Null)
    }

    fn list(&mut self, count: usize, depth: usize) -> Option<Value> {
        (0..count).map(|_| self.value(depth + 1)).collect::<Option<Vec<_>>>().map(Value::Array)
    }

    fn map(&mut self, count: usize, depth: usize) -> Option<Value> {
        let mut map = Map::new();
        for _ in 0..count {
            let key = match self.value(depth + 1)? {
                Value::String(key) => key,
                other => other.to_string(),
            };
            map.insert(key, self.value(depth + 1)?);
        }
        Some(Value::Object(map))
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEEPEST {
            return None;
        }
        let tag = self.number(1)? as u8;
        let low = usize::from(tag & 0x0f);
        Some(match tag {
            0x00..=0x7f => tag.into(),
            0xe0..=0xff => (tag as i8).into(),
            0x80..=0x8f => return self.map(low, depth),
            0x90..=0x9f => return self.list(low, depth),
            0xa0..=0xbf => return self.text(usize::from(tag & 0x1f)),
            0xc2 | 0xc3 => (tag == 0xc3).into(),
            0xc4..=0xc6 => {
                let count = self.number(1 << (tag - 0xc4))? as usize;
                return self.left_out(count, 0);
            }
            0xc7..=0xc9 => {
                let count = self.number(1 << (tag - 0xc7))? as usize;
                return self.left_out(count, 1);
            }
            0xca => f64::from(f32::from_bits(self.number(4)? as u32)).into(),
            0xcb => f64::from_bits(self.number(8)?).into(),
            0xcc..=0xcf => self.number(1 << (tag - 0xcc))?.into(),
            0xd0..=0xd3 => return self.signed(1 << (tag - 0xd0)),
            0xd4..=0xd8 => return self.left_out(1 << (tag - 0xd4), 1),
            0xd9..=0xdb => {
                let count = self.number(1 << (tag - 0xd9))? as usize;
                return self.text(count);
            }
            0xdc | 0xdd => {
                let count = self.number(if tag == 0xdc { 2 } else { 4 })? as usize;
                return self.list(count, depth);
            }
            0xde | 0xdf => {
                let count = self.number(if tag == 0xde { 2 } else { 4 })? as usize;
                return self.map(count, depth);
            }
            0xc0 | 0xc1 => Value::Null,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_can_say_is_read_and_the_rest_is_left_out() {
        let bytes =
            b"\x85\xa1a\x01\xa1b\x93\xff\xc3\xc0\xa1c\xcb\x3f\xf8\0\0\0\0\0\0\xa1d\xc7\x02\x05xy\xa1e\xd9\x02ab";
        let expected = serde_json::json!({ "a": 1, "b": [-1, true, null], "c": 1.5, "d": null, "e": "ab" });
        assert_eq!(read(bytes), Some(expected));
        assert_eq!(read(b"\xd1\xff\x00"), Some((-256).into()));
        for wrong in [&b"\x81"[..], b"\xa5ab", b"\x01\x02", b"\xdf\xff\xff\xff\xff", &[0x91; 100]] {
            assert_eq!(read(wrong), None);
        }
    }
}
