//! Reads the audit log of kube-apiserver while it grows.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{AnsweredRequest, Program, with_subresource};

/// A growing file of `audit.k8s.io/v1` events, one JSON object per line.
///
/// The server writes a line before it sends the answer (`--audit-log-mode=blocking`), so a client
/// that has an answer finds its line.
#[derive(Debug)]
pub(crate) struct AuditLog {
    path: PathBuf,
    file: File,
    /// The beginning of a line that is not complete yet.
    unfinished: Vec<u8>,
}

impl AuditLog {
    /// Opens a log at its beginning.
    ///
    /// # Errors
    /// When the log cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, unfinished: Vec::new() })
    }

    /// The requests written since the last call.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is not an audit event.
    pub(crate) fn take(&mut self) -> Result<Vec<AnsweredRequest>> {
        self.file
            .read_to_end(&mut self.unfinished)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        let Some(end) = self.unfinished.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.unfinished.split_off(end + 1);
        let complete = std::mem::replace(&mut self.unfinished, rest);
        let lines = complete.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let line: Line = serde_json::from_slice(line)
                    .with_context(|| format!("{}: a line is not an audit event", self.path.display()))?;
                Ok(line.into())
            })
            .collect()
    }
}

/// The fields that are read of an `audit.k8s.io/v1` event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    request_received_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    causes: Vec<Value>,
}

impl From<Line> for AnsweredRequest {
    fn from(line: Line) -> Self {
        let about = line.object_ref.unwrap_or_default();
        let status = line.response_status.unwrap_or_default();
        Self {
            program: Program::of_user_agent(&line.user_agent),
            received: line.request_received_timestamp,
            verb: line.verb,
            resource: with_subresource(&about.resource, &about.subresource),
            name: about.name,
            code: status.code,
            has_causes: status.details.is_some_and(|details| !details.causes.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const STALE: &str = r#"{"kind":"Event","verb":"patch","userAgent":"machinist-machine-controller/0.1.0",
        "objectRef":{"resource":"machines","namespace":"default","name":"m","subresource":"status"},
        "responseStatus":{"metadata":{},"status":"Failure","reason":"Invalid","code":422},
        "requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z"}"#;

    #[test]
    fn a_line_is_read_once_it_is_complete() {
        let mut file = tempfile::NamedTempFile::new().expect("a file for the test");
        let mut log = AuditLog::open(file.path()).expect("the file exists");
        let line = STALE.replace('\n', "");
        let (begin, end) = line.split_at(100);
        file.write_all(begin.as_bytes()).expect("written");
        assert_eq!(log.take().expect("the log is readable"), []);
        file.write_all(format!("{end}\n").as_bytes()).expect("written");
        let requests = log.take().expect("a complete line");
        let [request] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!(request.to_string(), "patch machines/status m -> 422 by the machine controller");
        assert!(request.is_write() && request.is_conflict() && !request.is_commit());
        assert_eq!(log.take().expect("the log is readable"), []);
    }

    #[test]
    fn an_invalid_object_is_not_a_conflict() {
        let details = r#""code":422,"details":{"causes":[{"reason":"FieldValueInvalid"}]}"#;
        let line = STALE.replace(r#""code":422"#, details);
        let line: Line = serde_json::from_str(&line).expect("an audit event");
        assert!(!AnsweredRequest::from(line).is_conflict());
    }
}
