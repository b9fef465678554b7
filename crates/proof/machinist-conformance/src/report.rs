//! The conformance report: cases by level, features that clients need, and the ledger.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::civil::Date;
use serde::Serialize;

use crate::case::Level;
use crate::compare::{Comparison, Difference};
use crate::corpus::{Corpus, Feature, Importance, parts};

/// Collects the comparisons of all cases and renders the report.
#[derive(Debug, Clone)]
pub struct ConformanceReport<'a> {
    corpus: &'a Corpus,
    /// Version of the server that ours was compared with.
    against: String,
    compared: BTreeMap<String, (Level, Comparison)>,
    /// Date for overdue ledger entries. `None` in tests, which must pass on any day.
    today: Option<Date>,
}

/// Counts of equal and different cases.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CaseTally {
    /// Number of cases.
    pub cases: usize,
    /// Number of cases with only equal answers.
    pub equal: usize,
    /// Number of cases with a different answer.
    pub diverging: usize,
    /// Number of diverging cases in which the ledger explains every difference.
    pub ledger: usize,
    /// Number of compared answers.
    pub answers: usize,
    /// Number of equal answers.
    #[serde(rename = "answersEqual")]
    pub answers_equal: usize,
}

/// Counts of features with one importance.
#[derive(Debug, Clone, Default, Serialize)]
struct Rows {
    rows: usize,
    equal: usize,
    /// Features that requests to both servers cannot show.
    elsewhere: usize,
}

#[derive(Serialize)]
struct Summary<'a> {
    against: &'a str,
    #[serde(flatten)]
    all: CaseTally,
    levels: BTreeMap<String, CaseTally>,
    features: BTreeMap<Importance, Rows>,
    /// Differences by case that the ledger does not explain.
    differences: BTreeMap<&'a str, &'a [Difference]>,
    faults: Vec<String>,
}

impl<'a> ConformanceReport<'a> {
    /// Creates an empty report.
    pub fn new(corpus: &'a Corpus, against: String) -> Self {
        ConformanceReport { corpus, against, compared: BTreeMap::new(), today: None }
    }

    /// Also counts ledger entries with a review date before this day as faults.
    #[must_use]
    pub fn on(mut self, today: Date) -> Self {
        self.today = Some(today);
        self
    }

    /// Adds the comparison of a case.
    pub fn add(&mut self, case: &str, level: Level, comparison: Comparison) {
        self.compared.insert(case.to_owned(), (level, comparison));
    }

