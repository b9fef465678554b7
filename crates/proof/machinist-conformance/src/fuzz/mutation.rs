//! Creates new inputs from old ones: changes bytes, inserts words of the API, and changes the JSON
//! at the end of an input as a tree.
//!
//! The same seed and corpus give the same input, so two numbers identify a failing input.

use serde_json::{Map, Value};

/// Maximum length of an input: enough for deep and long values, and still fast.
const MAX_LENGTH: usize = 64 << 10;

/// Maximum number of changes to one input.
const MAX_CHANGES: u64 = 6;

/// Parts of requests, objects, patches, schemas and rules, and words with a special meaning.
const WORDS: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "name",
    "namespace",
    "generateName",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "fieldsV1",
    "resourceVersion",
    "uid",
    "generation",
    "deletionTimestamp",
    "creationTimestamp",
    "apiVersion",
    "kind",
    "conditions",
    "type",
    "reason",
    "containers",
    "taints",
    "data",
    "$patch",
    "delete",
    "replace",
    "merge",
    "$retainKeys",
    "$setElementOrder/conditions",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "f:metadata",
    "k:{\"type\":\"Ready\"}",
    "v:\"x\"",
    "i:0",
    "..",
    "op",
    "path",
    "from",
    "value",
    "add",
    "remove",
    "move",
    "copy",
    "test",
    "/metadata/labels",
    "/-",
    "/spec/taints/0",
    "~1",
    "~0",
    "properties",
    "items",
    "additionalProperties",
    "required",
    "default",
    "enum",
    "pattern",
    "maximum",
    "minLength",
    "maxItems",
    "oneOf",
    "not",
    "allOf",
    "anyOf",
    "format",
    "nullable",
    "int64",
    "date-time",
    "quantity",
    "object",
    "array",
    "integer",
    "string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    "rule",
    "messageExpression",
    "self",
    "oldSelf",
    "size()",
    ".all(x, ",
    ".exists(i, ",
    ".map(x, ",
    ".filter(x, ",
    "has(",
    "matches(",
    "split(",
    "duration(",
    "timestamp(",
    "quantity(",
    "?",
    ":",
    "&&",
    "||",
    "==",
    "!=",
    "in",
    "notin",
    "!",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "[*]",
    "[?(@.",
    "@.",
    "[-1]",
    "[0:1]",
    "\\",
    "'",
    "\"",
    ",",
    "=",
    "&",
    "%00",
    "%2F",
    "%",
    "+",
    "&anchor",
    "*anchor",
    "<<: ",
    "!!binary ",
    "---\n",
    "\n",
    "\t",
    "limit=",
    "continue=",
    "watch=1",
    "labelSelector=",
    "fieldSelector=",
    "resourceVersion=",
    "resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=true",
    "allowWatchBookmarks=true",
    "timeoutSeconds=",
    "dryRun=All",
    "fieldValidation=Strict",
    "fieldManager=",
    "force=true",
    "propagationPolicy=Orphan",
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e999",
    "1e-999",
    "0.1",
    "null",
    "true",
    "false",
    "é",
    "\u{202e}",
    "\u{0}",
    "2026-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "10Ei",
    "1n",
];

/// Creates an input from the `corpus`. The same `seed` gives the same input.
pub fn mutated(corpus: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    let mut input = dice.one_of(corpus).cloned().unwrap_or_default();
    for _ in 0..=dice.below(MAX_CHANGES) {
        match dice.below(3) {
            0 if change_json(&mut input, &mut dice) => {}
            _ => change_bytes(&mut input, corpus, &mut dice),
        }
        input.truncate(MAX_LENGTH);
    }
    input
}

/// SplitMix64: short, and random enough for choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number below `bound`, or 0 if `bound` is 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.roll().checked_rem(bound).unwrap_or_default()
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }

    fn one_of<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let at = self.index(choices.len());
        choices.get(at)
    }

    fn word(&mut self) -> &'static str {
        self.one_of(WORDS).copied().unwrap_or_default()
    }

    /// Draws a byte, usually a printable one.
    fn byte(&mut self) -> u8 {
        let any = self.roll().to_le_bytes()[0];
        if self.below(4) == 0 { any } else { b' ' + any % 95 }
    }

    /// Draws a range within a length, usually a short one.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let from = self.index(length + 1);
        let longest = if self.below(4) == 0 { length } else { 12 };
        let to = (from + self.index(longest + 1)).min(length);
        from..to
    }
}

