//! The manifest of the generated type tables: which Go types become a table, and the facts about
//! their fields that the OpenAPI description of Kubernetes does not contain.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// Go packages by the short names that this manifest uses.
    pub(super) packages: BTreeMap<String, String>,
    pub(super) files: Vec<File>,
    #[serde(default)]
    pub(super) renamed: Vec<Renamed>,
    #[serde(default)]
    pub(super) facts: Vec<Facts>,
}

/// A table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    /// Types such as `core/v1.Pod`. The types of their fields follow them, except for those in an
    /// earlier table.
    pub(super) types: Vec<String>,
}

/// Types that have another name in the tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renamed {
    pub(super) reason: String,
    pub(super) types: BTreeMap<String, String>,
}

/// Facts that no description has. Fields are written as `TYPE.FIELD`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Facts {
    pub(super) reason: String,
    /// The default of a field. It replaces the published default.
    #[serde(default)]
    pub(super) defaults: BTreeMap<String, Value>,
    /// The type of a field, in the notation. It replaces the published type.
    #[serde(default)]
    pub(super) types: BTreeMap<String, String>,
}

impl Manifest {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let manifest: Self = serde_json::from_str(text).context("not in the form of a manifest")?;
        let reasons = manifest
            .renamed
            .iter()
            .map(|name| &name.reason)
            .chain(manifest.facts.iter().map(|fact| &fact.reason));
        ensure!(reasons.into_iter().all(|reason| !reason.is_empty()), "a reason is empty");
        Ok(manifest)
    }
}
