//! The query of a request.

use percent_encoding::percent_decode_str;

/// Names and values, decoded, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let decode =
            |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    /// The first value of a name, unless it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a name that are not empty.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// The pairs with other names.
    pub(crate) fn without(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter(move |(key, _)| key != name).map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
