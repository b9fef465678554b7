//! Signature Version 4 of AWS for the request of a form. Pure functions.
//!
//! The crate `aws-sigv4` is not used. Its first build takes 85 s of processor time on the build
//! machines, and it adds second versions of the crates for hashes. `ring`, which TLS needs anyway,
//! has both functions that a signature consists of. The tests compare with signatures of botocore.

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use ring::{digest, hmac};

use super::call::Service;
use crate::secret::Keys;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// The content type of a form.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// A request that is signed: always a POST without a query.
pub(crate) struct Signed<'a> {
    pub(crate) service: Service,
    pub(crate) region: &'a str,
    /// Host and port, as the header `Host` has them.
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
    /// The time of the cloud. Signatures are valid for some minutes.
    pub(crate) at: Timestamp,
}

impl Signed<'_> {
    /// The headers of the request, with its signature. Secret values are marked as sensitive.
    /// `None` if a value has characters that a header must not have.
    pub(crate) fn headers(&self, keys: &Keys) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(FORM));
        headers.insert(HOST, HeaderValue::from_str(self.host).ok()?);
        let time = self.at.strftime("%Y%m%dT%H%M%SZ").to_string();
        headers.insert(DATE, HeaderValue::from_str(&time).ok()?);
        if let Some(token) = keys.session_token() {
            headers.insert(TOKEN, secret_value(token)?);
        }
        let names = signed_names(&headers);
        let scope = format!("{}/{}/{}/aws4_request", &time[..8], self.region, self.service.name());
        let request = hex(digest::digest(&digest::SHA256, self.canonical(&headers, &names)?.as_bytes()));
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{request}");
        let signature = hex(hmac::sign(&self.signing_key(keys, &time[..8]), text.as_bytes()));
        let authorization = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            keys.access_key_id()
        );
        headers.insert(AUTHORIZATION, secret_value(&authorization)?);
        Some(headers)
    }

    /// The request in the form that both sides hash.
    fn canonical(&self, headers: &HeaderMap, names: &str) -> Option<String> {
        let mut lines = String::new();
        for name in names.split(';') {
            let value = headers.get(name)?.to_str().ok()?;
            lines.push_str(&format!("{name}:{}\n", value.trim()));
        }
        let body = hex(digest::digest(&digest::SHA256, self.body));
        Some(format!("POST\n{}\n\n{lines}\n{names}\n{body}", self.path))
    }

    fn signing_key(&self, keys: &Keys, day: &str) -> hmac::Key {
        let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{}", keys.secret_key()).as_bytes());
        [day, self.region, self.service.name(), "aws4_request"].iter().fold(first, |key, part| {
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref())
        })
    }
}

/// The names of all headers in order.
fn signed_names(headers: &HeaderMap) -> String {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names.join(";")
}

fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
