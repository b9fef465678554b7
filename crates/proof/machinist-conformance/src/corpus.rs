//! Loads the folder `conformance`: cases, recorded answers, the ledger, and the features with the
//! cases that show them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::case::{CaseError, Level, RecordedCase, load, parse};
use crate::endpoint::ExaminedServer;
use crate::ledger::DivergenceLedger;
use crate::run::{RunError, Transcript, prepare, run};
use machinist_apiserver::Server;
use machinist_apiserver::{Authorization, Config};

/// Parsed content of the folder `conformance`.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// All cases, sorted by name.
    pub cases: Vec<RecordedCase>,
    /// The known differences.
    pub ledger: DivergenceLedger,
    /// Features that clients expect of a server, with the cases that show them.
    pub features: Vec<Feature>,
    folder: PathBuf,
}

/// A feature that clients expect of a server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Short description of the feature.
    pub feature: String,
    /// Effect on clients if the feature is missing.
    pub importance: Importance,
    /// Lowest level that requires the feature.
    pub level: Level,
    /// Cases, or single steps as `case/step`, that show the feature. Empty if the feature is not
    /// served.
    #[serde(default)]
    pub shown: Vec<String>,
    /// Other test that shows the feature, if requests to both servers cannot.
    #[serde(default)]
    pub elsewhere: Option<String>,
}

/// Effect on clients if a feature is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Importance {
    /// Must: controllers or plain kubectl do not work without the feature.
    M,
    /// Should: users would miss the feature.
    S,
    /// Later: the feature may be added later.
    L,
}

impl Corpus {
    /// Reads the folder.
    ///
    /// # Errors
    /// When a file cannot be read or parsed, or when a file names an unknown case or step.
    pub fn load(folder: &Path) -> Result<Self, CaseError> {
        let features = folder.join("features.yaml");
        let corpus = Corpus {
            cases: load(&folder.join("cases"))?,
            ledger: DivergenceLedger::load(&folder.join("divergences.yaml"))?,
            features: parse(&features)?,
            folder: folder.to_owned(),
        };
        for feature in &corpus.features {
            let broken = |message| CaseError::Parse { file: features.clone(), message };
            if let Some(unknown) = feature.shown.iter().find(|case| !corpus.has(case)) {
                return Err(broken(format!(
                    "feature {:?} names {unknown:?}, which does not exist",
                    feature.feature
                )));
            }
            let is_shown = !feature.shown.is_empty() || feature.elsewhere.is_some();
            if feature.importance == Importance::M && !is_shown {
                return Err(broken(format!(
                    "feature {:?} has importance M, but no case shows it",
                    feature.feature
                )));
            }
        }
        let names = |case: &str| corpus.cases.iter().any(|known| known.name == case);
        let unknown =
            corpus.ledger.entries.iter().flat_map(|entry| &entry.at).find(|place| !names(&place.case));
        match unknown {
            Some(place) => Err(CaseError::Parse {
                file: folder.join("divergences.yaml"),
                message: format!("unknown case {:?}", place.case),
            }),
            None => Ok(corpus),
        }
    }

    /// Returns the version of the server that the answers were recorded from.
    pub fn reference(&self) -> String {
        machinist_apiserver::REFERENCE.trim().to_owned()
    }

    /// Reads the recorded answers to a case.
    ///
    /// # Errors
    /// When the file does not exist or was edited.
    pub fn golden(&self, case: &str) -> Result<Transcript, CaseError> {
        Transcript::load(&self.golden_file(case))
    }

    /// Path of the recorded answers to a case.
    pub fn golden_file(&self, case: &str) -> PathBuf {
        self.folder.join("golden").join(format!("{case}.json"))
    }

    /// Path of the recorded answers to generated sequences.
    pub fn sequences_file(&self) -> PathBuf {
        self.folder.join("generated.json")
    }

    /// Path of the CustomResourceDefinitions that cases use.
    pub fn definitions(&self) -> PathBuf {
        self.folder.join("definitions")
    }

    /// Starts an embedded server with the CustomResourceDefinitions that cases use. `made` turns
    /// the server into an endpoint.
    ///
    /// # Errors
    /// When the server rejects a definition.
    pub async fn embedded(
        &self,
        made: impl FnOnce(Server) -> ExaminedServer,
    ) -> Result<ExaminedServer, RunError> {
        let config = Config { authorization: Authorization::Rbac, ..Config::default() };
        let endpoint = made(Server::new(config));
        prepare(&endpoint, &self.definitions()).await?;
        Ok(endpoint)
    }

    /// Plays a case on a new embedded server. `made` turns the server into an endpoint.
    ///
    /// # Errors
    /// When the case cannot be played to its end.
    pub async fn replay(
        &self,
        case: &RecordedCase,
        made: impl FnOnce(Server) -> ExaminedServer,
    ) -> Result<Transcript, RunError> {
        run(&self.embedded(made).await?, case, "case-embed").await
    }

    fn has(&self, shown: &str) -> bool {
        let (case, step) = parts(shown);
        let case = self.cases.iter().find(|known| known.name == case);
        case.is_some_and(|case| {
            step.is_none_or(|step| case.steps.iter().any(|known| known.id == step && !known.setup))
        })
    }
}

/// Splits `case` or `case/step`.
pub(crate) fn parts(shown: &str) -> (&str, Option<&str>) {
    shown.split_once('/').map_or((shown, None), |(case, step)| (case, Some(step)))
}
