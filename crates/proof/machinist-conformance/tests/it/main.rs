//! Tests of the embedded server: recorded answers, fuzzing, power cuts.

mod conformance;
mod fuzz;
mod power_cut;
