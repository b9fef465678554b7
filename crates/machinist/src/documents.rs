//! Objects in YAML files, each with the place where it was written, so that an error can name it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use machinist_api::manifest::{ManifestObject, parse_manifest};

/// The namespace of objects that name none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// An object, and where it was written.
#[derive(Debug)]
pub(crate) struct Written {
    /// Which file, as errors name it.
    pub source: Arc<str>,
    pub object: ManifestObject,
}

impl Written {
    /// Where it is written, its kind and its name.
    pub(crate) fn title(&self) -> String {
        format!("{}: {}: {}", self.source, self.object.place, self.label())
    }

    /// Kind and name.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.object.kind, self.object.name)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}

/// Adds the objects of a file.
///
/// # Errors
/// Names the file, the document and the field.
pub(crate) fn append_file(objects: &mut Vec<Written>, source: &str, file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{source}: cannot be read"))?;
    let before = objects.len();
    append(objects, source, &text)?;
    if objects.len() == before {
        bail!("{source}: expected at least one object, found none");
    }
    Ok(())
}

/// Adds the objects of a text.
///
/// # Errors
/// As above.
pub(crate) fn append(objects: &mut Vec<Written>, source: &str, text: &str) -> anyhow::Result<()> {
    let source: Arc<str> = source.into();
    let found = parse_manifest(text).with_context(|| source.to_string())?;
    objects.extend(found.into_iter().map(|object| Written { source: source.clone(), object }));
    Ok(())
}

/// Refuses an object that is written twice: which of the two was meant is unknown.
///
/// # Errors
/// Names both.
pub(crate) fn each_once(objects: &[Written]) -> anyhow::Result<()> {
    let mut seen: BTreeMap<_, &Written> = BTreeMap::new();
    for it in objects {
        // The same object may be written in two versions of its group.
        let (group, _) = it.object.api_version.split_once('/').unwrap_or(("", ""));
        let key = (group, it.object.kind.as_str(), it.namespace(), it.object.name.as_str());
        if let Some(first) = seen.insert(key, it) {
            bail!(
                "{}: metadata.name: expected an object that is not there yet, but {}, {} has the same kind, namespace and name",
                it.title(),
                first.source,
                first.object.place,
            );
        }
    }
    Ok(())
}

/// A refusal in the API server's words. The request is left out: it may be a Secret.
pub(crate) fn refusal(it: &Written, error: kube::Error) -> anyhow::Error {
    let title = it.title();
    match error {
        kube::Error::Api(status) => anyhow::anyhow!("{title}: the API server refuses it: {}", status.message),
        error => anyhow::Error::new(error).context(format!("{title}: no answer from the API server")),
    }
}
