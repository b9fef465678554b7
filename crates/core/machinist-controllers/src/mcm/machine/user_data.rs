//! Renders the user data of an instance: the Secret's template with the Machine's name and token.

use machinist_instance::UserData;
use machinist_plan::mcm::facts::{TOKEN_PLACEHOLDER, TOKEN_PLACEHOLDER_ENCODED};

const NAME_PLACEHOLDER: &str = "<<MACHINE_NAME>>";
const NAME_PLACEHOLDER_ENCODED: &str = "%3C%3CMACHINE_NAME%3E%3E";

/// Replaces the placeholders of name and token. The plain form is replaced if it is present,
/// otherwise the URL-encoded one. An absent placeholder is not an error. A template that is not
/// UTF-8 text stays unchanged.
pub(crate) fn render(template: &[u8], machine: &str, token: Option<&str>) -> UserData {
    let Ok(text) = std::str::from_utf8(template) else { return UserData::new(template) };
    let text = put(text, NAME_PLACEHOLDER, NAME_PLACEHOLDER_ENCODED, machine);
    match token {
        None => UserData::new(text),
        Some(token) => UserData::new(put(&text, TOKEN_PLACEHOLDER, TOKEN_PLACEHOLDER_ENCODED, token)),
    }
}

fn put(text: &str, plain: &str, encoded: &str, value: &str) -> String {
    if text.contains(plain) { text.replace(plain, value) } else { text.replace(encoded, &url_encode(value)) }
}

/// Escapes like a URL query, as Go MCM does. Names and tokens have few characters that need
/// escaping.
fn url_encode(value: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    value.bytes().map(|b| if keeps(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str) -> String {
        let data = render(template.as_bytes(), "m-1", Some("abcdef.0123456789abcdef"));
        String::from_utf8(data.expose().to_vec()).expect("rendered text is text")
    }

    #[test]
    fn t_16_plain_and_encoded_placeholders_are_replaced() {
        assert_eq!(
            rendered("<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>> <<MACHINE_NAME>>"),
            "m-1 abcdef.0123456789abcdef m-1"
        );
        assert_eq!(rendered("t=%3C%3CBOOTSTRAP_TOKEN%3E%3E"), "t=abcdef.0123456789abcdef");
        assert_eq!(rendered("nothing to put in"), "nothing to put in");
    }
}
