//! Checks Signature Version 4 of AWS. Pure functions.
//!
//! This code shares nothing with the signer of our driver, so each one tests the other. The keys
//! of a signature and its canonical request are described in AWS's documentation of signed
//! requests.

use std::collections::BTreeMap;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use ring::{digest, hmac};

use crate::refusal::{EC2, Refusal};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The last part of each scope.
const END_OF_SCOPE: &str = "aws4_request";
const DATE: &str = "x-amz-date";
const SESSION_TOKEN: &str = "x-amz-security-token";

/// AWS refuses a request that is older, or that is from further in the future.
const VALID_FOR: SignedDuration = SignedDuration::from_mins(15);

/// Number of keys that are accepted at the same time. A test run needs some dozens.
const MAX_KEYS: usize = 10_000;

/// A secret key. The type has no `Debug`, so that no log shows it.
pub(crate) struct Secret {
    pub(crate) text: String,
    /// The session, which only temporary keys have.
    pub(crate) session: Option<Session>,
}

/// The part of temporary keys that a request carries in addition to its signature.
pub(crate) struct Session {
    pub(crate) token: String,
    pub(crate) expires: Timestamp,
}

/// The keys that the proxy accepts, by access key.
#[derive(Default)]
pub(crate) struct Keys(BTreeMap<String, Secret>);

impl Keys {
    /// Accepts a key. With too many keys, forgets those that STS gave out, or else all.
    pub(crate) fn set(&mut self, access_key: &str, secret: Secret) {
        if MAX_KEYS <= self.0.len() {
            self.0.retain(|_, secret| secret.session.is_none());
        }
        if MAX_KEYS <= self.0.len() {
            self.0.clear();
        }
        self.0.insert(access_key.to_owned(), secret);
    }

    /// Refuses a key from now on.
    pub(crate) fn remove(&mut self, access_key: &str) -> bool {
        self.0.remove(access_key).is_some()
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The refusal that AWS would answer.
    pub(crate) fn check(&self, claim: &Claim, request: &Signed<'_>, now: Timestamp) -> Result<(), Refusal> {
        let of_service = |ec2: &str, other: &str, message: &str| {
            Refusal::new(if claim.service == EC2 { ec2 } else { other }, message)
        };
        let Some(secret) = self.0.get(&claim.access_key) else {
            let text = "AWS was not able to validate the provided access credentials";
            return Err(of_service("AuthFailure", "InvalidClientTokenId", text));
        };
        let at = claim.time(request.headers)?;
        if VALID_FOR < at.duration_since(now).abs() {
            return Err(of_service("RequestExpired", "SignatureDoesNotMatch", "Signature expired"));
        }
        if let Some(session) = &secret.session {
            if header(request.headers, SESSION_TOKEN).as_deref() != Some(session.token.as_str()) {
                return Err(Refusal::new("InvalidClientTokenId", "The security token is invalid"));
            }
            if session.expires <= now {
                return Err(of_service("RequestExpired", "ExpiredToken", "The security token has expired"));
            }
        }
        let text = claim.text_to_sign(request)?;
        hmac::verify(&claim.signing_key(&secret.text), text.as_bytes(), &claim.signature).map_err(|_| {
            let text = "The request signature we calculated does not match the signature you provided. \
                        Check your AWS Secret Access Key and signing method.";
            Refusal::new("SignatureDoesNotMatch", text)
        })
    }
}

/// The parts of a request that a signature covers.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// The signature that a request claims to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) access_key: String,
    day: String,
    pub(crate) region: String,
    pub(crate) service: String,
    signed_headers: Vec<String>,
    signature: Vec<u8>,
}

impl Claim {
    /// Reads the header of a request. `None` if the request has no signature.
    ///
    /// # Errors
    /// If the header has another form.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let Some(value) = header(headers, AUTHORIZATION.as_str()) else { return Ok(None) };
        Self::parse(&value).map(Some).ok_or_else(|| {
            let expected = format!(
                "Authorization: expected {ALGORITHM} Credential=KEY/DAY/REGION/SERVICE/{END_OF_SCOPE}, \
                 SignedHeaders=NAMES, Signature=HEX"
            );
            Refusal::new("IncompleteSignature", expected)
        })
    }

    fn parse(value: &str) -> Option<Self> {
        let parts: BTreeMap<&str, &str> = value
            .strip_prefix(ALGORITHM)?
            .split(',')
            .map(|part| part.trim().split_once('='))
            .collect::<Option<_>>()?;
        let mut scope = parts.get("Credential")?.split('/');
        let mut next = || scope.next().filter(|part| !part.is_empty()).map(str::to_owned);
        let (access_key, day, region, service) = (next()?, next()?, next()?, next()?);
        if next()? != END_OF_SCOPE || next().is_some() {
            return None;
        }
        let signed_headers = parts.get("SignedHeaders")?.split(';').map(str::to_owned).collect();
        let signature = from_hex(parts.get("Signature")?)?;
        Some(Self { access_key, day, region, service, signed_headers, signature })
    }

    /// When the client signed the request.
    fn time(&self, headers: &HeaderMap) -> Result<Timestamp, Refusal> {
        let expected = || {
            let text = format!("{DATE}: expected the day of the signature's scope, as 20260131T235959Z");
            Refusal::new("IncompleteSignature", text)
        };
        let text = header(headers, DATE).filter(|text| text.starts_with(&self.day)).ok_or_else(expected)?;
        let time = DateTime::strptime("%Y%m%dT%H%M%SZ", &text).map_err(|_| expected())?;
        TimeZone::UTC.to_timestamp(time).map_err(|_| expected())
    }

    fn text_to_sign(&self, request: &Signed<'_>) -> Result<String, Refusal> {
        let time = header(request.headers, DATE).unwrap_or_default();
        let scope = format!("{}/{}/{}/{END_OF_SCOPE}", self.day, self.region, self.service);
        let canonical = hex(digest::digest(&digest::SHA256, self.canonical(request)?.as_bytes()).as_ref());
        Ok(format!("{ALGORITHM}\n{time}\n{scope}\n{canonical}"))
    }

    /// The request in the form that both sides hash.
    fn canonical(&self, request: &Signed<'_>) -> Result<String, Refusal> {
        let names = &self.signed_headers;
        for required in ["host", DATE] {
            if !names.iter().any(|name| name == required) {
                let text = format!("SignedHeaders: expected also {required}");
                return Err(Refusal::new("IncompleteSignature", text));
            }
        }
        let mut lines = String::new();
        for name in names {
            let value = header(request.headers, name).ok_or_else(|| {
                let text = format!("SignedHeaders: the request has no header {name}");
                Refusal::new("IncompleteSignature", text)
            })?;
            lines.push_str(&format!("{name}:{value}\n"));
        }
        let body = hex(digest::digest(&digest::SHA256, request.body).as_ref());
        let (method, path, query) = (request.method, request.path, canonical_query(request.query));
        Ok(format!("{method}\n{path}\n{query}\n{lines}\n{}\n{body}", names.join(";")))
    }

    fn signing_key(&self, secret: &str) -> hmac::Key {
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
        for part in [self.day.as_str(), &self.region, &self.service, END_OF_SCOPE] {
            key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref());
        }
        key
    }
}

/// The pairs of a query, sorted by name and value.
fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// All values of a header, with single spaces. `None` if there is none, or one is no text.
fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut all = Vec::new();
    for value in headers.get_all(name) {
        all.push(value.to_str().ok()?.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
    }
    (!all.is_empty()).then(|| all.join(","))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let byte = |pair: &[u32]| match pair {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests;
