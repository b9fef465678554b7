//! Rules of custom resources (`x-kubernetes-validations`, written in CEL): compiled with the schema, judged after it.
//!
//! [`compile`] turns a schema node's rules into programs and reports those that kube-apiserver would refuse; [`types`] looks
//! for fields and variables that cannot be; [`cost`] bounds what a rule may come to, by the [`extent`] of what it runs on;
//! [`value`] shows an object to a program, [`functions`] are what it may call;
//! [`judge`] walks an object and its past. The language is the `cel` crate's, the Kubernetes functions are kube-cel's.
//!
//! Deliberately absent: the exact cost model of kube-apiserver (ours has its order and errs on the generous side, and does not
//! sum over a definition), its complete type checker (ours reports what it is sure of; the rest fails when the rule runs),
//! and the set and map semantics of `+` and `==` on lists that are declared as such.

pub(crate) mod compile;
mod cost;
mod extent;
mod functions;
pub(crate) mod judge;
#[cfg(test)]
mod tests;
mod types;
pub(crate) mod value;

use std::fmt;

use kube_cel::cel::Program;

use crate::values::status::FieldErrorKind;

/// One rule of one schema node.
pub(crate) struct Rule {
    /// The rule as it was written.
    text: String,
    program: Program,
    message: Option<String>,
    message_program: Option<Program>,
    /// What kind of complaint a broken rule makes.
    reason: FieldErrorKind,
    /// The field that is complained about, relative to the node.
    field_path: Vec<String>,
    /// Looks at the node's past.
    is_transition: bool,
    /// Runs without a past as well, which it then sees as `optional.none()`.
    takes_no_past: bool,
}

impl Rule {
    /// What a broken rule is called by: its message, or itself.
    fn name(&self) -> String {
        self.message.clone().unwrap_or_else(|| self.text.trim().to_owned())
    }
}

/// Programs cannot show themselves.
impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.text).finish()
    }
}
