//! Flags of the profiles that an HTTP port answers, with the names of Kubernetes' components.

use clap::{ArgAction, Args};
use machinist_serve::Profiler;

use super::controllers::UNUSED;
use super::value;

/// Whether a port answers requests for profiles.
#[derive(Debug, Args)]
pub(crate) struct ProfilingArgs {
    /// Answer requests for a CPU profile at /debug/pprof/ of the HTTP server; the build needs the
    /// feature pprof
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = value::go_bool, action = ArgAction::Set, help_heading = "Diagnosis")]
    pub profiling: bool,
    /// Ignored: there are no profiles of locks
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub contention_profiling: Option<bool>,
}

impl ProfilingArgs {
    /// The profiler of the port. Says so if this build has none.
    pub(crate) fn profiler(&self) -> Profiler {
        if !self.profiling {
            return Profiler::Off;
        }
        if !Profiler::IS_COMPILED_IN {
            tracing::warn!(
                flag = "profiling",
                "This build has no CPU profiler; build it with --features pprof"
            );
        }
        Profiler::On
    }
}
