//! What must hold whatever bytes arrive: functions from bytes to requests, each of which panics when the server does not bear them.
//!
//! A [`Target`] reads its input as text in the simplest form that says what it is about (a request as in an `.http` file, a selector
//! per line), so that the files of its corpus can be read and written by people. It plays the input against a fresh server, all of
//! whose parts are reached by requests. Fresh, so that an input fails alone or not at all; under a clock that jumps, so that
//! nothing waits.
//!
//! An input fails when the server panics, answers what is no JSON or too much, or does not answer any more. Time and
//! memory are for whoever runs a target to watch, from outside: `examples/fuzz.rs` does, and `tests/it/fuzz.rs` replays the corpus.
//! [`mutated`] makes new inputs out of a corpus, from a seed.
//!
//! Deliberately absent: sockets, TLS and HTTP itself, which are other people's code; whether an answer is right, which is what the
//! conformance cases are for.

mod mutation;
mod subject;
mod targets;

pub use mutation::mutated;

/// One way of reading bytes as something to ask of a server.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus' folder.
    pub name: &'static str,
    /// Plays one input.
    ///
    /// # Panics
    /// When the server does not bear it. That is what it is for.
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
