//! Bootstrap from outside, for clouds whose instances read no user data (containers).
//!
//! A caller passes the [`BootstrapData`] of one instance once, and then observes the
//! [`BootstrapStatus`]. No type holds the output of a bootstrap in full: a [`BootstrapFailure`] has
//! the end of the output, without secrets, so that it fits into a condition.

use std::fmt;
use std::time::Duration;

use crate::spec::UserData;

/// The bootstrap data of one instance. The data contains secrets, so `Debug` prints only its length
/// and the type has no comparison.
///
/// ```
/// use std::time::Duration;
/// use machinist_instance::{BootstrapData, BootstrapFormat, UserData};
///
/// let data = BootstrapData {
///     format: BootstrapFormat::CloudConfig,
///     value: UserData::new("token: s3cret"),
///     timeout: Duration::from_secs(300),
/// };
/// assert!(!format!("{data:?}").contains("s3cret"));
/// ```
#[derive(Debug, Clone)]
pub struct BootstrapData {
    /// The language of the data.
    pub format: BootstrapFormat,
    /// The data: the entry `value` of the bootstrap Secret.
    pub value: UserData,
    /// How long the bootstrap may run. The instance itself measures this time.
    pub timeout: Duration,
}

/// A language of bootstrap data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BootstrapFormat {
    /// cloud-config, in YAML.
    CloudConfig,
    /// Ignition, in JSON.
    Ignition,
}

impl BootstrapFormat {
    /// Parses the entry `format` of a bootstrap Secret. An empty text means cloud-config.
    ///
    /// ```
    /// use machinist_instance::BootstrapFormat;
    ///
    /// assert_eq!(BootstrapFormat::parse("cloud-config"), Some(BootstrapFormat::CloudConfig));
    /// assert_eq!(BootstrapFormat::parse(""), Some(BootstrapFormat::CloudConfig));
    /// assert_eq!(BootstrapFormat::parse("ignition"), Some(BootstrapFormat::Ignition));
    /// assert_eq!(BootstrapFormat::parse("bottlerocket"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "cloud-config" => Some(Self::CloudConfig),
            "ignition" => Some(Self::Ignition),
            _ => None,
        }
    }
}

/// Whether an instance can be bootstrapped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Readiness {
    /// The instance still starts. The text says which part is missing.
    Booting(String),
    /// The operating system and the container runtime run.
    Ready,
}

/// The bootstrap of one instance, as the instance shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BootstrapStatus {
    /// The progress.
    pub state: BootstrapState,
    /// The parts of the bootstrap data that the driver ignored, for example the names of
    /// cloud-config modules.
    pub ignored: Vec<String>,
}

/// The progress of a bootstrap.
///
/// ```
/// use machinist_instance::BootstrapState;
///
/// assert_eq!(BootstrapState::Running { step: 3, steps: 17 }.to_string(), "Running (3 of 17)");
/// assert_eq!(BootstrapState::NotStarted.to_string(), "Not started");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BootstrapState {
    /// No call has started the bootstrap.
    NotStarted,
    /// The bootstrap runs.
    Running {
        /// Number of the present step, from 1; 0 before the first step.
        step: u32,
        /// Number of steps.
        steps: u32,
    },
    /// All steps succeeded, and the success file exists.
    Succeeded,
    /// The bootstrap ended without success. The driver never starts it again.
    Failed(BootstrapFailure),
}

impl fmt::Display for BootstrapState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("Not started"),
            Self::Running { step, steps } => write!(f, "Running ({step} of {steps})"),
            Self::Succeeded => f.write_str("Succeeded"),
            Self::Failed(failure) => write!(f, "Failed: {}", failure.cause),
        }
    }
}

/// An instance on its way to a Node, as its cloud shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Boot {
    /// The instance boots, runs its user data, or has run the user data without an error.
    Working,
    /// The instance has a problem.
    Trouble(BootTrouble),
}