fn change_bytes(input: &mut Vec<u8>, corpus: &[Vec<u8>], dice: &mut Dice) {
    let range = dice.range(input.len());
    let new: Vec<u8> = match dice.below(7) {
        0 => Vec::new(),
        1 => vec![dice.byte()],
        2 | 3 => dice.word().into(),
        4 => {
            let other = dice.one_of(corpus).map_or(&[][..], Vec::as_slice);
            other[dice.range(other.len())].to_vec()
        }
        5 => {
            let times = 1 << dice.below(12);
            input[range.clone()].repeat(times)
        }
        _ => match input.get(range.start) {
            Some(byte) => vec![byte ^ (1 << dice.below(8))],
            None => Vec::new(),
        },
    };
    let replaced = match dice.below(2) {
        0 => range.start..range.start,
        _ => range,
    };
    input.splice(replaced, new);
}

/// Changes the JSON at the end of the input. Returns false if there is none.
fn change_json(input: &mut Vec<u8>, dice: &mut Dice) -> bool {
    let starts = input.iter().enumerate().filter(|(at, byte)| {
        let starts_line = *at == 0 || input[at - 1] == b'\n';
        starts_line && matches!(byte, b'{' | b'[')
    });
    let Some(start) = starts.map(|(at, _)| at).next_back() else { return false };
    let Ok(mut value) = serde_json::from_slice::<Value>(&input[start..]) else { return false };
    let other = value.clone();
    change_value(node(&mut value, dice), &other, dice);
    input.truncate(start);
    input.extend_from_slice(value.to_string().as_bytes());
    true
}

/// Picks a random node of the tree.
fn node<'a>(value: &'a mut Value, dice: &mut Dice) -> &'a mut Value {
    let mut at = value;
    loop {
        let children = match &*at {
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        };
        if children == 0 || dice.below(6) == 0 {
            return at;
        }
        let chosen = dice.index(children);
        at = match at {
            Value::Array(items) => &mut items[chosen],
            Value::Object(map) => map.values_mut().nth(chosen).expect("the index is below the length"),
            _ => unreachable!("the node has children"),
        };
    }
}

fn change_value(at: &mut Value, whole: &Value, dice: &mut Dice) {
    match (dice.below(8), &mut *at) {
        (0 | 1, Value::Object(map)) => {
            let value = simple(dice);
            map.insert(dice.word().to_owned(), value);
        }
        (2, Value::Object(map)) => {
            let key = map.keys().nth(dice.index(map.len())).cloned();
            if let Some(value) = key.and_then(|key| map.remove(&key)) {
                map.insert(dice.word().to_owned(), value);
            }
        }
        (0 | 1, Value::Array(items)) => {
            let value = simple(dice);
            items.push(value);
        }
        (2, Value::Array(items)) => {
            if let Some(item) = dice.one_of(items).cloned() {
                let times = dice.index(200);
                items.extend(std::iter::repeat_n(item, times));
            }
        }
        (3, at) => {
            // Copies a part of the object to another place.
            let mut copy = whole.clone();
            *at = node(&mut copy, dice).take();
        }
        (4, at) => {
            let key = dice.word();
            for _ in 0..=dice.below(130) {
                let below = at.take();
                *at = Value::Object(Map::from_iter([(key.to_owned(), below)]));
            }
        }
        (_, at) => *at = simple(dice),
    }
}

fn simple(dice: &mut Dice) -> Value {
    match dice.below(12) {
        0 => Value::Null,
        1 => true.into(),
        2 => 0.into(),
        3 => i64::MIN.into(),
        4 => u64::MAX.into(),
        5 => 1e300.into(),
        6 => Value::Object(Map::new()),
        7 => Value::Array(Vec::new()),
        8 => dice.word().repeat(dice.index(300)).into(),
        9 => dice.roll().cast_signed().into(),
        _ => dice.word().into(),
    }
}
