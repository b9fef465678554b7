//! The name of an object within its resource.

use std::fmt;
use std::sync::Arc;

/// Identifies an object within its resource: `namespace/name`, or `name` for cluster-scoped
/// objects. Keys are compared as text, which gives the list order of kube-apiserver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Key(name.into()) } else { Key(format!("{namespace}/{name}").into()) }
    }

    pub(crate) fn from_text(text: &str) -> Self {
        Key(text.into())
    }

    /// Namespace of the object, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// `namespace/name`, or `name` for cluster-scoped objects.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
