//! Measured values of a process, in the text format of Prometheus.
//!
//! The stores and queues of a process are counted when a client asks for them. This module keeps
//! the values that only exist at the moment of an event: durations, results, and findings of the
//! program around the runtime.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bounds of durations of requests, in seconds.
pub const REQUEST_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// Bounds of waits that users notice, in seconds: each is four times the one before.
pub const WAIT_SECONDS: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
/// Bounds of changes of the cloud, in seconds: each is twice the one before.
pub const CHANGE_SECONDS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// One name with labels, and its value.
pub type Sample = (String, f64);
/// A function that returns values at the time of the question.
type Source = Box<dyn Fn() -> Vec<Sample> + Send + Sync>;

/// The measured values of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Values>>);

#[derive(Default)]
struct Values {
    plain: BTreeMap<String, f64>,
    histograms: BTreeMap<(&'static str, String), Histogram>,
    sources: Vec<Source>,
}

/// The number of observations below each bound, and their sum.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Observations at most as large as the bound of the same index, and larger than the one
    /// before.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Metrics {
    /// Adds one to a counter.
    pub fn count(&self, name: &'static str, labels: &[(&str, &str)]) {
        *self.lock().plain.entry(with_labels(name, labels)).or_default() += 1.0;
    }

    /// Sets a gauge.
    pub fn set(&self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        self.lock().plain.insert(with_labels(name, labels), value);
    }

    /// Adds a duration to a histogram. A histogram always has the same bounds.
    pub fn observe(
        &self,
        name: &'static str,
        labels: &[(&str, &str)],
        bounds: &'static [f64],
        took: Duration,
    ) {
        let mut values = self.lock();
        let histogram = values.histograms.entry((name, rendered(labels)));
        histogram.or_insert_with(|| Histogram::new(bounds)).add(took.as_secs_f64());
    }

    /// Adds a function whose values are part of each answer.
    pub fn add_source(&self, source: impl Fn() -> Vec<Sample> + Send + Sync + 'static) {
        self.lock().sources.push(Box::new(source));
    }

    /// Returns all values.
    pub fn samples(&self) -> Vec<Sample> {
        let values = self.lock();
        let mut samples: Vec<Sample> =
            values.plain.iter().map(|(name, value)| (name.clone(), *value)).collect();
        for ((name, labels), histogram) in &values.histograms {
            samples.extend(histogram.samples(name, labels));
        }
        samples.extend(values.sources.iter().flat_map(|source| source()));
        samples
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Histogram {
    /// Creates a histogram without observations. The bounds increase.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], count: 0, sum: 0.0 }
    }

    /// Adds an observation.
    pub fn add(&mut self, value: f64) {
        if let Some(at) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[at] += 1;
        }
        self.count += 1;
        self.sum += value;
    }

    /// Returns the values of the histogram with these rendered labels, for example `method="GET"`.
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
    pub fn samples(&self, name: &str, labels: &str) -> Vec<Sample> {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        let mut samples = Vec::with_capacity(self.bounds.len() + 3);
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            below += count;
            samples.push((format!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}}"), below as f64));
        }
        samples.push((format!("{name}_bucket{{{labels}{comma}le=\"+Inf\"}}"), self.count as f64));
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        samples.push((format!("{name}_sum{braces}"), self.sum));
        samples.push((format!("{name}_count{braces}"), self.count as f64));
        samples
    }
}

/// Returns the name of a metric with its labels.
pub fn with_labels(name: &str, labels: &[(&str, &str)]) -> String {
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", rendered(labels)) }
}

/// Renders labels without braces. Values are escaped.
fn rendered(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> Vec<String> {
        metrics.samples().iter().map(|(name, value)| format!("{name} {value}")).collect()
    }

    #[test]
    fn counters_and_gauges_have_escaped_labels() {
        let metrics = Metrics::default();
        metrics.count("calls_total", &[("code", "200"), ("text", "a\"b\\c\nd")]);
        metrics.count("calls_total", &[("code", "200"), ("text", "a\"b\\c\nd")]);
        metrics.set("age", &[], 1.5);
        metrics.set("age", &[], 2.5);
        metrics.add_source(|| vec![("asked".to_owned(), 7.0)]);
        let expected = ["age 2.5", r#"calls_total{code="200",text="a\"b\\c\nd"} 2"#, "asked 7"];
        assert_eq!(text(&metrics), expected);
    }

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative() {
        let metrics = Metrics::default();
        for milliseconds in [500, 1000, 3000, 9000] {
            let took = Duration::from_millis(milliseconds);
            metrics.observe("wait_seconds", &[("kind", "x")], &[1.0, 4.0], took);
        }
        let expected = [
            r#"wait_seconds_bucket{kind="x",le="1"} 2"#,
            r#"wait_seconds_bucket{kind="x",le="4"} 3"#,
            r#"wait_seconds_bucket{kind="x",le="+Inf"} 4"#,
            r#"wait_seconds_sum{kind="x"} 13.5"#,
            r#"wait_seconds_count{kind="x"} 4"#,
        ];
        assert_eq!(text(&metrics), expected);
        metrics.observe("plain_seconds", &[], &[1.0], Duration::ZERO);
        assert!(text(&metrics).contains(&r#"plain_seconds_bucket{le="1"} 1"#.to_owned()));
        assert!(text(&metrics).contains(&"plain_seconds_count 1".to_owned()));
    }
}
