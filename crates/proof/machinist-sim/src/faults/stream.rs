//! Watches that are delivered late or end early. The order is kept, and no line within a stream is
//! lost: a real server may do all of this.

use std::sync::Arc;

use http_body_util::{BodyExt, StreamBody};
use serde::Deserialize;
use tokio::time::Instant;

use super::answer::AnswerBody;
use super::plan::LineFate;
use super::wire::Link;

/// The same stream, with faults.
pub(super) fn disturbed(body: AnswerBody, link: Arc<Link>, table: String) -> AnswerBody {
    let opened = Instant::now();
    let frames = futures::stream::unfold((body, link, table), move |(mut body, link, table)| async move {
        let process = link.life.process;
        let plan = &link.lab.plan;
        let frame = tokio::select! {
            biased;
            () = plan.disconnected(process, link.side) => return None,
            frame = body.frame() => frame?,
        };
        while let Some(until) = plan.silence(process, link.side, &table, opened) {
            tokio::time::sleep_until(until).await;
        }
        link.life.while_alive().await;
        match link.lab.plan.line(process, &table) {
            LineFate::Deliver => {}
            LineFate::Hold(by) => {
                link.lab.history.note(format!("fault P1: {process} waits {by:?} for a line about {table}"));
                tokio::time::sleep(by).await;
                link.life.while_alive().await;
            }
            LineFate::Close(by) => {
                link.lab.history.note(format!("fault P4: {process} loses its watch of {table} for {by:?}"));
                link.close(&table, by);
                return None;
            }
        }
        let line = frame.as_ref().ok().and_then(|frame| frame.data_ref());
        if let Some(revision) = line.and_then(|line| revision_of_event(line)) {
            link.life.saw(|observed| observed.table(link.side, &table, revision));
        }
        Some((frame, (body, link, table)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The revision of the object in a line of a watch. The embedded server sends one line per frame.
fn revision_of_event(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Event {
        object: Object,
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    serde_json::from_slice::<Event>(line).ok()?.object.metadata.resource_version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_of_a_line_is_that_of_its_object() {
        let line = br#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"17"},"spec":{}}}"#;
        assert_eq!(revision_of_event(line), Some(17));
        assert_eq!(revision_of_event(br#"{"type":"ERROR","object":{"code":410}}"#), None);
    }
}
