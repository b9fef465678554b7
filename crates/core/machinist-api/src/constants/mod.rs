//! Spellings that other programs read or write.

pub mod annotations;
pub mod conditions;
pub mod finalizers;
pub mod labels;
pub mod markers;
pub mod reasons;
pub mod taints;
