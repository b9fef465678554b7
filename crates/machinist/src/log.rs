//! Logging to stderr.
//!
//! Only crates of this workspace log below the level `warn`. Libraries would log requests, and with
//! them credentials.

use std::fmt;
use std::io::IsTerminal;

use machinist_kube::{Clock, SystemClock};
use tracing::Event;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogArgs;
use crate::args::value::{LogFormat, ModuleLevels};
use crate::output::Output;

/// Default log level of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A controller, which reports its work in the log.
    Daemon,
    /// A command that reports its work on stdout.
    Command,
}

/// Modules whose warnings a command reports in its own words.
const REPORTED_BY_COMMANDS: [&str; 2] = ["watch_log", "silent_servers"];

/// Starts logging to stderr, above the live table. A second call has no effect.
pub(crate) fn start(args: &LogArgs, voice: Voice, output: &Output) {
    let output = output.clone();
    let levels = Levels::of(args, voice);
    let most = levels.most();
    let filter = filter_fn(move |metadata| *metadata.level() <= levels.of_module(metadata.target()));
    let lines = tracing_subscriber::fmt::layer().with_writer(move || output.stderr());
    let lines = match args.logging_format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.with_ansi(false).event_format(JsonLines).boxed(),
    };
    // An earlier call has already installed a subscriber.
    let _ =
        tracing_subscriber::registry().with(lines.with_filter(filter.with_max_level_hint(most))).try_init();
}

/// The most detailed level of each module.
struct Levels {
    base: LevelFilter,
    voice: Voice,
    modules: ModuleLevels,
}

impl Levels {
    fn of(args: &LogArgs, voice: Voice) -> Self {
        Self { base: level(args.v, voice), voice, modules: args.vmodule.clone() }
    }

    /// The most detailed level of any module.
    fn most(&self) -> LevelFilter {
        let single = self.modules.highest().map(|v| level(v, Voice::Command));
        single.into_iter().chain([self.base]).fold(LevelFilter::WARN, LevelFilter::max)
    }

    fn of_module(&self, module: &str) -> LevelFilter {
        if let Some(v) = self.modules.of(module).filter(|_| is_ours(module)) {
            return level(v, Voice::Command);
        }
        let is_reported =
            REPORTED_BY_COMMANDS.iter().any(|name| is_in(module, &format!("machinist_runtime::{name}")));
        if self.voice == Voice::Command && is_reported {
            // `up` itself reports an API server that does not answer, in one sentence with advice.
            LevelFilter::OFF
        } else if is_in(module, "kube_client") {
            // Errors of kube's client do not name the request. Its caller logs a better message.
            LevelFilter::OFF
        } else if is_ours(module) {
            self.base
        } else {
            LevelFilter::WARN
        }
    }
}

/// Whether a module belongs to this workspace, and so may log below the level `warn`.
fn is_ours(module: &str) -> bool {
    module.starts_with("machinist")
}

/// Whether a module is this one or below it.
fn is_in(module: &str, parent: &str) -> bool {
    module.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Converts a klog level: 0 is for operators, 2 is the usual level, 4 is for debugging, 5 and above
/// for tracing.
fn level(v: u8, voice: Voice) -> LevelFilter {
    match (v, voice) {
        (0, Voice::Command) => LevelFilter::WARN,
        (0..=2, _) => LevelFilter::INFO,
        (3..=4, _) => LevelFilter::DEBUG,
        (5.., _) => LevelFilter::TRACE,
    }
}

/// Writes each event as one JSON object, with the keys of Kubernetes' components: `ts` (seconds
/// since 1970), `level`, `caller`, `msg`, and next to them the fields of the event.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writeln!(writer, "{}", json_line(event, Clock::now(&SystemClock)))
    }
}

fn json_line(event: &Event<'_>, now: jiff::Timestamp) -> serde_json::Value {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let metadata = event.metadata();
    let mut line = fields.0;
    line.insert("ts".to_owned(), now.as_duration().as_secs_f64().into());
    line.insert("level".to_owned(), metadata.level().as_str().to_lowercase().into());
    line.insert("caller".to_owned(), metadata.target().into());
    line.into()
}

/// The fields of an event, with the message under `msg`.
#[derive(Default)]
struct Fields(serde_json::Map<String, serde_json::Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<serde_json::Value>) {
        let name = match field.name() {
            "message" => "msg",
            name => name.strip_prefix("r#").unwrap_or(name),
        };
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn levels(v: u8, vmodule: &str, voice: Voice) -> Levels {
        let vmodule = vmodule.parse().expect("patterns and levels");
        Levels::of(&LogArgs { v, vmodule, logging_format: LogFormat::Text }, voice)
    }

    #[test]
    fn libraries_log_only_warnings_at_every_level() {
        let all = levels(9, "*=9", Voice::Daemon);
        assert_eq!(all.of_module("machinist::wiring"), LevelFilter::TRACE);
        assert_eq!(all.of_module("hyper::client"), LevelFilter::WARN);
        assert_eq!(all.of_module("kube_client::client"), LevelFilter::OFF);
    }

    #[test]
    fn levels_are_those_of_klog() {
        let of = |v| [Voice::Daemon, Voice::Command].map(|voice| level(v, voice));
        assert_eq!(of(0), [LevelFilter::INFO, LevelFilter::WARN]);
        for (v, both) in [(2, LevelFilter::INFO), (4, LevelFilter::DEBUG), (5, LevelFilter::TRACE)] {
            assert_eq!(of(v), [both, both], "{v}");
        }
    }

    #[test]
    fn a_command_reports_a_silent_api_server_itself() {
        let of = |voice| levels(0, "", voice).of_module("machinist_runtime::watch_log");
        assert_eq!(of(Voice::Command), LevelFilter::OFF);
        assert!(LevelFilter::WARN <= of(Voice::Daemon), "a controller has only its log");
    }

    #[test]
    fn a_single_module_can_have_another_level() {
        let all = levels(0, "lease=4", Voice::Command);
        assert_eq!(all.of_module("machinist_kube::lease"), LevelFilter::DEBUG);
        assert_eq!(all.of_module("machinist_kube::queue"), LevelFilter::WARN);
        assert_eq!(all.most(), LevelFilter::DEBUG);
    }

    #[test]
    fn a_json_line_has_the_keys_of_kubernetes() {
        struct Keep(Arc<Mutex<Vec<serde_json::Value>>>);
        impl<S: tracing::Subscriber> Layer<S> for Keep {
            fn on_event(&self, event: &Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
                let now = jiff::Timestamp::from_millisecond(1_500).expect("a time");
                self.0.lock().expect("unpoisoned").push(json_line(event, now));
            }
        }
        let kept = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Keep(kept.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "machinist::log", machine = "m-1", calls = 2, "Waiting for {}", "calls");
        });
        let expected = serde_json::json!({
            "ts": 1.5, "level": "warn", "caller": "machinist::log", "msg": "Waiting for calls",
            "machine": "m-1", "calls": 2
        });
        assert_eq!(*kept.lock().expect("unpoisoned"), [expected]);
    }
}
