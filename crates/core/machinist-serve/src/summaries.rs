//! Summaries without quantiles, which the crate `prometheus` cannot store.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus::Opts;
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType, Summary};

/// The values of one summary, by the values of its labels.
pub(crate) struct Summaries {
    options: Opts,
    /// Names of the labels.
    names: Vec<String>,
    sums: Mutex<BTreeMap<Vec<String>, Sum>>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    sum: f64,
    count: u64,
}

impl Summaries {
    pub(crate) fn new(options: Opts, names: &[&str]) -> Self {
        let names = names.iter().map(ToString::to_string).collect();
        Self { options, names, sums: Mutex::default() }
    }

    /// Adds a value.
    ///
    /// # Errors
    /// If there are more or fewer labels than before.
    pub(crate) fn add(&self, labels: &[&str], value: f64) -> prometheus::Result<()> {
        let (expect, got) = (self.names.len(), labels.len());
        if expect != got {
            return Err(prometheus::Error::InconsistentCardinality { expect, got });
        }
        let labels = labels.iter().map(ToString::to_string).collect();
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = sums.entry(labels).or_default();
        sum.sum += value;
        sum.count += 1;
        Ok(())
    }

    /// Returns all values.
    pub(crate) fn gathered(&self) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.options.name.clone());
        family.set_help(self.options.help.clone());
        family.set_field_type(MetricType::SUMMARY);
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        family.set_metric(sums.iter().map(|(labels, sum)| self.metric(labels, *sum)).collect());
        family
    }

    fn metric(&self, labels: &[String], Sum { sum, count }: Sum) -> Metric {
        let pair = |(name, value): (&String, &String)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.clone());
            pair.set_value(value.clone());
            pair
        };
        let mut summary = Summary::default();
        summary.set_sample_sum(sum);
        summary.set_sample_count(count);
        let mut metric = Metric::default();
        metric.set_label(self.names.iter().zip(labels).map(pair).collect());
        metric.set_summary(summary);
        metric
    }
}
