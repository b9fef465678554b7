//! What a rule may come to. CEL always ends, but loops inside of loops over long lists end late.

use kube_cel::cel::common::ast::{EntryExpr, Expr};
use kube_cel::cel::parser::Expression;
use serde_json::Value;

/// Steps that one rule may take on one value; kube-apiserver's limit is of the same order.
pub(super) const MOST_STEPS: u64 = 10_000_000;
/// Steps that a rule is estimated to take at most over all values of one object, or its definition is refused.
pub(super) const MOST_ESTIMATED: f64 = 10_000_000.0;
/// Deepest nesting of expressions, so that evaluating one never exhausts a stack.
pub(super) const MAX_NESTING: usize = 100;

/// What a program looks like from the outside.
pub(super) struct Shape {
    /// Expressions in it.
    pub(super) size: u64,
    /// Loops inside of each other.
    pub(super) loops: u32,
    /// Deepest nesting of expressions.
    pub(super) nesting: usize,
    /// Makes lists out of texts.
    pub(super) splits: bool,
}

/// Measures a program without recursion: it may be nested more deeply than any stack bears.
pub(super) fn shape(program: &Expression) -> Shape {
    let mut shape = Shape { size: 0, loops: 0, nesting: 0, splits: false };
    let mut open: Vec<(&Expression, usize, u32)> = vec![(program, 1, 0)];
    while let Some((expression, nesting, loops)) = open.pop() {
        shape.size += 1;
        shape.nesting = shape.nesting.max(nesting);
        shape.loops = shape.loops.max(loops);
        let mut below = |part| open.push((part, nesting + 1, loops));
        match &expression.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Call(call) => {
                call.target.as_deref().into_iter().chain(&call.args).for_each(below);
                shape.splits |= matches!(call.func_name.as_str(), "split" | "findAll");
            }
            Expr::List(list) => list.elements.iter().for_each(below),
            Expr::Select(select) => below(&select.operand),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        below(&entry.key);
                        below(&entry.value);
                    }
                }
            }
            Expr::Struct(of) => {
                for entry in &of.entries {
                    if let EntryExpr::StructField(field) = &entry.expr {
                        below(&field.value);
                    }
                }
            }
            Expr::Comprehension(comprehension) => {
                let c = &**comprehension;
                for part in [&c.iter_range, &c.accu_init, &c.result] {
                    below(part);
                }
                for part in [&c.loop_cond, &c.loop_step] {
                    open.push((part, nesting + 1, loops + 1));
                }
            }
        }
    }
    shape
}

/// An upper bound of the steps that a program of this shape takes on a value: every loop goes over its longest collection.
pub(super) fn most_steps(size: u64, loops: u32, longest: u64) -> u64 {
    size.saturating_mul(longest.saturating_add(size).saturating_pow(loops))
}

/// The length of the longest collection in a value; of the longest text as well where the rule `splits` texts.
pub(super) fn longest(value: &Value, splits: bool) -> u64 {
    let mut longest = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        let length = match value {
            Value::Array(items) => {
                open.extend(items);
                items.len()
            }
            Value::Object(map) => {
                open.extend(map.values());
                map.len()
            }
            Value::String(text) if splits => text.len(),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        longest = longest.max(length as u64);
    }
    longest
}
