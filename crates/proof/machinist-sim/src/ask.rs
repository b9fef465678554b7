//! A request of a process under test, parsed as far as the invariants need.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use kube::client::Body;
use serde_json::Value;

use crate::actor::{Side, TestedProcess};

/// A request with its body read.
#[derive(Debug)]
pub struct WholeRequest {
    /// Method, path, query, headers.
    pub parts: http::request::Parts,
    /// The body.
    pub body: Bytes,
    /// The object or list that the request names.
    pub about: About,
}

/// The object or list that a request names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// `plural.group`, as the embedded server names its tables; empty for paths without a resource.
    pub table: String,
    /// The namespace; empty for cluster-wide requests.
    pub namespace: String,
    /// Name of the object; empty for lists. For a POST, the name in the body.
    pub name: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
}

impl About {
    /// Parses a path of an API server.
    pub fn parse(path: &str) -> Self {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let group = match segments.next() {
            Some("api") => "",
            Some("apis") => segments.next().unwrap_or_default(),
            _ => return Self::default(),
        };
        let _version = segments.next();
        let mut rest: Vec<&str> = segments.collect();
        let mut about = Self::default();
        // `namespaces/NAME/PLURAL`, but not the Namespace object itself.
        if let [first, namespace, _, ..] = rest.as_slice()
            && *first == "namespaces"
        {
            about.namespace = (*namespace).to_owned();
            rest.drain(..2);
        }
        let mut rest = rest.into_iter();
        let plural = rest.next().unwrap_or_default();
        about.table = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        about.name = rest.next().unwrap_or_default().to_owned();
        about.subresource = rest.next().unwrap_or_default().to_owned();
        about
    }

    /// `namespace/name`, or `name`, as the embedded server keys its objects.
    pub fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = self.table.split('.').next().unwrap_or_default();
        write!(f, "{plural}/{}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        Ok(())
    }
}

impl WholeRequest {
    /// Reads the body of a request.
    pub async fn read(request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        // Bodies of our own clients are bytes in memory, so reading them cannot fail.
        let body = body.collect_bytes().await.unwrap_or_default();
        let mut about = About::parse(parts.uri.path());
        if parts.method == Method::POST && about.name.is_empty() {
            let value: Value = serde_json::from_slice(&body).unwrap_or_default();
            about.name =
                value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        }
        Self { parts, body, about }
    }

    /// Builds the same request again.
    pub fn again(&self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.to_vec()));
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = self.parts.headers.clone();
        request
    }

    /// Whether the request changes something.
    pub fn is_write(&self) -> bool {
        !matches!(self.parts.method, Method::GET | Method::HEAD)
    }

    /// Whether the request evicts a pod.
    pub fn is_eviction(&self) -> bool {
        self.parts.method == Method::POST && self.about.subresource == "eviction"
    }

    /// Whether the request opens a watch.
    pub fn is_watch(&self) -> bool {
        let query = self.parts.uri.query().unwrap_or_default();
        query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
    }

    /// Whether the request is a list.
    pub fn is_list(&self) -> bool {
        !self.is_write() && !self.is_watch() && self.about.name.is_empty()
    }

    /// The body as JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The verb of the request, for traces.
    pub fn verb(&self) -> &'static str {
        match (&self.parts.method, self.is_watch(), self.is_list()) {
            (_, true, _) => "watch",
            (_, _, true) => "list",
            (&Method::GET, ..) => "get",
            (&Method::POST, ..) => "post",
            (&Method::PUT, ..) => "put",
            (&Method::PATCH, ..) => "patch",
            (&Method::DELETE, ..) => "delete",
            _ => "other",
        }
    }
}

/// A write in flight, with the revisions that its sender had seen when it sent the write.
#[derive(Debug, Clone)]
pub struct WriteInFlight {
    /// Sequence number of the write in the run.
    pub number: u64,
    /// The process that sent the write.
    pub process: TestedProcess,
    /// The server that receives the write.
    pub side: Side,
    /// The HTTP method.
    pub method: Method,
    /// The object that the write names.
    pub about: About,
    /// When the write was sent.
    pub at: Timestamp,
    /// The newest revisions that the sender had seen.
    pub observed: SeenRevisions,
}

/// The newest revisions that a process has seen: of whole tables by lists and watches, of single
/// objects by gets and answers.
#[derive(Debug, Clone, Default)]
pub struct SeenRevisions {
    tables: BTreeMap<(Side, String), u64>,
    objects: BTreeMap<(Side, String, String), u64>,
}

impl SeenRevisions {
    /// Records that the process has seen a table up to that revision.
    pub fn table(&mut self, side: Side, table: &str, revision: u64) {
        let seen = self.tables.entry((side, table.to_owned())).or_default();
        *seen = (*seen).max(revision);
    }

    /// The newest revision of a table that the process has seen by a list or a watch.
    pub fn table_seen(&self, side: Side, table: &str) -> u64 {
        self.tables.get(&(side, table.to_owned())).copied().unwrap_or(0)
    }

    /// Records that the process has seen an object at that revision.
    pub fn object(&mut self, side: Side, about: &About, revision: u64) {
        let seen = self.objects.entry((side, about.table.clone(), about.key())).or_default();
        *seen = (*seen).max(revision);
    }
}

impl WriteInFlight {
    /// The newest revision of an object that the sender had seen, by a watch or a direct read; 0
    /// for none.
    pub fn had_seen(&self, side: Side, table: &str, key: &str) -> u64 {
        let watched = self.observed.tables.get(&(side, table.to_owned()));
        let looked = self.observed.objects.get(&(side, table.to_owned(), key.to_owned()));
        watched.max(looked).copied().unwrap_or(0)
    }

    /// Whether the write counts against the budget. Events, writes about pods (evictions) and
    /// Leases have no budget.
    pub fn is_budgeted(&self) -> bool {
        let table = self.about.table.as_str();
        !table.starts_with("events") && table != "pods" && table != "leases.coordination.k8s.io"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_into_their_parts() {
        let about = |table: &str, namespace: &str, name: &str, subresource: &str| About {
            table: table.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        };
        for (path, expected) in [
            ("/api/v1/nodes", about("nodes", "", "", "")),
            ("/api/v1/nodes/n/status", about("nodes", "", "n", "status")),
            ("/api/v1/namespaces/kube-system", about("namespaces", "", "kube-system", "")),
            ("/api/v1/namespaces/a/pods/p/eviction", about("pods", "a", "p", "eviction")),
            (
                "/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines",
                about("machines.machine.sapcloud.io", "a", "", ""),
            ),
            ("/version", About::default()),
        ] {
            assert_eq!(About::parse(path), expected, "{path}");
        }
    }
}
