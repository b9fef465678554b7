//! The text format of Prometheus: the samples of one metric follow its type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::metrics::Sample;

/// The ends of the series of a histogram.
const OF_HISTOGRAM: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Renders samples. Metrics are sorted by name; the samples of one metric keep their order.
pub(crate) fn render(samples: Vec<Sample>) -> String {
    let histograms: BTreeSet<String> = samples
        .iter()
        .filter_map(|(name, _)| series(name).strip_suffix("_bucket"))
        .map(str::to_owned)
        .collect();
    let mut metrics: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for (name, value) in samples {
        let series = series(&name);
        let base = OF_HISTOGRAM.iter().find_map(|end| series.strip_suffix(end));
        let metric = base.filter(|base| histograms.contains(*base)).unwrap_or(series).to_owned();
        metrics.entry(metric).or_default().push((name, value));
    }
    let mut text = String::new();
    for (metric, samples) in metrics {
        let kind = match metric.ends_with("_total") {
            _ if histograms.contains(&metric) => "histogram",
            true => "counter",
            false => "gauge",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# TYPE {metric} {kind}");
        for (name, value) in samples {
            let _ = writeln!(text, "{name} {value}");
        }
    }
    text
}

/// Returns a name without its labels.
fn series(name: &str) -> &str {
    name.split('{').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn each_metric_has_its_type_once() {
        let metrics = Metrics::default();
        metrics.observe("wait_seconds", &[("kind", "x")], &[1.0], Duration::from_secs(2));
        metrics.observe("wait_seconds", &[("kind", "y")], &[1.0], Duration::from_secs(2));
        metrics.count("calls_total", &[("code", "a{b")]);
        metrics.set("age", &[], 1.5);
        metrics.set("age_count", &[], 3.0);
        let mut samples = metrics.samples();
        samples.push(("calls_total".to_owned(), 1.0));
        let expected = r#"# TYPE age gauge
age 1.5
# TYPE age_count gauge
age_count 3
# TYPE calls_total counter
calls_total{code="a{b"} 1
calls_total 1
# TYPE wait_seconds histogram
wait_seconds_bucket{kind="x",le="1"} 0
wait_seconds_bucket{kind="x",le="+Inf"} 1
wait_seconds_sum{kind="x"} 2
wait_seconds_count{kind="x"} 1
wait_seconds_bucket{kind="y",le="1"} 0
wait_seconds_bucket{kind="y",le="+Inf"} 1
wait_seconds_sum{kind="y"} 2
wait_seconds_count{kind="y"} 1
"#;
        assert_eq!(render(samples), expected);
    }
}
