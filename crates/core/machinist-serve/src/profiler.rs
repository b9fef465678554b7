//! The CPU profile of the process, at the paths of Go's `net/http/pprof`.
//!
//! | path below `/debug/pprof/` | answer |
//! |---|---|
//! | nothing | the list of the other paths |
//! | `profile?seconds=N` | where the process spent its CPU time in the next N seconds, for `go tool pprof` |
//! | `cmdline` | the command line of the process, with NUL between the arguments |
//!
//! The profile needs the feature `pprof`. Deliberately absent: profiles of the heap and of locks,
//! which need an allocator and locks that count.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, Uri};
use http_body_util::Full;

use crate::endpoints::text;

const ROOT: &str = "/debug/pprof/";
/// The length of a profile if a request names none. Go's is 30 s as well.
const LENGTH: u64 = 30;
/// A connection ends at the age of one minute, so a longer profile would not be answered.
const LONGEST: u64 = 50;

/// Whether a port answers requests for profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profiler {
    /// The paths do not exist, as with `--profiling=false`.
    Off,
    /// The paths are answered. [`Profiler::IS_COMPILED_IN`] says whether there is a profile.
    On,
}

impl Profiler {
    /// Whether this build has the profile of the CPU.
    pub const IS_COMPILED_IN: bool = cfg!(feature = "pprof");

    /// Whether the profiler answers a request for this path.
    pub(crate) fn answers(self, path: &str) -> bool {
        self == Self::On && (path.starts_with(ROOT) || path == "/debug/pprof")
    }

    /// Answers a request for a path that the profiler answers.
    pub(crate) async fn answer(self, uri: &Uri) -> Response<Full<Bytes>> {
        match uri.path().strip_prefix(ROOT) {
            None | Some("") => text(StatusCode::OK, INDEX.to_owned()),
            Some("cmdline") => text(StatusCode::OK, command_line()),
            Some("profile") => match length_of(uri.query().unwrap_or_default()) {
                Ok(length) => profile(length).await,
                Err(wrong) => text(StatusCode::BAD_REQUEST, wrong),
            },
            Some(other) => text(
                StatusCode::NOT_FOUND,
                format!("there is no profile {other:?}: expected profile or cmdline"),
            ),
        }
    }
}

const INDEX: &str = "\
/debug/pprof/profile?seconds=30  where the process spends its CPU time, for go tool pprof
/debug/pprof/cmdline             the command line of the process
";

fn command_line() -> String {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    arguments.join("\0")
}

/// The length of a profile from the query of its request.
fn length_of(query: &str) -> Result<Duration, String> {
    let seconds = query.split('&').find_map(|part| part.strip_prefix("seconds="));
    let seconds = seconds.map_or(Ok(LENGTH), str::parse);
    match seconds {
        Ok(seconds) if (1..=LONGEST).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        Ok(_) | Err(_) => Err(format!("seconds: expected a whole number from 1 to {LONGEST}")),
    }
}

#[cfg(not(feature = "pprof"))]
async fn profile(_: Duration) -> Response<Full<Bytes>> {
    let message = "this build has no profiler: build it with --features pprof";
    text(StatusCode::NOT_IMPLEMENTED, message.to_owned())
}

#[cfg(feature = "pprof")]
async fn profile(length: Duration) -> Response<Full<Bytes>> {
    match cpu::sample(length).await {
        Ok(profile) => crate::endpoints::respond(StatusCode::OK, "application/octet-stream", profile),
        Err(cpu::NoProfile::Busy) => {
            text(StatusCode::CONFLICT, "another request is being answered with a profile".to_owned())
        }
        Err(cpu::NoProfile::Failed(why)) => text(StatusCode::INTERNAL_SERVER_ERROR, why),
    }
}

/// Samples of the stacks that use the CPU.
#[cfg(feature = "pprof")]
mod cpu {
    use std::time::Duration;

    use pprof::ProfilerGuardBuilder;
    use pprof::protos::Message as _;
    use tokio::sync::Semaphore;

