//! Plays generated sequences on two servers: recorded digests, differences between the servers, and
//! the shortest sequence that still shows a difference.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::case::{CaseError, RecordedCase, Step, read};
use crate::compare::{Comparison, Difference, find, shown};
use crate::endpoint::ExaminedServer;
use crate::generate::generated;
use crate::run::{RunError, Transcript, run, unused_namespace};

/// Limit on the number of runs while a case is shortened. It suffices for a hundred steps, and ends
/// the search if a difference does not repeat.
const ATTEMPTS: usize = 150;
/// Number of shown differences per answer.
const SHOWN: usize = 12;

/// Recorded answers to generated sequences, `corpus/generated.json`. The file contains digests
/// only, because complete answers would be large.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequences {
    sequences: Vec<Sequence>,
    /// Number of steps in each sequence.
    steps: usize,
}

/// Recorded answers to one sequence.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    answers: Vec<String>,
    /// Digest of the requests. It detects that a changed generator makes other requests from the
    /// seed.
    case: String,
    seed: u64,
}

/// Number of recorded sequences, and the length of each.
const RECORDED: u64 = 20;
const STEPS: usize = 40;

impl Sequences {
    /// Plays every recorded sequence on `endpoint` and collects digests of the answers.
    ///
    /// # Errors
    /// When a sequence cannot be played.
    pub async fn ask(endpoint: &ExaminedServer) -> Result<Self, RunError> {
        let mut sequences = Vec::new();
        for seed in 1..=RECORDED {
            let case = generated(seed, STEPS);
            let answers = digests(&run(endpoint, &case, &unused_namespace()).await?);
            sequences.push(Sequence { answers, case: digest(&case.yaml()), seed });
        }
        Ok(Sequences { sequences, steps: STEPS })
    }

    /// Reads the recorded answers.
    ///
    /// # Errors
    /// When the file cannot be read, or its requests differ from those that the seeds generate now.
    pub fn load(file: &Path) -> Result<Self, CaseError> {
        let wrong = |message: String| CaseError::Parse { file: file.to_owned(), message };
        let recorded: Sequences = serde_json::from_str(&read(file)?).map_err(|e| wrong(e.to_string()))?;
        for sequence in &recorded.sequences {
            if sequence.case != digest(&generated(sequence.seed, recorded.steps).yaml()) {
                return Err(wrong(format!(
                    "seed {} generates other requests now. Record the sequences again",
                    sequence.seed
                )));
            }
        }
        Ok(recorded)
    }

    /// Renders the content of the file.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("digests serialise") + "\n"
    }

    /// Generates the recorded sequences again, each with its recorded answers.
    pub fn cases(&self) -> impl Iterator<Item = (RecordedCase, &Sequence)> {
        self.sequences.iter().map(|sequence| (generated(sequence.seed, self.steps), sequence))
    }
}

impl Sequence {
    /// Compares our answers with the recorded ones.
    pub fn compare(&self, ours: &Transcript) -> Comparison {
        let recorded = &self.answers;
        let ours = digests(ours);
        let mut comparison = Comparison { answers: recorded.len(), ..Comparison::default() };
        for index in 0..recorded.len().max(ours.len()) {
            let (real, ours) = (recorded.get(index), ours.get(index));
            if real != ours {
                let step =
                    real.or(ours).and_then(|answer| answer.split(' ').next()).unwrap_or_default().to_owned();
                let digest = |answer: Option<&String>| answer.map(|answer| json!(answer));
                comparison.differences.push(Difference {
                    step,
                    pointer: String::new(),
                    real: digest(real),
                    ours: digest(ours),
                });
            }
        }
        comparison
    }
}

