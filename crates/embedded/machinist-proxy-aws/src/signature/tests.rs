use http::HeaderValue;

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A request that botocore 1.44 signed.
struct Sample {
    body: &'static str,
    headers: Vec<(&'static str, String)>,
}

fn sample() -> Sample {
    let authorization = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261129/eu-west-1/ec2/aws4_request, \
                         SignedHeaders=content-type;host;x-amz-date, \
                         Signature=b6027ecf2b6c990a7fbc6759beb7990308350bdf8b89691d1a0e325776f477d7";
    let headers = [
        ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
        ("host", "ec2.eu-west-1.amazonaws.com"),
        (DATE, "20261129T183005Z"),
        ("authorization", authorization),
    ];
    let headers = headers.map(|(name, value)| (name, value.to_owned())).into();
    Sample { body: "Action=DescribeInstances&Version=2016-11-15", headers }
}

/// A signed request with temporary keys and a path.
fn temporary_sample() -> Sample {
    let authorization = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261129/cn-north-1/ec2/aws4_request, \
                         SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, \
                         Signature=f28ebf598020c762d2d377db755f861753ed59f5cc938edf8843704f551e46cf";
    let mut sample = sample();
    sample.set("host", "127.0.0.1:5000").set("authorization", authorization);
    sample.set(SESSION_TOKEN, "SESSION/token+=");
    Sample { body: "Action=DescribeInstances&Version=2016-11-15&X=%C3%BC", ..sample }
}

impl Sample {
    fn set(&mut self, name: &'static str, value: &str) -> &mut Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn change(&mut self, name: &'static str, from: &str, to: &str) -> &mut Self {
        let (_, value) = self.headers.iter().find(|(other, _)| *other == name).expect("a header");
        let value = value.replace(from, to);
        self.set(name, &value)
    }

    /// The code of the refusal, if the request is refused.
    fn checked(&self, keys: &Keys, path: &str, at: &str) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        let signed =
            Signed { method: &Method::POST, path, query: "", headers: &headers, body: self.body.as_bytes() };
        let claim = Claim::of(&headers).map_err(|refusal| refusal.code)?.expect("a signature");
        keys.check(&claim, &signed, at.parse().expect("a time")).map_err(|refusal| refusal.code)
    }

    fn checked_now(&self) -> Result<(), String> {
        self.checked(&keys(SECRET, None), "/", "2026-11-29T18:31:00Z")
    }
}

fn keys(secret: &str, session: Option<Session>) -> Keys {
    let mut keys = Keys::default();
    keys.set("AKIDEXAMPLE", Secret { text: secret.to_owned(), session });
    keys
}

fn refused(code: &str) -> Result<(), String> {
    Err(code.to_owned())
}

#[test]
fn a_signature_of_the_python_client_is_accepted() {
    assert_eq!(sample().checked_now(), Ok(()));
}

#[test]
fn each_signed_part_changes_the_signature() {
    let wrong = refused("SignatureDoesNotMatch");
    assert_eq!(sample().set("host", "ec2.eu-west-2.amazonaws.com").checked_now(), wrong);
    assert_eq!(sample().change("authorization", "eu-west-1", "eu-west-2").checked_now(), wrong);
    assert_eq!(sample().change("authorization", "=b6", "=b7").checked_now(), wrong);
    assert_eq!(sample().set(DATE, "20261129T183006Z").checked_now(), wrong);
    let body = "Action=DescribeInstances&Version=2016-11-16";
    assert_eq!(Sample { body, ..sample() }.checked_now(), wrong);
    let at = "2026-11-29T18:31:00Z";
    assert_eq!(sample().checked(&keys("another secret", None), "/", at), wrong);
    assert_eq!(sample().checked(&keys(SECRET, None), "/base", at), wrong);
}

#[test]
fn a_signature_is_valid_for_15_minutes() {
    let keys = keys(SECRET, None);
    for (at, expected) in [
        ("2026-11-29T18:15:05Z", Ok(())),
        ("2026-11-29T18:15:04Z", refused("RequestExpired")),
        ("2026-11-29T18:45:05Z", Ok(())),
        ("2026-11-29T18:45:06Z", refused("RequestExpired")),
    ] {
        assert_eq!(sample().checked(&keys, "/", at), expected, "{at}");
    }
}

#[test]
fn an_unknown_key_is_refused_in_the_words_of_the_service() {
    let mut keys = keys(SECRET, None);
    assert!(keys.remove("AKIDEXAMPLE") && !keys.remove("AKIDEXAMPLE"));
    let at = "2026-11-29T18:31:00Z";
    assert_eq!(sample().checked(&keys, "/", at), refused("AuthFailure"));
    let mut of_sts = sample();
    of_sts.change("authorization", "/ec2/", "/sts/");
    assert_eq!(of_sts.checked(&keys, "/", at), refused("InvalidClientTokenId"));
}

#[test]
fn a_header_of_another_form_is_incomplete() {
    let incomplete = refused("IncompleteSignature");
    assert_eq!(sample().change("authorization", "AWS4-HMAC-SHA256", "Basic").checked_now(), incomplete);
    assert_eq!(sample().change("authorization", "/aws4_request", "").checked_now(), incomplete);
    assert_eq!(sample().change("authorization", ";host", "").checked_now(), incomplete);
    assert_eq!(sample().change("authorization", ";host", ";host;x-other").checked_now(), incomplete);
    assert_eq!(sample().change("authorization", "477d7", "477d").checked_now(), incomplete);
    assert_eq!(sample().set(DATE, "20261130T183005Z").checked_now(), incomplete);
    assert_eq!(sample().set(DATE, "20261129T18").checked_now(), incomplete);
}

#[test]
fn temporary_keys_need_their_token_and_expire() {
    let session = |expires: &str| {
        let expires = expires.parse().expect("a time");
        keys(SECRET, Some(Session { token: "SESSION/token+=".to_owned(), expires }))
    };
    let (valid, at) = (session("2026-11-29T18:32:00Z"), "2026-11-29T18:31:00Z");
    assert_eq!(temporary_sample().checked(&valid, "/base/", at), Ok(()));
    let mut another = temporary_sample();
    another.set(SESSION_TOKEN, "another");
    assert_eq!(another.checked(&valid, "/base/", at), refused("InvalidClientTokenId"));
    assert_eq!(sample().checked(&valid, "/", at), refused("InvalidClientTokenId"));
    let over = session("2026-11-29T18:31:00Z");
    assert_eq!(temporary_sample().checked(&over, "/base/", at), refused("RequestExpired"));
}

#[test]
fn the_pairs_of_a_query_are_sorted() {
    assert_eq!(canonical_query("b=2&a=%20&b=1&c"), "a=%20&b=1&b=2&c=");
}
