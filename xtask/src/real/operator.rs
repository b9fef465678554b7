//! The functions for the operator that our counterparts of clouds have over HTTP, below
//! `/_control`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Sends one request to a counterpart, by its URL. Returns the JSON of the answer.
pub(super) fn control(url: &str, method: &str, path: &str, body: &Value) -> Result<Value> {
    let host = url.trim_start_matches("http://");
    let body = body.to_string();
    let mut connection = TcpStream::connect(host).with_context(|| format!("{url} does not listen"))?;
    write!(
        connection,
        "{method} /_control{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (head, body) =
        answer.split_once("\r\n\r\n").with_context(|| format!("{url} broke the connection"))?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{method} /_control{path}: {answer}");
    Ok(serde_json::from_str(body)?)
}