/// One step with different answers from two servers.
#[derive(Debug, Clone)]
pub struct Disagreement {
    /// Id of the step.
    pub step: String,
    /// The first server's answer in canonical form.
    pub first: Value,
    /// The second server's answer in canonical form.
    pub second: Value,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}", self.step)?;
        let mut places = Vec::new();
        find(&self.step, String::new(), Some(&self.first), Some(&self.second), &mut places);
        for Difference { pointer, real, ours, .. } in places.iter().take(SHOWN) {
            let (first, second) = (shown(real.as_ref()), shown(ours.as_ref()));
            write!(f, "\n  {pointer}\n    first  {first}\n    second {second}")?;
        }
        if SHOWN < places.len() {
            write!(f, "\n  and {} more places", places.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// Finds the steps that two servers answer differently, in order. Each server plays the case in an
/// unused namespace.
///
/// # Errors
/// When a server cannot be reached. A case that stops early on one server counts as a difference.
pub async fn disagreements(
    case: &RecordedCase,
    first: &ExaminedServer,
    second: &ExaminedServer,
) -> Result<Vec<Disagreement>, RunError> {
    let outcomes = (outcome(case, first).await?, outcome(case, second).await?);
    let (first, second) = match outcomes {
        (Ok(first), Ok(second)) => (first, second),
        // Both servers stop early. The remaining steps are unknown, so this does not count as
        // agreement.
        (first, second) => {
            let text = |outcome: &Result<Transcript, (String, String)>| match outcome {
                Ok(_) => json!("continues"),
                Err((_, why)) => json!(why),
            };
            let step = [&first, &second]
                .into_iter()
                .find_map(|outcome| outcome.as_ref().err())
                .map(|(step, _)| step.clone());
            let difference =
                Disagreement { step: step.unwrap_or_default(), first: text(&first), second: text(&second) };
            return Ok(vec![difference]);
        }
    };
    let pairs = first.answers().iter().zip(second.answers());
    let differing = pairs.filter_map(|(first, second)| {
        let (first, second) = (without_prose(first), without_prose(second));
        let step = first["step"].as_str().unwrap_or_default().to_owned();
        (first != second).then_some(Disagreement { step, first, second })
    });
    Ok(differing.collect())
}

/// Renders each answer as one line: step, code, reason of a rejection, and a digest of the whole
/// answer. Complete answers of sequences would be too large for a golden file. The digest shows
/// which step differs, and [`disagreements`] shows how.
fn digests(transcript: &Transcript) -> Vec<String> {
    let line = |answer: &Value| {
        let comparable = without_prose(answer);
        let mut words =
            vec![answer["step"].as_str().unwrap_or_default().to_owned(), answer["code"].to_string()];
        words.extend(answer["body"]["reason"].as_str().map(str::to_owned));
        words.push(digest(&comparable.to_string()));
        words.join(" ")
    };
    transcript.answers().iter().map(line).collect()
}

/// Shortens a text to a few letters that change with the text.
fn digest(text: &str) -> String {
    const BYTES: usize = 5;
    Sha256::digest(text.as_bytes()).iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect()
}

/// Removes steps from a case as long as the two servers still differ at the same step. Returns the
/// shortest case found and its difference.
///
/// Steps with the same id up to the first `-` are removed together: a watch, its barrier and its
/// end.
///
/// # Errors
/// When a server cannot be reached.
pub async fn shorten(
    case: &RecordedCase,
    difference: Disagreement,
    first: &ExaminedServer,
    second: &ExaminedServer,
) -> Result<(RecordedCase, Disagreement), RunError> {
    let mut difference = difference;
    let mut units = units(&case.steps);
    let mut attempts = 0;
    // Later steps rarely matter. They can, because the placeholders of revisions depend on all
    // revisions seen.
    if let Some(last) = units.iter().position(|unit| unit.iter().any(|step| step.id == difference.step)) {
        let found = disagreements(&of(case, &units[..=last]), first, second).await?;
        if let Some(same) = found.into_iter().find(|other| other.step == difference.step) {
            units.truncate(last + 1);
            difference = same;
        }
    }
    let mut size = units.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < units.len() && attempts < ATTEMPTS {
            let end = (at + size).min(units.len());
            let kept: Vec<Vec<Step>> = units[..at].iter().chain(&units[end..]).cloned().collect();
            attempts += 1;
            let found = disagreements(&of(case, &kept), first, second).await?;
            match found.into_iter().find(|other| other.step == difference.step) {
                Some(same) => (units, difference) = (kept, same),
                None => at = end,
            }
        }
        if size <= 1 || ATTEMPTS <= attempts {
            return Ok((of(case, &units), difference));
        }
        size = size.div_ceil(2);
    }
}

fn units(steps: &[Step]) -> Vec<Vec<Step>> {
    let begins = |step: &Step| step.id.split('-').next().unwrap_or_default().to_owned();
    steps.chunk_by(|a, b| begins(a) == begins(b)).map(<[Step]>::to_vec).collect()
}

fn of(case: &RecordedCase, units: &[Vec<Step>]) -> RecordedCase {
    RecordedCase { steps: units.concat(), ..case.clone() }
}

/// Plays the case. Returns the transcript, or the step at which the case stops and the reason.
async fn outcome(
    case: &RecordedCase,
    endpoint: &ExaminedServer,
) -> Result<Result<Transcript, (String, String)>, RunError> {
    let namespace = unused_namespace();
    match run(endpoint, case, &namespace).await {
        Ok(transcript) => Ok(Ok(transcript)),
        Err(RunError::Step { step, why, .. }) => Ok(Err((step, why.replace(&namespace, "<ns>")))),
        Err(other) => Err(other),
    }
}

/// Starts of texts that continue with the words of a parser, or with a language's syntax for
/// values.
const PROSE: [&str; 11] = [
    "json: cannot unmarshal",
    "no kind \"",
    "no kind is registered",
    "converting to ",
    "parsing time ",
    "illegal base64",
    // The object that results from a patch.
    "Invalid value: \"{\\\"",
    "Invalid value: \"map[",
    "got &value.",
    // The changed fields of a pod.
    "pod updates may not change fields other than",
    "\n@@ ",
];

/// Removes words that no client can rely on. The rest of the answer is compared.
fn without_prose(answer: &Value) -> Value {
    match answer {
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| match (key.as_str(), value) {
                    ("message", Value::String(text)) => (key.clone(), json!(cut(text))),
                    // Whether two tokens are equal depends on concurrent writes of other clients.
                    ("continue", Value::String(token)) if !token.is_empty() => {
                        (key.clone(), json!("<token>"))
                    }
                    _ => (key.clone(), without_prose(value)),
                })
                .collect(),
        ),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(without_prose).collect();
            // A rejection lists a cause once per check that finds it.
            items.dedup_by(|a, b| a == b && a.get("reason").is_some() && a.get("field").is_some());
            Value::Array(items)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => answer.clone(),
    }
}

fn cut(message: &str) -> &str {
    let ends = PROSE.iter().filter_map(|start| message.find(start));
    &message[..ends.min().unwrap_or(message.len())]
}
