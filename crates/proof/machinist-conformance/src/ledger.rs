//! The ledger of divergences: every place in which we knowingly answer otherwise than a real server, with what each says.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::case::{CaseError, read};

/// `corpus/divergences.yaml`.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Its entries, as they are written down.
    pub entries: Vec<Divergence>,
}

/// One way in which we differ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Divergence {
    /// A short name.
    pub id: String,
    /// Why we differ.
    pub reason: String,
    /// Who could be misled by it, and how.
    pub misleads: String,
    /// When somebody has to ask again whether it must be so.
    pub review: jiff::civil::Date,
    /// Where it shows. Nowhere, when it is about something that no case can ask both servers.
    #[serde(default)]
    pub at: Vec<Place>,
}

/// Where a divergence shows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    pub(crate) case: String,
    pub(crate) step: String,
    /// A JSON pointer into the answer: `/code`, `/headers/warning`, `/body/message`.
    pub(crate) pointer: String,
    /// What the real server says there; absent where it says nothing.
    #[serde(default)]
    pub(crate) real: Option<Value>,
    /// What we say there.
    #[serde(default)]
    pub(crate) ours: Option<Value>,
}

impl Ledger {
    /// Reads the ledger.
    ///
    /// # Errors
    /// When the file cannot be read, is not a ledger, or names something twice.
    pub fn load(file: &Path) -> Result<Self, CaseError> {
        let text = read(file)?;
        Self::parse(&text).map_err(|message| CaseError::Parse { file: file.to_owned(), message })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let entries: Vec<Divergence> = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        for (index, entry) in entries.iter().enumerate() {
            if entries[..index].iter().any(|other| other.id == entry.id) {
                return Err(format!("two entries are called {:?}", entry.id));
            }
        }
        Ok(Ledger { entries })
    }

    /// The places in a case, each with the entry that it belongs to.
    pub(crate) fn places_of<'a>(&'a self, case: &'a str) -> impl Iterator<Item = (&'a str, &'a Place)> {
        let of_entry = |entry: &'a Divergence| entry.at.iter().map(|place| (entry.id.as_str(), place));
        self.entries.iter().flat_map(of_entry).filter(move |(_, place)| place.case == case)
    }
}
