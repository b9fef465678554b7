//! Objects read from YAML files. Each object keeps its file and position for error messages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use machinist_api::manifest::{ManifestObject, parse_manifest};

/// Namespace of objects without `metadata.namespace`.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// An object and the file it comes from.
#[derive(Debug)]
pub(crate) struct Written {
    /// The file, as shown in error messages.
    pub source: Arc<str>,
    pub object: ManifestObject,
}

impl Written {
    /// Returns file, position, kind and name.
    pub(crate) fn title(&self) -> String {
        format!("{}: {}: {}", self.source, self.object.place, self.label())
    }

    /// Returns kind and name.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.object.kind, self.object.name)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}

/// Appends the objects of a file, after `adapt` changed its text.
///
/// # Errors
/// If the file cannot be read or an object is invalid. The error names the file, the document and
/// the field.
pub(crate) fn append_file(
    objects: &mut Vec<Written>,
    source: &str,
    file: &Path,
    adapt: impl FnOnce(&str) -> String,
) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{source}: cannot be read"))?;
    let before = objects.len();
    append(objects, source, &adapt(&text))?;
    if objects.len() == before {
        bail!("{source}: expected at least one object, found none");
    }
    Ok(())
}

/// Appends the objects of a text.
///
/// # Errors
/// If an object is invalid. The error names the source, the document and the field.
pub(crate) fn append(objects: &mut Vec<Written>, source: &str, text: &str) -> anyhow::Result<()> {
    let source: Arc<str> = source.into();
    let found = parse_manifest(text).with_context(|| source.to_string())?;
    objects.extend(found.into_iter().map(|object| Written { source: source.clone(), object }));
    Ok(())
}

/// Checks that every object occurs only once.
///
/// # Errors
/// If an object occurs twice. The error names both positions.
pub(crate) fn each_once(objects: &[Written]) -> anyhow::Result<()> {
    let mut seen: BTreeMap<_, &Written> = BTreeMap::new();
    for document in objects {
        // Two versions of one group name the same object.
        let (group, _) = document.object.api_version.split_once('/').unwrap_or(("", ""));
        let key = (group, document.object.kind.as_str(), document.namespace(), document.object.name.as_str());
        if let Some(first) = seen.insert(key, document) {
            bail!(
                "{}: metadata.name: duplicate object: {}, {} has the same kind, namespace and name. Remove one of them",
                document.title(),
                first.source,
                first.object.place,
            );
        }
    }
    Ok(())
}

/// Converts an error of the API server and keeps its message. The request is left out because it
/// may be a Secret.
pub(crate) fn refusal(document: &Written, error: kube::Error) -> anyhow::Error {
    let title = document.title();
    match error {
        kube::Error::Api(status) => {
            anyhow::anyhow!("{title}: the API server rejected the object: {}", status.message)
        }
        error => anyhow::Error::new(error).context(format!("{title}: the API server did not answer")),
    }
}
