//! Query parameters of a request, decoded.

use std::collections::BTreeMap;
use std::num::{IntErrorKind, ParseIntError};

use crate::values::go::quoted;
use crate::values::status::{ApiError, ApiResult};

/// Decoded query parameters. Of a repeated parameter the first value counts, except where the
/// caller reads all values.
#[derive(Debug, Default)]
pub(crate) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> ApiResult<Self> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| percent_decode(&text.replace('+', " "));
            let (Some(key), Some(value)) = (decode(key), decode(value)) else {
                return Err(ApiError::bad_request(format!("invalid query parameter: {pair}")));
            };
            parameters.entry(key).or_default().push(value);
        }
        Ok(Query(parameters))
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the parameter's text, if present.
    pub(crate) fn named(&self, key: &str) -> Option<&str> {
        self.all(key).first().map(String::as_str)
    }

    /// Returns the parameter's text, empty if absent.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.named(key).unwrap_or_default()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        !self.text(key).is_empty()
    }

    /// Returns a boolean parameter, if present. Any value except an explicit false counts as true.
    pub(crate) fn switch(&self, key: &str) -> Option<bool> {
        self.named(key).map(|text| text != "0" && !text.eq_ignore_ascii_case("false"))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.switch(key).unwrap_or_default()
    }

    /// Returns an integer parameter, if present.
    pub(crate) fn number(&self, key: &str) -> ApiResult<Option<i64>> {
        let Some(text) = self.named(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|error: ParseIntError| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quoted(text)))
        })
    }
}

/// Decodes `%41` to `A`. Returns `None` if the escapes are invalid or the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            bytes.push(high << 4 | low);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
