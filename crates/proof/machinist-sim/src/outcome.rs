//! How a scenario ends.

/// Why a scenario could not continue, or what it found wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(pub String);

impl ScenarioError {
    /// Creates an error from a sentence.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl From<kube::Error> for ScenarioError {
    fn from(error: kube::Error) -> Self {
        Self(format!("the user's request failed: {error}"))
    }
}

/// The result of a scenario.
pub type Outcome = Result<(), ScenarioError>;

/// A scenario that is being played.
pub type Played<'w> = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send + 'w>>;

/// Fails the scenario if the condition is false.
pub fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if is_so { Ok(()) } else { Err(ScenarioError(otherwise())) }
}
