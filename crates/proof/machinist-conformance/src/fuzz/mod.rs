//! Fuzz targets: functions that turn arbitrary bytes into requests, and panic if the server
//! mishandles them.
//!
//! A [`Target`] reads its input as text in the simplest possible format (a request as in an `.http`
//! file, one selector per line), so that people can read and write the files of its corpus. It
//! plays the input against a fresh server, and sends requests only. Because the server is fresh, an
//! input either fails alone or not at all. Because the clock jumps, nothing waits.
//!
//! An input fails if the server panics, answers with invalid JSON or too much data, or stops
//! answering. The program that runs a target watches time and memory from outside, as
//! `examples/fuzz.rs` does. `tests/it/fuzz.rs` replays the corpus. [`mutated`] creates new inputs
//! from a corpus and a seed.
//!
//! Deliberately absent: sockets, TLS and HTTP itself, which are third-party code; and the
//! correctness of answers, which the conformance cases check.

mod mutation;
mod subject;
mod targets;

pub use mutation::mutated;

/// One way to turn bytes into requests.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target and of its corpus folder.
    pub name: &'static str,
    /// Plays one input.
    ///
    /// # Panics
    /// When the server mishandles the input.
    pub play: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 9] = [
    Target { name: "request", play: targets::request },
    Target { name: "body", play: targets::body },
    Target { name: "patch", play: targets::patch },
    Target { name: "selector", play: targets::selector },
    Target { name: "continue", play: targets::continue_token },
    Target { name: "schema", play: targets::schema },
    Target { name: "rule", play: targets::rule },
    Target { name: "json_path", play: targets::json_path },
    Target { name: "watch", play: targets::watch },
];
