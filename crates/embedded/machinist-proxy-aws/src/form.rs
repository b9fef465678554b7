//! The form of a request: the parameters of the Query API.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The parameters of a request by name.
pub(crate) type Parameters = BTreeMap<String, String>;

/// All characters but those that RFC 3986 calls unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parses a body. `None` if it is not UTF-8. Of a repeated name, the last value counts.
pub(crate) fn parse(body: &[u8]) -> Option<Parameters> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8().ok().map(|text| text.into_owned())
    };
    let text = std::str::from_utf8(body).ok()?;
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Renders parameters as a body.
pub(crate) fn render(parameters: &Parameters) -> String {
    let mut body = String::new();
    for (name, value) in parameters {
        if !body.is_empty() {
            body.push('&');
        }
        body.extend(utf8_percent_encode(name, ESCAPED));
        body.push('=');
        body.extend(utf8_percent_encode(value, ESCAPED));
    }
    body
}

/// The values of a list: `InstanceId.1`, `InstanceId.2` and so on.
pub(crate) fn list<'a>(parameters: &'a Parameters, name: &str) -> Vec<&'a str> {
    let value = |number: usize| parameters.get(&format!("{name}.{number}")).map(String::as_str);
    (1..).map_while(value).collect()
}

/// Replaces a list.
pub(crate) fn set_list(parameters: &mut Parameters, name: &str, values: &[String]) {
    let beginning = format!("{name}.");
    parameters.retain(|name, _| !name.starts_with(&beginning));
    for (number, value) in (1..).zip(values) {
        parameters.insert(format!("{name}.{number}"), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_both_clients_are_the_same() {
        // The Python client writes + for a space, our driver %20.
        let python = parse(b"Action=RunInstances&Tag.1.Value=a+b%2Fc&Empty=").expect("a form");
        assert_eq!(python, parse(b"Tag.1.Value=a%20b%2Fc&Empty&Action=RunInstances").expect("a form"));
        assert_eq!(parse(render(&python).as_bytes()), Some(python));
        assert_eq!(parse(b"a=%ff"), None);
    }

    #[test]
    fn a_list_is_read_and_replaced() {
        let mut parameters = parse(b"Id.1=a&Id.2=b&Id.4=d&Identity=x").expect("a form");
        assert_eq!(list(&parameters, "Id"), ["a", "b"]);
        set_list(&mut parameters, "Id", &["e".to_owned()]);
        assert_eq!(render(&parameters), "Id.1=e&Identity=x");
    }
}
