//! Everything that the folder `conformance` holds: cases, recorded answers, the ledger, and which feature is shown where.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::case::{Case, CaseError, Level, load, parse};
use crate::endpoint::Endpoint;
use crate::ledger::Ledger;
use crate::run::{RunError, Transcript, prepare, run};
use machinist_apiserver::Server;
use machinist_apiserver::{Authorization, Config};

/// The folder, read.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// In order of their names.
    pub cases: Vec<Case>,
    /// Where we knowingly differ.
    pub ledger: Ledger,
    /// What a server is expected to have, and where it is shown.
    pub features: Vec<Feature>,
    folder: PathBuf,
}

/// Something that clients expect of a server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// What it is.
    pub feature: String,
    /// How much depends on it.
    pub importance: Importance,
    /// The level that is not reached without it.
    pub level: Level,
    /// The cases that show it, or single steps of them as `case/step`. None when it is not served.
    #[serde(default)]
    pub shown: Vec<String>,
    /// Where else it is shown, when no request to both servers could.
    #[serde(default)]
    pub elsewhere: Option<String>,
}

/// How much depends on a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Importance {
    /// Controllers or plain kubectl do not work without it.
    M,
    /// Somebody would miss it.
    S,
    /// It may come later.
    L,
}

impl Corpus {
    /// Reads the folder.
    ///
    /// # Errors
    /// When a file cannot be read or is not what it should be, or when one names a case or a step that is not there.
    pub fn load(folder: &Path) -> Result<Self, CaseError> {
        let features = folder.join("features.yaml");
        let corpus = Corpus {
            cases: load(&folder.join("cases"))?,
            ledger: Ledger::load(&folder.join("divergences.yaml"))?,
            features: parse(&features)?,
            folder: folder.to_owned(),
        };
        for feature in &corpus.features {
            let broken = |message| CaseError::Parse { file: features.clone(), message };
            if let Some(unknown) = feature.shown.iter().find(|it| !corpus.has(it)) {
                return Err(broken(format!(
                    "{:?} is shown by {unknown:?}, which is not there",
                    feature.feature
                )));
            }
            let is_shown = !feature.shown.is_empty() || feature.elsewhere.is_some();
            if feature.importance == Importance::M && !is_shown {
                return Err(broken(format!("{:?} is a must, and nothing shows it", feature.feature)));
            }
        }
        let names = |case: &str| corpus.cases.iter().any(|it| it.name == case);
        let unknown = corpus.ledger.entries.iter().flat_map(|it| &it.at).find(|place| !names(&place.case));
        match unknown {
            Some(place) => Err(CaseError::Parse {
                file: folder.join("divergences.yaml"),
                message: format!("there is no case {:?}", place.case),
            }),
            None => Ok(corpus),
        }
    }

    /// The version of the server whose answers are recorded.
    pub fn reference(&self) -> String {
        machinist_apiserver::REFERENCE.trim().to_owned()
    }

    /// What was recorded of a case.
    ///
    /// # Errors
    /// When there is nothing, or somebody changed it.
    pub fn golden(&self, case: &str) -> Result<Transcript, CaseError> {
        Transcript::load(&self.golden_file(case))
    }

    /// Where the recorded answers of a case are kept.
    pub fn golden_file(&self, case: &str) -> PathBuf {
        self.folder.join("golden").join(format!("{case}.json"))
    }

    /// Where the answers to generated sequences are kept.
    pub fn sequences_file(&self) -> PathBuf {
        self.folder.join("generated.json")
    }

    /// The definitions that cases build on.
    pub fn definitions(&self) -> PathBuf {
        self.folder.join("definitions")
    }

    /// A new embedded server, as `made` it, on which every case can be played.
    ///
    /// # Errors
    /// When it refuses a definition that cases build on.
    pub async fn embedded(&self, made: impl FnOnce(Server) -> Endpoint) -> Result<Endpoint, RunError> {
        let config = Config { authorization: Authorization::Rbac, ..Config::default() };
        let endpoint = made(Server::new(config));
        prepare(&endpoint, &self.definitions()).await?;
        Ok(endpoint)
    }

    /// What a new embedded server, as `made` it, answers to a case.
    ///
    /// # Errors
    /// When the case cannot be played to its end.
    pub async fn replay(
        &self,
        case: &Case,
        made: impl FnOnce(Server) -> Endpoint,
    ) -> Result<Transcript, RunError> {
        run(&self.embedded(made).await?, case, "case-embed").await
    }

    fn has(&self, shown: &str) -> bool {
        let (case, step) = parts(shown);
        let case = self.cases.iter().find(|it| it.name == case);
        case.is_some_and(|it| step.is_none_or(|step| it.steps.iter().any(|it| it.id == step && !it.setup)))
    }
}

/// `case` or `case/step`.
pub(crate) fn parts(shown: &str) -> (&str, Option<&str>) {
    shown.split_once('/').map_or((shown, None), |(case, step)| (case, Some(step)))
}
