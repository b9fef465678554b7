//! A time together with its text. A patch that tests a time must repeat the exact text that was
//! read.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time with its spelling on the wire. One moment has many spellings (`Z` or `+00:00`, with or
/// without a fraction).
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String", extend("format" = "date-time"))]
pub struct WireTime {
    text: String,
    at: Timestamp,
}

impl WireTime {
    /// Returns the moment.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the text that was read.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<Timestamp> for WireTime {
    /// Converts to whole seconds, as API servers and controllers write times.
    fn from(at: Timestamp) -> Self {
        let text = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Self { text, at: Timestamp::from_second(at.as_second()).unwrap_or(at) }
    }
}

impl Serialize for WireTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for WireTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let Time(at) = Time::deserialize(serde_json::Value::from(text.as_str())).map_err(D::Error::custom)?;
        Ok(Self { text, at })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_keeps_the_text_it_was_read_from() {
        let read = |text: &str| serde_json::from_value::<WireTime>(json!(text)).expect("a time");
        let (zulu, offset) = (read("2026-11-21T05:55:17Z"), read("2026-11-21T05:55:17.5+00:00"));
        assert_eq!(zulu, WireTime::from(zulu.at()));
        assert_eq!(offset.as_str(), "2026-11-21T05:55:17.5+00:00");
        assert_eq!(WireTime::from(offset.at()), zulu);
        assert_eq!(serde_json::to_value(&offset).expect("JSON"), json!("2026-11-21T05:55:17.5+00:00"));
        assert!(serde_json::from_value::<WireTime>(json!("yesterday")).is_err());
    }
}
