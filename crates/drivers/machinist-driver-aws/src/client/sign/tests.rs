use super::*;

/// The example keys of the documentation of AWS.
fn keys(session_token: Option<&str>) -> Keys {
    let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned();
    Keys::new("AKIDEXAMPLE".to_owned(), secret, session_token.map(str::to_owned))
}

fn authorization(region: &str, host: &str, path: &str, body: &str, token: Option<&str>) -> String {
    let at = "2026-11-29T18:30:05Z".parse().expect("a time");
    let signed = Signed { service: Service::Ec2, region, host, path, body: body.as_bytes(), at };
    let headers = signed.headers(&keys(token)).expect("valid headers");
    assert_eq!(headers[DATE], "20261129T183005Z");
    assert!(headers[AUTHORIZATION].is_sensitive());
    headers[AUTHORIZATION].to_str().expect("text").to_owned()
}

/// botocore 1.44 computed both signatures.
#[test]
fn signatures_are_those_of_the_python_client() {
    let plain = authorization(
        "eu-west-1",
        "ec2.eu-west-1.amazonaws.com",
        "/",
        "Action=DescribeInstances&Version=2016-11-15",
        None,
    );
    let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261129/eu-west-1/ec2/aws4_request, \
                    SignedHeaders=content-type;host;x-amz-date, \
                    Signature=b6027ecf2b6c990a7fbc6759beb7990308350bdf8b89691d1a0e325776f477d7";
    assert_eq!(plain, expected);
    let body = "Action=DescribeInstances&Version=2016-11-15&X=%C3%BC";
    let temporary = authorization("cn-north-1", "127.0.0.1:5000", "/base/", body, Some("SESSION/token+="));
    let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261129/cn-north-1/ec2/aws4_request, \
                    SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, \
                    Signature=f28ebf598020c762d2d377db755f861753ed59f5cc938edf8843704f551e46cf";
    assert_eq!(temporary, expected);
}

#[test]
fn a_key_with_a_line_break_is_not_sent() {
    let at = "2026-11-29T18:30:05Z".parse().expect("a time");
    let signed = Signed { service: Service::Ec2, region: "r", host: "h", path: "/", body: b"", at };
    assert!(signed.headers(&Keys::new("a\nb".to_owned(), String::new(), None)).is_none());
}
