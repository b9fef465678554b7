//! What several controllers know of Pods and Nodes: parsed once, when an object is seen, and small.

pub(crate) mod node;
pub(crate) mod pod;
