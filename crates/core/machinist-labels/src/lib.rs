//! Labels of Kubernetes.
//!
//! ```text
//! syntax       which texts are keys and values
//! selector     which labels a selector matches, and its two forms: a text, and the fields
//!              matchLabels and matchExpressions of an object
//! key_values   labels and annotations in little memory
//! shared_text  a text of many objects, stored once
//! ```
//!
//! The API server, the controllers and the stand-in for Hetzner Cloud share these rules, so a
//! selector means the same everywhere. The selectors of Hetzner Cloud have the same grammar, only
//! without `>` and `<`.
//!
//! `kube::core::Selector` is not used: it parses no text, lacks the operators `>` and `<`, and
//! compares only with a `BTreeMap`, which the API server would have to build for each object.
//!
//! Deliberately absent: the sentences of the API server about invalid keys and values.

mod key_values;
mod selector;
mod shared_text;
mod syntax;

pub use key_values::{KeyValues, TextMap};
pub use selector::{Selector, SelectorError, SelectorProblem};
pub use shared_text::SharedText;
pub use syntax::{MAX_VALUE_LEN, is_key, is_value};
