//! The ledger of divergences: every place where we knowingly answer differently from a real server,
//! with both values.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::case::{CaseError, read};

/// Parsed content of `corpus/divergences.yaml`.
#[derive(Debug, Clone, Default)]
pub struct DivergenceLedger {
    /// Entries in the order of the file.
    pub entries: Vec<Divergence>,
}

/// One known difference from the real server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Divergence {
    /// Short unique name of the entry.
    pub id: String,
    /// Reason for the difference.
    pub reason: String,
    /// Clients that the difference could mislead, and how.
    pub misleads: String,
    /// Date by which the entry must be reviewed.
    pub review: jiff::civil::Date,
    /// Places where the difference appears. Empty if requests to both servers cannot show it.
    #[serde(default)]
    pub at: Vec<DifferencePlace>,
}

/// A place where a known difference appears.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DifferencePlace {
    pub(crate) case: String,
    pub(crate) step: String,
    /// A JSON pointer into the answer: `/code`, `/headers/warning`, `/body/message`.
    pub(crate) pointer: String,
    /// Value in the real server's answer, if present.
    #[serde(default)]
    pub(crate) real: Option<Value>,
    /// Value in our answer, if present.
    #[serde(default)]
    pub(crate) ours: Option<Value>,
}

impl DivergenceLedger {
    /// Reads the ledger.
    ///
    /// # Errors
    /// When the file cannot be read or parsed, or contains an id twice.
    pub fn load(file: &Path) -> Result<Self, CaseError> {
        let text = read(file)?;
        Self::parse(&text).map_err(|message| CaseError::Parse { file: file.to_owned(), message })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let entries: Vec<Divergence> = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        for (index, entry) in entries.iter().enumerate() {
            if entries[..index].iter().any(|other| other.id == entry.id) {
                return Err(format!("two entries have the id {:?}", entry.id));
            }
        }
        Ok(DivergenceLedger { entries })
    }

    /// Lists the places in a case, each with the id of its entry.
    pub(crate) fn places_of<'a>(
        &'a self,
        case: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a DifferencePlace)> {
        let of_entry = |entry: &'a Divergence| entry.at.iter().map(|place| (entry.id.as_str(), place));
        self.entries.iter().flat_map(of_entry).filter(move |(_, place)| place.case == case)
    }
}
