//! JSON messages as a stream stores them. PROTOCOL §7.1.
//!
//! # Format
//! Each message is stored as its JSON text, without outer blanks, followed by one comma. So the answer
//! to a read is `[`, the stored bytes without their last comma, `]`, with nothing parsed.
//!
//! # Why serde_json
//! What is valid JSON must be exactly what every client's parser accepts; `RawValue` validates and
//! hands back the text of each message unchanged. It does so without recursion, at any depth; but
//! readers' parsers recurse, so nesting is limited here.

use serde_json::value::RawValue;

/// Deepest nesting of a stored body: what the recursive parsers of the field allow by default.
pub const JSON_DEPTH_MAX: u32 = 128;

/// A body cut into messages, in stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flattened {
    /// `message,message,`
    pub stored: Vec<u8>,
    /// Number of messages; 0 for an empty array.
    pub count: u32,
}

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonError {
    /// Nested deeper than [`JSON_DEPTH_MAX`].
    TooDeep,
    /// Not one JSON value.
    Invalid {
        /// 1-based line where the parser gave up.
        line: usize,
        /// 1-based column where the parser gave up.
        column: usize,
    },
}

/// Validates `body` and flattens exactly one level of array.
///
/// # Errors
/// [`JsonError`] if the body is not one JSON value.
pub fn flatten(body: &[u8]) -> Result<Flattened, JsonError> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_array = first == Some(&b'[');
    let messages: Vec<&RawValue> = match is_array {
        true => serde_json::from_slice(body).map_err(|e| describe(&e))?,
        false => vec![serde_json::from_slice(body).map_err(|e| describe(&e))?],
    };
    let depth_max = JSON_DEPTH_MAX - u32::from(is_array);
    if messages.iter().any(|message| is_deeper(message.get().as_bytes(), depth_max)) {
        return Err(JsonError::TooDeep);
    }
    Ok(store(&messages, body.len()))
}

fn store(messages: &[&RawValue], body_bytes: usize) -> Flattened {
    let mut stored = Vec::with_capacity(body_bytes + 1);
    for message in messages {
        stored.extend_from_slice(message.get().as_bytes());
        stored.push(b',');
    }
    let count = u32::try_from(messages.len()).expect("a body holds fewer than 2^32 messages");
    Flattened { stored, count }
}

fn describe(error: &serde_json::Error) -> JsonError {
    JsonError::Invalid { line: error.line(), column: error.column() }
}

/// Whether `message`, valid JSON, is nested deeper than `depth_max`.
fn is_deeper(message: &[u8], depth_max: u32) -> bool {
    // Only what opens often enough can be deep, and openings are counted many bytes at a time.
    openings(message) > depth_max && depth(message) > depth_max
}

/// Brackets and braces in `message` that open, those in strings among them.
fn openings(message: &[u8]) -> u32 {
    // `[` and `{` differ in one bit. A block's count fits a byte, which is what vectorizes.
    let is_opening = |byte: &u8| u8::from(byte | 0x20 == b'{');
    let blocks = message.chunks(usize::from(u8::MAX));
    blocks.map(|block| u32::from(block.iter().map(is_opening).sum::<u8>())).sum()
}

/// Deepest nesting in `message`, valid JSON.
fn depth(message: &[u8]) -> u32 {
    let mut scanner = MessageScanner::default();
    let mut deepest = 0;
    for byte in message {
        scanner.is_end(*byte);
        deepest = deepest.max(scanner.depth);
    }
    deepest
}

/// Finds the ends of messages in stored bytes that arrive piece by piece.
///
/// Feed it from the start of a message; it keeps its place between pieces.
#[derive(Debug, Clone, Default)]
pub struct MessageScanner {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl MessageScanner {
    /// Position after the next message's comma in `stored`, or `None` if it ends beyond.
    pub fn next_end(&mut self, stored: &[u8]) -> Option<usize> {
        let end = stored.iter().position(|byte| self.is_end(*byte))?;
        Some(end + 1)
    }

    fn is_end(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        byte == b',' && self.depth == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(body: &str) -> String {
        String::from_utf8(flatten(body.as_bytes()).unwrap().stored).unwrap()
    }

    fn ends(stored: &[u8]) -> Vec<usize> {
        let mut scanner = MessageScanner::default();
        let mut ends = vec![];
        let mut start = 0;
        while let Some(length) = scanner.next_end(&stored[start..]) {
            start += length;
            ends.push(start);
        }
        ends
    }

    #[test]
    fn exactly_one_level_is_flattened() {
        assert_eq!(stored(r#"{"a":1}"#), r#"{"a":1},"#);
        assert_eq!(stored(" [ {\"a\":1} , 2 ] "), "{\"a\":1},2,");
        assert_eq!(stored("[[1,2],[3]]"), "[1,2],[3],");
        assert_eq!(flatten(b"[]").unwrap().count, 0);
    }

    #[test]
    fn what_is_not_one_json_value_is_refused() {
        for body in ["", "{", "1 2", "[1,]", "nul", "\"\u{1}\"", "[1]x"] {
            assert!(flatten(body.as_bytes()).is_err(), "{body:?}");
        }
        assert!(flatten(b"\"\xff\"").is_err());
    }

    #[test]
    fn deep_nesting_is_refused_without_recursion_trouble() {
        let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(flatten(nested(100_000).as_bytes()), Err(JsonError::TooDeep));
        assert!(flatten(nested(128).as_bytes()).is_ok());
        assert_eq!(flatten(nested(129).as_bytes()), Err(JsonError::TooDeep));
        let objects = |levels| format!("{}1{}", "{\"[\":".repeat(levels), "}".repeat(levels));
        assert!(flatten(objects(128).as_bytes()).is_ok());
        assert_eq!(flatten(objects(129).as_bytes()), Err(JsonError::TooDeep));
        let beside = format!("[{},{}]", nested(127), objects(127));
        assert!(flatten(beside.as_bytes()).is_ok(), "each message is judged by itself");
        let beside = format!("[{},{}]", nested(127), objects(128));
        assert_eq!(flatten(beside.as_bytes()), Err(JsonError::TooDeep));
    }

    #[test]
    fn commas_in_strings_and_nested_values_are_not_ends() {
        assert_eq!(ends(br#"{"a":[1,2]},"x,\",y",[3,4],"#), vec![12, 21, 27]);
    }

    proptest! {
        #[test]
        fn the_scanner_agrees_with_the_parser(values in prop::collection::vec(json(), 1..6)) {
            let flattened = flatten(serde_json::to_string(&values).unwrap().as_bytes()).unwrap();
            let mut start = 0;
            let mut found = vec![];
            for end in ends(&flattened.stored) {
                let text = &flattened.stored[start..end - 1];
                found.push(serde_json::from_slice::<serde_json::Value>(text).unwrap());
                start = end;
            }
            prop_assert_eq!(found, values);
            prop_assert_eq!(start, flattened.stored.len());
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            "[\"\\\\,\\]\\}a-z]{0,8}".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                prop::collection::hash_map("[,\"a-c]{0,3}", inner, 0..3)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }
}
