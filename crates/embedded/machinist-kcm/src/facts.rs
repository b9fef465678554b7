//! Small parsed forms of Pods and Nodes that several controllers share. Each object is parsed once,
//! when it is seen.

pub(crate) mod node;
pub(crate) mod pod;
