//! Measured values of a process.
//!
//! The stores and queues of a process are counted when a client asks for them. This module keeps
//! the values that only exist at the moment of an event: durations, results, and findings of the
//! program around the runtime.
//!
//! A metric is a constant with its name and the text of its HELP line, so no value is without one.
//! The crate `prometheus` stores the values and renders them. The crate `prometheus-client` cannot
//! keep the format that users scrape: it renders the bound 1 as `le="1.0"` instead of `le="1"`, and
//! the type of `x_total` for the name `x`, as OpenMetrics demands.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::{LabelPair, MetricFamily};
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, TextEncoder};

use crate::summaries::Summaries;

/// Bounds of durations of requests, in seconds.
pub const REQUEST_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// Bounds of waits that users notice, in seconds: each is four times the one before.
pub const WAIT_SECONDS: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
/// Bounds of changes of the cloud, in seconds: each is twice the one before.
pub const CHANGE_SECONDS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// Labels of one value. All values of a metric have the same names of labels, in the same order.
pub type Labels<'a> = &'a [(&'static str, &'a str)];
/// One name with labels, and its value, as in the text format.
pub type Sample = (String, f64);
/// A function that records values at the time of the question.
type Source = Box<dyn Fn(&Metrics) + Send + Sync>;

/// A number of events since the start of the process. The name ends with `_total`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter(Described);

/// A value that goes up and down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gauge(Described);

/// A distribution of durations. The name ends with `_seconds`.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    described: Described,
    bounds: &'static [f64],
}

/// The sum and the number of values, without quantiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary(Described);

/// A metric that is announced before it has a value.
#[derive(Debug, Clone, Copy)]
pub struct Announced<'a> {
    described: &'a Described,
    kind: &'static str,
}

/// The name of a metric, and what it counts, in which unit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Described {
    name: Cow<'static, str>,
    help: Cow<'static, str>,
}

impl Described {
    const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), help: Cow::Borrowed(help) }
    }

    fn options(&self) -> Opts {
        Opts::new(&*self.name, &*self.help)
    }
}

impl Counter {
    /// A counter. `help` says what it counts.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self(Described::new(name, help))
    }
}

impl Gauge {
    /// A gauge. `help` says what it shows, and in which unit.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self(Described::new(name, help))
    }

    /// A gauge whose name is only known at run time.
    pub fn named(name: String, help: String) -> Self {
        Self(Described { name: name.into(), help: help.into() })
    }

    /// The name of the gauge.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl Histogram {
    /// A histogram with these bounds, which increase. `help` says what it measures.
    pub const fn new(name: &'static str, help: &'static str, bounds: &'static [f64]) -> Self {
        Self { described: Described::new(name, help), bounds }
    }
}

impl Summary {
    /// A summary. `help` says what it measures.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self(Described::new(name, help))
    }
}

impl<'a> From<&'a Counter> for Announced<'a> {
    fn from(counter: &'a Counter) -> Self {
        Self { described: &counter.0, kind: "counter" }
    }
}

impl<'a> From<&'a Gauge> for Announced<'a> {
    fn from(gauge: &'a Gauge) -> Self {
        Self { described: &gauge.0, kind: "gauge" }
    }
}

impl<'a> From<&'a Histogram> for Announced<'a> {
    fn from(histogram: &'a Histogram) -> Self {
        Self { described: &histogram.described, kind: "histogram" }
    }
}

impl<'a> From<&'a Summary> for Announced<'a> {
    fn from(summary: &'a Summary) -> Self {
        Self { described: &summary.0, kind: "summary" }
    }
}

/// The measured values of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    /// The metrics that have values, by name.
    metrics: BTreeMap<String, Recording>,
    sources: Vec<Source>,
    /// The help lines and types of the metrics that are shown even without a value, by name.
    announced: BTreeMap<String, String>,
}

/// The values of one metric.
struct Recording {
    values: Values,
    /// The names of the labels, in the order of the calls.
    labels: Vec<&'static str>,
}

enum Values {
    Counter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
    Summary(Box<Summaries>),
}

