//! Parses the answers of an API server: pages of a list, lines of a watch, and objects that may be
//! unreadable.

use std::sync::Arc;

use futures::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::WatchNote;
use crate::store::{Entry, ObjectKey, Unreadable};

/// Longest line of a watch. An object has at most 1.5 MiB in etcd, so a longer line is not from an
/// API server.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Turns JSON into entries.
pub(super) struct Reader<K, P> {
    pub(super) parse: P,
    pub(super) kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Resource + DeserializeOwned, P> Reader<K, P> {
    pub(super) fn read<F>(&self, raw: &RawValue) -> Result<(ObjectKey, Entry<F>), Box<Unparsed>>
    where
        P: Fn(K) -> F,
    {
        let object: K =
            serde_json::from_str(raw.get()).map_err(|error| Unparsed::of(raw, &error.to_string()))?;
        let metadata = object.meta();
        let (key, uid, resource_version) = identity(metadata).ok_or_else(|| {
            Unparsed::of(raw, "the metadata lacks a name, a UID or a numeric resourceVersion")
        })?;
        let deleting = metadata.deletion_timestamp.is_some();
        Ok((key, Entry { uid, resource_version, deleting, facts: Arc::new((self.parse)(object)) }))
    }
}

/// An object that cannot be parsed, with its key and resourceVersion if its metadata can be parsed.
pub(super) struct Unparsed {
    pub(super) place: Option<(ObjectKey, u64, Unreadable)>,
    pub(super) error: String,
}

impl Unparsed {
    fn of(raw: &RawValue, error: &str) -> Box<Self> {
        let place = metadata_of(raw).and_then(|metadata| {
            let (key, _, resource_version) = identity(&metadata)?;
            Some((key, resource_version, Unreadable::of(&metadata)))
        });
        Box::new(Self { place, error: without_quotes(error) })
    }

    pub(super) fn into_note(self) -> WatchNote {
        WatchNote::Undecodable { key: self.place.map(|(key, ..)| key), error: self.error }
    }
}

#[derive(Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(borrow)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

impl Page<'_> {
    /// Returns the resourceVersion of the list.
    pub(super) fn resource_version(&self) -> Result<u64, String> {
        let parsed = parse_rv(self.metadata.resource_version.as_deref());
        parsed.ok_or_else(|| "the list has no numeric resourceVersion".to_owned())
    }

    /// Returns the token of the next page; `None` after the last one.
    pub(super) fn next_page(&self) -> Option<&str> {
        self.metadata.continue_.as_deref().filter(|token| !token.is_empty())
    }
}

#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

pub(super) fn metadata_of(raw: &RawValue) -> Option<ObjectMeta> {
    #[derive(Deserialize)]
    struct OnlyMetadata {
        metadata: ObjectMeta,
    }
    serde_json::from_str::<OnlyMetadata>(raw.get()).ok().map(|object| object.metadata)
}

pub(super) fn identity(metadata: &ObjectMeta) -> Option<(ObjectKey, String, u64)> {
    let key = ObjectKey::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone()?);
    Some((key, metadata.uid.clone()?, parse_rv(metadata.resource_version.as_deref())?))
}

pub(super) fn parse_rv(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// Replaces each quoted text in a parser's message by `"..."`, because the quoted content may be
/// secret.
pub(super) fn without_quotes(message: &str) -> String {
    // Rust quotes a quote within a text as `\"`.
    let message = message.replace("\\\"", "");
    let parts = message.split('"').enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { "\"...\"" } else { part }).collect()
}

pub(super) enum Line {
    Whole,
    /// The stream has ended. An unfinished line is dropped.
    End,
}

/// Reads up to the next line end into `line`.
pub(super) async fn read_line(
    stream: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> std::io::Result<Line> {
    loop {
        let chunk = stream.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(Line::End);
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(chunk.len(), |end| end + 1);
        line.extend_from_slice(&chunk[..taken]);
        stream.consume_unpin(taken);
        if end.is_some() {
            return Ok(Line::Whole);
        }
        if MAX_LINE_BYTES < line.len() {
            return Err(std::io::Error::other(
                "a line of the watch is longer than the maximum size of an object",
            ));
        }
    }
}
