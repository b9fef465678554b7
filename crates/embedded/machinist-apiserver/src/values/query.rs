//! Query parameters of a request, decoded.

use std::collections::BTreeMap;
use std::num::{IntErrorKind, ParseIntError};

use crate::values::go::quoted;
use crate::values::status::{ApiError, ApiResult};

/// Decoded query parameters. Of a name that is given more than once the first counts, except where all are asked for.
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

    /// Everything that is given under a name.
    pub(crate) fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// The parameter's text, if it is named at all.
    pub(crate) fn named(&self, key: &str) -> Option<&str> {
        self.all(key).first().map(String::as_str)
    }

    /// The parameter's text, empty when absent.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.named(key).unwrap_or_default()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        !self.text(key).is_empty()
    }

    /// A switch, if it is named: to name it is to turn it on, unless it says that it is off.
    pub(crate) fn switch(&self, key: &str) -> Option<bool> {
        self.named(key).map(|text| text != "0" && !text.eq_ignore_ascii_case("false"))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.switch(key).unwrap_or_default()
    }

    /// A whole number, if it is named.
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

/// `%41` to `A`; `None` when the escapes are broken or do not make UTF-8.
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
