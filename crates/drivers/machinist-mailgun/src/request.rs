//! Requests of the API. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, header};
use machinist_instance::{Error, ErrorKind};
use machinist_mailer::Envelope;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that need no encoding in a form.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the request that sends a mail.
///
/// The sender is an address of the domain, and replies reach the person who asks: receivers reject
/// a mail whose sender is of another domain.
pub(crate) fn send(base: &str, domain: &str, key: &str, mail: &Envelope) -> Result<Request<Bytes>, Error> {
    let lines = [("requester", &mail.requester), ("subject", &mail.subject), ("messageID", &mail.message_id)];
    for (field, text) in lines {
        check_line(field, text)?;
    }
    for recipient in &mail.recipients {
        check_address("recipient", recipient)?;
    }
    check_address("requester", &mail.requester)?;
    let sender = format!("machinist@{domain}");
    let message_id = format!("<{}>", mail.message_id);
    let mut fields = vec![
        ("from", sender.as_str()),
        ("subject", mail.subject.as_str()),
        ("text", mail.text.as_str()),
        ("h:Reply-To", mail.requester.as_str()),
        ("h:Message-Id", message_id.as_str()),
        ("v:machinist-uid", mail.uid.as_str()),
        ("v:machinist-purpose", mail.purpose),
        ("o:tag", "machinist"),
    ];
    fields.extend(mail.recipients.iter().map(|recipient| ("to", recipient.as_str())));
    let encode = |text: &str| utf8_percent_encode(text, FORM).to_string();
    let body: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    request(Method::POST, format!("{base}/v3/{domain}/messages"), key)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Bytes::from(body.join("&")))
        .map_err(|_| Error::new(ErrorKind::InvalidSpec, "MAILGUN_DOMAIN: expected a domain"))
}

/// Returns the request that looks a mail up.
pub(crate) fn look_up(
    base: &str,
    domain: &str,
    key: &str,
    message_id: &str,
) -> Result<Request<Bytes>, Error> {
    let id = utf8_percent_encode(message_id, FORM);
    request(Method::GET, format!("{base}/v3/{domain}/events?limit=1&message-id={id}"), key)
        .body(Bytes::new())
        .map_err(|_| Error::new(ErrorKind::InvalidSpec, "MAILGUN_DOMAIN: expected a domain"))
}

fn request(method: Method, uri: String, key: &str) -> http::request::Builder {
    let credential = STANDARD.encode(format!("api:{key}"));
    Request::builder().method(method).uri(uri).header(header::AUTHORIZATION, format!("Basic {credential}"))
}

/// Rejects a text that would add a header to the mail.
fn check_line(field: &str, text: &str) -> Result<(), Error> {
    if text.contains(['\r', '\n']) {
        return Err(Error::new(ErrorKind::InvalidSpec, format!("{field}: expected one line")));
    }
    Ok(())
}

/// Rejects a text that is not one mail address.
///
/// # Errors
/// `InvalidSpec`, with the name of the field.
pub fn check_address(field: &str, text: &str) -> Result<(), Error> {
    check_line(field, text)?;
    let is_address = text.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && !host.is_empty() && !text.contains([',', ' ', '<', '>', ';'])
    });
    if is_address {
        return Ok(());
    }
    let text = format!("{field}: expected one mail address without a display name");
    Err(Error::new(ErrorKind::InvalidSpec, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail() -> Envelope {
        Envelope {
            message_id: "machinist.x@mail.example.com".to_owned(),
            requester: "dev@example.com".to_owned(),
            recipients: vec!["ops@example.com".to_owned()],
            subject: "[Urgent] New Cluster a & b requested".to_owned(),
            text: "Hello!\n".to_owned(),
            uid: "u".to_owned(),
            purpose: "create",
        }
    }

    #[test]
    fn a_mail_becomes_a_form() {
        let request = send("https://api", "mail.example.com", "key", &mail()).expect("a request");
        assert_eq!(request.uri(), "https://api/v3/mail.example.com/messages");
        let body = String::from_utf8(request.body().to_vec()).expect("text");
        assert!(body.contains("h%3AMessage-Id=%3Cmachinist.x%40mail.example.com%3E"), "{body}");
        assert!(body.contains("a%20%26%20b"), "{body}");
        assert!(body.ends_with("to=ops%40example.com"), "{body}");
    }

    #[test]
    fn a_text_cannot_add_a_header() {
        for (subject, requester) in
            [("a\r\nBcc: x@y", "a@b"), ("a", "a@b\nBcc: x@y"), ("a", "a@b, c@d"), ("a", "nobody")]
        {
            let mail = Envelope { subject: subject.to_owned(), requester: requester.to_owned(), ..mail() };
            let error = send("https://api", "d", "key", &mail).expect_err("rejected");
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
        }
        let mail = Envelope { message_id: "a@b>\r\nBcc: x@y".to_owned(), ..mail() };
        let error = send("https://api", "d", "key", &mail).expect_err("rejected");
        assert_eq!(error.message, "messageID: expected one line");
    }
}