/// A problem of an instance on its way to a Node. Tokens, keys and certificates in the output are
/// replaced.
///
/// ```
/// use machinist_instance::BootTrouble;
///
/// let trouble = BootTrouble {
///     cause: "step 1 of 1 of the user data exited with code 3".to_owned(),
///     output: vec!["no space".to_owned(), "giving up".to_owned()],
///     see: "docker logs a".to_owned(),
///     is_final: false,
/// };
/// let text = "step 1 of 1 of the user data exited with code 3. The end of the output: no space | giving up. See \
///             all of it: docker logs a";
/// assert_eq!(trouble.to_string(), text);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BootTrouble {
    /// The problem, as a phrase.
    pub cause: String,
    /// The last lines of the output.
    pub output: Vec<String>,
    /// The command that shows the whole output.
    pub see: String,
    /// Whether the instance can never join.
    pub is_final: bool,
}

impl BootTrouble {
    /// Number of lines that are kept.
    pub const LINES: usize = 5;
    /// Longest line that is kept, in characters.
    pub const LINE_CHARS: usize = 200;

    /// Returns the last lines of an output without secrets.
    pub fn last_lines(output: &str) -> Vec<String> {
        let shown = |line: &str| line.trim().chars().take(Self::LINE_CHARS).collect::<String>();
        let mut lines: Vec<String> = output.lines().map(shown).filter(|line| !line.is_empty()).collect();
        lines.split_off(lines.len().saturating_sub(Self::LINES))
    }
}

impl fmt::Display for BootTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        if !self.output.is_empty() {
            write!(f, ". The end of the output: {}", self.output.join(" | "))?;
        }
        write!(f, ". See all of it: {}", self.see)
    }
}

/// Why a bootstrap failed, and the end of its output. Tokens, keys and certificates in the output
/// are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BootstrapFailure {
    /// The cause.
    pub cause: BootstrapCause,
    /// Whether kubeadm was started. If not, the instance is unchanged enough for another attempt
    /// with a new instance to be cheap; if so, it may be a member of the cluster.
    pub kubeadm_started: bool,
    /// The end of the standard output, at most [`Self::OUTPUT_BYTES`] bytes.
    pub stdout: String,
    /// The end of the standard error, at most [`Self::OUTPUT_BYTES`] bytes.
    pub stderr: String,
}

impl BootstrapFailure {
    /// Longest output of each sort. Two of them fit into the message of a condition, whose limit is
    /// 32768 bytes.
    pub const OUTPUT_BYTES: usize = 4096;
}

/// The cause of a failed bootstrap.
///
/// ```
/// use machinist_instance::BootstrapCause;
///
/// let exited = BootstrapCause::Exited { step: 3, steps: 17, code: 1 };
/// assert_eq!(exited.to_string(), "step 3 of 17 exited with code 1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BootstrapCause {
    /// A step exited with an error.
    Exited {
        /// Number of the step, from 1; 0 for the extraction of the files.
        step: u32,
        /// Number of steps.
        steps: u32,
        /// The exit code.
        code: i32,
    },
    /// All steps succeeded, but the bootstrap data did not write its success file.
    SuccessFileMissing,
    /// The bootstrap did not end within its time.
    TimedOut {
        /// Number of the step that was running.
        step: u32,
        /// Number of steps.
        steps: u32,
    },
    /// The instance restarted while the bootstrap ran.
    Interrupted,
}

impl fmt::Display for BootstrapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { step: 0, code, .. } => {
                write!(f, "the files could not be written: exit code {code}")
            }
            Self::Exited { step, steps, code } => write!(f, "step {step} of {steps} exited with code {code}"),
            Self::SuccessFileMissing => {
                f.write_str("all steps succeeded, but /run/cluster-api/bootstrap-success.complete is missing")
            }
            Self::TimedOut { step, steps } => write!(f, "timed out in step {step} of {steps}"),
            Self::Interrupted => f.write_str("the instance restarted while the bootstrap ran"),
        }
    }
}