impl Metrics {
    /// Announces a metric: its help line and its type are shown even while it has no value.
    pub fn announce<'a>(&self, metric: impl Into<Announced<'a>>) {
        let Announced { described: Described { name, help }, kind } = metric.into();
        let lines = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.lock().announced.insert(name.clone().into_owned(), lines);
    }

    /// Adds one to a counter.
    pub fn count(&self, counter: &Counter, labels: Labels<'_>) {
        self.add(counter, labels, 1);
    }

    /// Adds a number to a counter.
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
    pub fn add(&self, counter: &Counter, labels: Labels<'_>, number: u64) {
        self.increase(counter, labels, number as f64);
    }

    /// Adds a duration to a counter of seconds.
    pub fn add_seconds(&self, counter: &Counter, labels: Labels<'_>, took: Duration) {
        self.increase(counter, labels, took.as_secs_f64());
    }

    fn increase(&self, counter: &Counter, labels: Labels<'_>, by: f64) {
        let new = |names: &[&str]| CounterVec::new(counter.0.options(), names).map(Values::Counter);
        self.record(&counter.0, labels, new, |values, labels| match values {
            Values::Counter(counters) => {
                let counter = counters.get_metric_with_label_values(labels);
                counter.map(|counter| counter.inc_by(by))
            }
            Values::Gauge(_) | Values::Histogram(_) | Values::Summary(_) => {
                Err(prometheus::Error::AlreadyReg)
            }
        });
    }

    /// Sets a gauge.
    pub fn set(&self, gauge: &Gauge, labels: Labels<'_>, value: f64) {
        let new = |names: &[&str]| GaugeVec::new(gauge.0.options(), names).map(Values::Gauge);
        self.record(&gauge.0, labels, new, |values, labels| match values {
            Values::Gauge(gauges) => {
                gauges.get_metric_with_label_values(labels).map(|gauge| gauge.set(value))
            }
            Values::Counter(_) | Values::Histogram(_) | Values::Summary(_) => {
                Err(prometheus::Error::AlreadyReg)
            }
        });
    }

    /// Sets a gauge to a number of things.
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
    pub fn set_number(&self, gauge: &Gauge, labels: Labels<'_>, number: usize) {
        self.set(gauge, labels, number as f64);
    }

    /// Adds a duration to a histogram.
    pub fn observe(&self, histogram: &Histogram, labels: Labels<'_>, took: Duration) {
        let Histogram { described, bounds } = histogram;
        let new = |names: &[&str]| {
            let options = HistogramOpts::from(described.options()).buckets(bounds.to_vec());
            HistogramVec::new(options, names).map(Values::Histogram)
        };
        self.record(described, labels, new, |values, labels| match values {
            Values::Histogram(histograms) => {
                let histogram = histograms.get_metric_with_label_values(labels);
                histogram.map(|histogram| histogram.observe(took.as_secs_f64()))
            }
            Values::Counter(_) | Values::Gauge(_) | Values::Summary(_) => Err(prometheus::Error::AlreadyReg),
        });
    }

    /// Adds a value to a summary.
    pub fn sum(&self, summary: &Summary, labels: Labels<'_>, value: f64) {
        let new = |names: &[&str]| Ok(Values::Summary(Box::new(Summaries::new(summary.0.options(), names))));
        self.record(&summary.0, labels, new, |values, labels| match values {
            Values::Summary(summaries) => summaries.add(labels, value),
            Values::Counter(_) | Values::Gauge(_) | Values::Histogram(_) => {
                Err(prometheus::Error::AlreadyReg)
            }
        });
    }

    /// Adds a function that records values for each answer. They are part of that answer only.
    pub fn add_source(&self, source: impl Fn(&Self) + Send + Sync + 'static) {
        self.lock().sources.push(Box::new(source));
    }

    /// Renders all values in the text format of Prometheus, sorted by name.
    pub fn text(&self) -> String {
        self.text_with(|_| {})
    }

    /// Renders all values, and those that a function records for this answer only.
    pub fn text_with(&self, source: impl FnOnce(&Self)) -> String {
        let asked = Self::default();
        source(&asked);
        self.lock().sources.iter().for_each(|source| source(&asked));
        let mut metrics = self.gathered();
        for (name, family) in asked.gathered() {
            match metrics.get_mut(&name) {
                Some(known) => known.mut_metric().extend_from_slice(family.get_metric()),
                None => drop(metrics.insert(name, family)),
            }
        }
        let mut texts = self.lock().announced.clone();
        texts.extend(metrics.into_iter().map(|(name, family)| (name, rendered(family))));
        texts.into_values().collect()
    }

    fn record(
        &self,
        metric: &Described,
        labels: Labels<'_>,
        new: impl FnOnce(&[&str]) -> prometheus::Result<Values>,
        record: impl FnOnce(&Values, &[&str]) -> prometheus::Result<()>,
    ) {
        if let Err(error) = self.try_record(metric, labels, new, record) {
            let name = &*metric.name;
            tracing::error!(name, %error, "Internal error (please report it): cannot record a metric");
        }
    }

    fn try_record(
        &self,
        metric: &Described,
        labels: Labels<'_>,
        new: impl FnOnce(&[&str]) -> prometheus::Result<Values>,
        record: impl FnOnce(&Values, &[&str]) -> prometheus::Result<()>,
    ) -> prometheus::Result<()> {
        let (names, values): (Vec<&'static str>, Vec<&str>) = labels.iter().copied().unzip();
        let mut recorded = self.lock();
        if !recorded.metrics.contains_key(&*metric.name) {
            let recording = Recording { values: new(&names)?, labels: names };
            recorded.metrics.insert(metric.name.clone().into_owned(), recording);
        }
        record(&recorded.metrics[&*metric.name].values, &values)
    }

    fn gathered(&self) -> BTreeMap<String, MetricFamily> {
        let gather = |(name, recording): (&String, &Recording)| (name.clone(), recording.gathered());
        self.lock().metrics.iter().map(gather).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recording {
    /// Returns the values, sorted by their labels. The labels are in the order of the calls, so
    /// that one series always has the same text: `prometheus` sorts them by name.
    fn gathered(&self) -> MetricFamily {
        let families = match &self.values {
            Values::Counter(values) => values.collect(),
            Values::Gauge(values) => values.collect(),
            Values::Histogram(values) => values.collect(),
            Values::Summary(values) => vec![values.gathered()],
        };
        let mut family = families.into_iter().next().unwrap_or_default();
        let place = |label: &LabelPair| self.labels.iter().position(|name| *name == label.name());
        for metric in family.mut_metric() {
            metric.mut_label().sort_by_key(place);
        }
        family.mut_metric().sort_by(|one, other| values_of(one).cmp(values_of(other)));
        family
    }
}

fn rendered(family: MetricFamily) -> String {
    TextEncoder::new().encode_to_string(&[family]).unwrap_or_else(|error| {
        tracing::error!(%error, "Internal error (please report it): cannot render a metric");
        String::new()
    })
}

fn values_of(metric: &prometheus::proto::Metric) -> impl Iterator<Item = &str> {
    metric.get_label().iter().map(LabelPair::value)
}

/// Returns the samples of a text that [`Metrics::text`] rendered, by name with labels.
pub fn samples_of(text: &str) -> Vec<Sample> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    lines.filter_map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: Counter = Counter::new("calls_total", "Calls.");
    const AGE: Gauge = Gauge::new("age", "Age in seconds.");
    const AGE_COUNT: Gauge = Gauge::new("age_count", "Number of ages.");
    const WAIT: Histogram = Histogram::new("wait_seconds", "Waits in seconds.", &[1.0, 4.0]);
    const ITEMS: Summary = Summary::new("items", "Items.");
    const PLAIN: Histogram = Histogram::new("plain_seconds", "Without labels.", &[0.005, 1.0]);

    #[test]
    fn each_metric_has_its_help_and_type_once() {
        let metrics = Metrics::default();
        metrics.observe(&WAIT, &[("kind", "y")], Duration::from_secs(2));
        metrics.observe(&WAIT, &[("kind", "x")], Duration::from_secs(2));
        metrics.count(&CALLS, &[("code", "a{b"), ("by", "x")]);
        metrics.set(&AGE, &[], 1.5);
        metrics.set_number(&AGE_COUNT, &[], 3);
        metrics.add_source(|metrics| metrics.count(&CALLS, &[("code", "b"), ("by", "x")]));
        let expected = r#"# HELP age Age in seconds.
# TYPE age gauge
age 1.5
# HELP age_count Number of ages.
# TYPE age_count gauge
age_count 3
# HELP calls_total Calls.
# TYPE calls_total counter
calls_total{code="a{b",by="x"} 1
calls_total{code="b",by="x"} 1
# HELP wait_seconds Waits in seconds.
# TYPE wait_seconds histogram
wait_seconds_bucket{kind="x",le="1"} 0
wait_seconds_bucket{kind="x",le="4"} 1
wait_seconds_bucket{kind="x",le="+Inf"} 1
wait_seconds_sum{kind="x"} 2
wait_seconds_count{kind="x"} 1
wait_seconds_bucket{kind="y",le="1"} 0
wait_seconds_bucket{kind="y",le="4"} 1
wait_seconds_bucket{kind="y",le="+Inf"} 1
wait_seconds_sum{kind="y"} 2
wait_seconds_count{kind="y"} 1
"#;
        assert_eq!(metrics.text(), expected);
        assert_eq!(metrics.text(), expected, "a source adds to one answer only");
    }

    #[test]
    fn counters_and_gauges_have_escaped_labels() {
        let metrics = Metrics::default();
        let labels = [("code", "200"), ("text", "a\"b\\c\nd")];
        metrics.count(&CALLS, &labels);
        metrics.count(&CALLS, &labels);
        metrics.set(&AGE, &[], 1.5);
        metrics.set(&AGE, &[], 2.5);
        let text = metrics.text_with(|metrics| metrics.set(&AGE_COUNT, &[], 7.0));
        let expected = [
            ("age".to_owned(), 2.5),
            ("age_count".to_owned(), 7.0),
            (r#"calls_total{code="200",text="a\"b\\c\nd"}"#.to_owned(), 2.0),
        ];
        assert_eq!(samples_of(&text), expected);
    }

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative() {
        let metrics = Metrics::default();
        for milliseconds in [500, 1000, 3000, 9000] {
            metrics.observe(&WAIT, &[("kind", "x")], Duration::from_millis(milliseconds));
        }
        let expected = [
            (r#"wait_seconds_bucket{kind="x",le="1"}"#.to_owned(), 2.0),
            (r#"wait_seconds_bucket{kind="x",le="4"}"#.to_owned(), 3.0),
            (r#"wait_seconds_bucket{kind="x",le="+Inf"}"#.to_owned(), 4.0),
            (r#"wait_seconds_sum{kind="x"}"#.to_owned(), 13.5),
            (r#"wait_seconds_count{kind="x"}"#.to_owned(), 4.0),
        ];
        assert_eq!(samples_of(&metrics.text()), expected);
        metrics.observe(&PLAIN, &[], Duration::ZERO);
        let text = metrics.text();
        assert!(text.contains("\nplain_seconds_bucket{le=\"0.005\"} 1\n"), "{text}");
        assert!(text.contains("\nplain_seconds_count 1\n"), "{text}");
    }

    #[test]
    fn a_summary_has_a_sum_and_a_number() {
        let metrics = Metrics::default();
        metrics.sum(&ITEMS, &[("name", "b")], 3.0);
        metrics.sum(&ITEMS, &[("name", "a")], 1.0);
        metrics.sum(&ITEMS, &[("name", "b")], 4.5);
        let expected = "# HELP items Items.\n# TYPE items summary\nitems_sum{name=\"a\"} 1\nitems_count{name=\"a\"} 1\n\
                        items_sum{name=\"b\"} 7.5\nitems_count{name=\"b\"} 2\n";
        assert_eq!(metrics.text(), expected);
    }

    #[test]
    fn an_announced_metric_is_shown_without_a_value() {
        let metrics = Metrics::default();
        metrics.announce(&ITEMS);
        metrics.announce(&CALLS);
        metrics.count(&CALLS, &[("code", "200")]);
        let expected = "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{code=\"200\"} 1\n\
                        # HELP items Items.\n# TYPE items summary\n";
        assert_eq!(metrics.text(), expected);
    }
}
