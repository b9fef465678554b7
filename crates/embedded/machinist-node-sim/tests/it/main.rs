//! Machines against the embedded API server and its controllers, all in one process and under
//! paused time; one test uses HTTPS.

mod benchmarks;
mod host;
mod https;
mod joining;
mod pods;
mod power;
mod repeatable;
mod world;
