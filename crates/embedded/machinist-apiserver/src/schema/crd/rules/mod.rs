//! Validation rules of custom resources (`x-kubernetes-validations`, written in CEL). They are
//! compiled with the schema and evaluated after the schema's own checks.
//!
//! [`compile`] turns the rules of a schema node into programs and reports rules that kube-apiserver
//! would reject. [`types`] finds undefined fields and variables. [`cost`] limits the cost of a
//! rule, based on the [`extent`] of its input. [`value`] converts an object for a program, and
//! [`functions`] has the functions that a program may call. [`judge`] evaluates the rules on an
//! object and its old version. The language comes from the `cel` crate, the Kubernetes functions
//! from kube-cel.
//!
//! Not included: the exact cost model of kube-apiserver (ours has the same order of magnitude, is
//! more generous, and does not sum over a definition), its complete type checker (ours reports only
//! certain errors; other errors appear when the rule runs), and the set and map semantics of `+`
//! and `==` on lists with the list type `set` or `map`.

pub(crate) mod compile;
mod cost;
mod extent;
mod functions;
pub(crate) mod judge;
mod stack;
#[cfg(test)]
mod tests;
mod types;
pub(crate) mod value;

use std::fmt;

use kube_cel::cel::Program;

use crate::values::status::FieldErrorKind;

/// One rule of one schema node.
pub(crate) struct Rule {
    text: String,
    program: Compiled,
    message: Option<String>,
    message_program: Option<Compiled>,
    /// Kind of the error for a violation.
    reason: FieldErrorKind,
    /// Field that the error names, relative to the node.
    field_path: Vec<String>,
    /// Whether the rule uses `oldSelf`.
    is_transition: bool,
    /// Whether the rule also runs without an old value; `oldSelf` is then `optional.none()`.
    takes_no_past: bool,
}

/// A program that may run.
struct Compiled {
    program: Program,
    /// How deeply its expressions nest.
    nesting: usize,
}

impl Rule {
    /// Returns the text that errors show for the rule: its message, or the rule itself.
    fn name(&self) -> String {
        self.message.clone().unwrap_or_else(|| self.text.trim().to_owned())
    }
}

/// `Program` does not implement `Debug`.
impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.text).finish()
    }
}