    /// Lists unexplained differences and outdated ledger entries, one line each.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (case, (_, comparison)) in &self.compared {
            faults.extend(
                comparison.stale.iter().map(|stale| format!("{case}: outdated ledger entry {stale}")),
            );
            faults.extend(comparison.differences.iter().map(|difference| format!("{case}, {difference}")));
        }
        let is_overdue = |review: Date| self.today.is_some_and(|today| review < today);
        faults.extend(self.corpus.ledger.entries.iter().filter(|entry| is_overdue(entry.review)).map(
            |entry| {
                format!(
                    "{} was due for review on {}. Check the entry and set a new date",
                    entry.id, entry.review
                )
            },
        ));
        let musts = self.features().filter(|feature| feature.importance == Importance::M);
        faults.extend(
            musts
                .filter(|feature| !self.is_equal(feature) && !Self::is_elsewhere(feature))
                .map(|feature| format!("{} has importance M, and differs", feature.feature)),
        );
        faults
    }

    fn tally(&self, level: Option<Level>) -> CaseTally {
        let mut tally = CaseTally::default();
        for (of, comparison) in self.compared.values() {
            if level.is_some_and(|level| level != *of) {
                continue;
            }
            tally.cases += 1;
            let is_equal = comparison.is_equal(None);
            tally.equal += usize::from(is_equal);
            tally.diverging += usize::from(!is_equal);
            tally.ledger += usize::from(!is_equal && comparison.is_explained());
            tally.answers += comparison.answers;
            tally.answers_equal += comparison.answers.saturating_sub(comparison.unequal_steps());
        }
        tally
    }

    /// Lists the features with all cases played.
    fn features(&self) -> impl Iterator<Item = &Feature> {
        let was_played = |shown: &String| self.compared.contains_key(parts(shown).0);
        self.corpus.features.iter().filter(move |feature| feature.shown.iter().all(was_played))
    }

    fn is_equal(&self, feature: &Feature) -> bool {
        let is_equal = |shown: &String| {
            let (case, step) = parts(shown);
            self.compared.get(case).is_some_and(|(_, comparison)| comparison.is_equal(step))
        };
        !feature.shown.is_empty() && feature.shown.iter().all(is_equal)
    }

    /// Reports whether only tests outside the cases show the feature.
    fn is_elsewhere(feature: &Feature) -> bool {
        feature.shown.is_empty() && feature.elsewhere.is_some()
    }

    fn rows(&self) -> BTreeMap<Importance, Rows> {
        let mut all: BTreeMap<Importance, Rows> = BTreeMap::new();
        for feature in self.features() {
            let rows = all.entry(feature.importance).or_default();
            rows.rows += 1;
            rows.equal += usize::from(self.is_equal(feature));
            rows.elsewhere += usize::from(Self::is_elsewhere(feature));
        }
        all
    }

    fn levels(&self) -> impl Iterator<Item = (Level, CaseTally)> {
        Level::ALL
            .into_iter()
            .map(|level| (level, self.tally(Some(level))))
            .filter(|(_, tally)| tally.cases != 0)
    }

    fn unexplained(&self) -> impl Iterator<Item = (&str, &[Difference])> {
        let all = self
            .compared
            .iter()
            .map(|(case, (_, comparison))| (case.as_str(), comparison.differences.as_slice()));
        all.filter(|(_, differences)| !differences.is_empty())
    }

    /// Renders the report as one JSON object on one line.
    pub fn json(&self) -> String {
        let summary = Summary {
            against: &self.against,
            all: self.tally(None),
            levels: self.levels().map(|(level, tally)| (level.to_string(), tally)).collect(),
            features: self.rows(),
            differences: self.unexplained().collect(),
            faults: self.faults(),
        };
        serde_json::to_string(&summary).expect("a summary serialises")
    }

    /// Renders the report for people.
    pub fn text(&self) -> String {
        let mut text = format!("embedded API server compared with {}\n\n", self.against);
        let mut line = |content: String| {
            text.push_str(content.trim_end());
            text.push('\n');
        };
        line(row(
            "level",
            "about",
            ["cases", "equal", "diverging", "in ledger", "answers", "equal"].map(str::to_owned),
        ));
        let figures = |tally: &CaseTally| {
            [tally.cases, tally.equal, tally.diverging, tally.ledger, tally.answers, tally.answers_equal]
                .map(|n| n.to_string())
        };
        for (level, tally) in self.levels() {
            line(row(&level.to_string(), level.about(), figures(&tally)));
        }
        line(row("", "all", figures(&self.tally(None))));
        line(String::new());
        for (importance, rows) in self.rows() {
            let Rows { rows, equal, elsewhere } = rows;
            line(format!(
                "features {importance:?}: {equal} of {rows} equal to the real server, {elsewhere} shown elsewhere"
            ));
        }
        for feature in self.features().filter(|feature| !self.is_equal(feature)) {
            let why = match (&feature.elsewhere, feature.shown.is_empty()) {
                (Some(place), true) => format!("shown elsewhere: {place}"),
                (None, true) => "not served".to_owned(),
                (_, false) => "differs, see the ledger".to_owned(),
            };
            line(format!("  {:?} {}: {why}", feature.importance, feature.feature));
        }
        line(format!("\nledger: {} divergences", self.corpus.ledger.entries.len()));
        for entry in &self.corpus.ledger.entries {
            let places = match entry.at.len() {
                0 => "no case".to_owned(),
                1 => "1 place".to_owned(),
                many => format!("{many} places"),
            };
            line(format!("  {} ({places}; review by {}): {}", entry.id, entry.review, entry.reason));
            line(format!("    misleads: {}", entry.misleads));
        }
        let faults = self.faults();
        let _ = write!(
            text,
            "\n{}",
            if faults.is_empty() { "no other differences\n" } else { "other differences:\n" }
        );
        for fault in faults {
            let _ = writeln!(text, "  {fault}");
        }
        text
    }
}

fn row(level: &str, about: &str, figures: [String; 6]) -> String {
    let [cases, equal, diverging, ledger, answers, answers_equal] = figures;
    format!(
        "{level:<6} {about:<28} {cases:>6} {equal:>6} {diverging:>10} {ledger:>10} {answers:>8} {answers_equal:>6}"
    )
}
