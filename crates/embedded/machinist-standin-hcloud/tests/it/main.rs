//! Tests of the stand-in, with a plain HTTP client over a pipe and paused time.

mod client;
mod servers;