    /// Samples a second, as many as Go takes.
    const FREQUENCY: i32 = 100;
    /// The timer of the samples belongs to the whole process, so there is one profile at a time.
    static TIMER: Semaphore = Semaphore::const_new(1);

    /// Why there is no profile.
    pub(super) enum NoProfile {
        Busy,
        Failed(String),
    }

    /// Samples the process, and encodes the samples as pprof's protocol buffer.
    pub(super) async fn sample(length: Duration) -> Result<Vec<u8>, NoProfile> {
        let _turn = TIMER.try_acquire().map_err(|_| NoProfile::Busy)?;
        // A signal that interrupts one of these libraries must not walk the stack: the walk could
        // wait for a lock that the interrupted code holds.
        let guard = ProfilerGuardBuilder::default()
            .frequency(FREQUENCY)
            .blocklist(&["libc", "libgcc", "pthread", "vdso"])
            .build()
            .map_err(|error| NoProfile::Failed(format!("cannot start the profiler: {error}")))?;
        tokio::time::sleep(length).await;
        let encoded = tokio::task::spawn_blocking(move || {
            let profile = guard.report().build().and_then(|report| report.pprof());
            profile.map(|profile| profile.encode_to_vec()).map_err(|error| error.to_string())
        });
        let encoded = encoded.await.map_err(|error| NoProfile::Failed(error.to_string()))?;
        encoded.map_err(|error| NoProfile::Failed(format!("cannot read the samples: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(uri: &'static str) -> (StatusCode, String) {
        let response = Profiler::On.answer(&Uri::from_static(uri)).await;
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body in memory").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[test]
    fn only_a_port_with_profiling_answers_below_debug() {
        for path in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/profile"] {
            assert!(Profiler::On.answers(path), "{path}");
            assert!(!Profiler::Off.answers(path), "{path}");
        }
        assert!(!Profiler::On.answers("/metrics"));
    }

    #[tokio::test]
    async fn the_index_names_every_path() {
        let (status, index) = ask("/debug/pprof/").await;
        assert_eq!(status, StatusCode::OK);
        assert!(index.contains("/debug/pprof/profile") && index.contains("/debug/pprof/cmdline"), "{index}");
        let (status, line) = ask("/debug/pprof/cmdline").await;
        assert_eq!(status, StatusCode::OK);
        assert!(line.contains("machinist_serve"), "{line}");
    }

    #[tokio::test]
    async fn a_wrong_length_says_which_ones_there_are() {
        for uri in ["/debug/pprof/profile?seconds=0", "/debug/pprof/profile?a=b&seconds=x"] {
            let (status, message) = ask(uri).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{uri}");
            assert_eq!(message, "seconds: expected a whole number from 1 to 50", "{uri}");
        }
        assert_eq!(ask("/debug/pprof/heap").await.0, StatusCode::NOT_FOUND);
    }

    #[cfg(not(feature = "pprof"))]
    #[tokio::test]
    async fn a_build_without_the_profiler_says_how_to_get_it() {
        let (status, message) = ask("/debug/pprof/profile?seconds=1").await;
        assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
        assert!(message.contains("--features pprof"), "{message}");
    }

    /// The only test of the timer, which the whole process shares.
    #[cfg(feature = "pprof")]
    #[tokio::test]
    async fn a_profile_names_the_functions_that_used_the_cpu() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};

        #[inline(never)]
        fn burn_the_cpu(until: &AtomicBool) -> u64 {
            let mut state = 1_u64;
            while !until.load(Ordering::Relaxed) {
                state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
            state
        }

        let ends = Arc::new(AtomicBool::new(false));
        let burning = std::thread::spawn({
            let ends = ends.clone();
            move || burn_the_cpu(&ends)
        });
        let (first, second) =
            tokio::join!(ask("/debug/pprof/profile?seconds=1"), ask("/debug/pprof/profile?seconds=1"));
        ends.store(true, Ordering::Relaxed);
        burning.join().expect("the thread ends");
        assert_eq!(first.0, StatusCode::OK);
        assert!(first.1.contains("burn_the_cpu"), "the profile names the function");
        assert_eq!(second.0, StatusCode::CONFLICT, "{}", second.1);
    }
}
