//! Limits the cost of rules. CEL always terminates, but nested loops over long lists take very
//! long, and a text that is repeatedly appended to itself exceeds any memory.
//!
//! [`most`] visits a program once with the [extents](Extent) of its input and bounds both its steps
//! and its memory. The model follows the library: selecting a field copies the field, and appending
//! an item to a list copies the whole list.

use std::rc::Rc;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use kube_cel::cel::parser::Expression;

use crate::schema::crd::rules::extent::Extent;
use crate::schema::crd::rules::types;

/// Maximum steps of all rules on one object. kube-apiserver's limit has the same order of
/// magnitude.
pub(super) const MAX_STEPS: f64 = 10_000_000.0;
/// Maximum bytes that one rule may hold at a time. The largest request has three million.
pub(super) const MAX_BYTES: f64 = 268_435_456.0;
/// Maximum estimated steps of a rule over all values of one object. A definition with a more
/// expensive rule is rejected.
pub(super) const MAX_ESTIMATED: f64 = 10_000_000.0;
/// Maximum nesting of expressions, so that evaluation never exhausts a stack.
pub(super) const MAX_NESTING: usize = 100;

/// Steps to copy one value, and to copy one byte of text.
const COPYING: (f64, f64) = (0.5, 0.001);
/// Steps of a function to read one value, and to read one byte of text.
const READING: (f64, f64) = (1.0, 0.1);
/// Maximum bytes of a formatted number: `f64::MIN` has 310.
const MAX_NUMBER: f64 = 400.0;
/// Bytes per value, excluding its text, in the debug format that functions such as `join` use.
const SHOWN: f64 = 100.0;

/// Upper bound of the cost of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) steps: f64,
    /// Bytes of all results that may exist at one time.
    pub(super) bytes: f64,
}

/// Bounds the cost of a program on values with these extents.
pub(super) fn most(program: &Expression, now: &Rc<Extent>, past: Option<&Rc<Extent>>) -> Cost {
    let mut variables = vec![("self", now.clone())];
    variables.extend(past.map(|past| ("oldSelf", past.clone())));
    let mut bound = Bound { variables, rounds: 1.0, cost: Cost { steps: 0.0, bytes: 0.0 } };
    bound.of(program);
    bound.cost
}

struct Bound<'a> {
    variables: Vec<(&'a str, Rc<Extent>)>,
    /// Number of iterations of the enclosing loops.
    rounds: f64,
    cost: Cost,
}

impl<'a> Bound<'a> {
    fn takes(&mut self, steps: f64) {
        self.cost.steps += self.rounds * steps;
    }

    fn copies(&mut self, copied: &Extent) {
        self.takes(1.0 + copied.weight(COPYING));
    }

    /// Adds a result that lives until it is used. Every expression has one at a time.
    fn holds(&mut self, made: Extent) -> Rc<Extent> {
        self.cost.bytes += made.memory();
        self.copies(&made);
        Rc::new(made)
    }

    fn of(&mut self, expression: &'a Expression) -> Rc<Extent> {
        match &expression.expr {
            Expr::Unspecified | Expr::Struct(_) => Rc::new(Extent::single()),
            Expr::Literal(LiteralValue::String(text)) => {
                Rc::new(Extent::text(length(text.inner().as_bytes())))
            }
            Expr::Literal(LiteralValue::Bytes(bytes)) => Rc::new(Extent::text(length(bytes.inner()))),
            Expr::Literal(_) => Rc::new(Extent::single()),
            Expr::Ident(name) => {
                self.takes(1.0);
                let known = self.variables.iter().rev().find(|(known, _)| *known == name.as_str());
                known.map_or_else(|| Rc::new(Extent::single()), |(_, extent)| extent.clone())
            }
            Expr::Select(select) => {
                let of = self.of(&select.operand);
                if select.test {
                    self.takes(1.0);
                    return Rc::new(Extent::single());
                }
                let field = of.field(&select.field);
                self.copies(&field);
                field
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items: Vec<_> = list.elements.iter().map(|element| self.of(element)).collect();
                self.holds(Extent::list_of(&items))
            }
            Expr::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        entries.push(self.of(&entry.key));
                        entries.push(self.of(&entry.value));
                    }
                }
                self.holds(Extent::list_of(&entries))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    /// Bounds the loop of a macro. The result is a bool, a count, or a list that grows with each
    /// iteration.
    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> Rc<Extent> {
        let range = self.of(&comprehension.iter_range);
        let start = self.of(&comprehension.accu_init);
        let (held, around, rounds) = (self.variables.len(), self.rounds, range.length);
        self.copies(&range);
        self.variables.push((&comprehension.iter_var, range.walked()));
        if let Some(name) = &comprehension.iter_var2 {
            self.variables.push((name, range.item()));
        }
        self.variables.push((&comprehension.accu_var, Rc::new(Extent::default())));
        self.rounds = around * rounds;
        self.of(&comprehension.loop_cond);
        let added = self.of(&comprehension.loop_step);
        let whole = start.and(&added.times(rounds));
        // Each iteration copies the accumulated result twice.
        self.copies(&whole);
        self.rounds = around;
        self.variables.truncate(held);
        let whole = self.holds(whole);
        self.variables.push((&comprehension.accu_var, whole));
        let result = self.of(&comprehension.result);
        self.variables.truncate(held);
        result
    }

    fn call(&mut self, call: &'a CallExpr) -> Rc<Extent> {
        let name = call.func_name.as_str();
        let operands: Vec<Rc<Extent>> = call
            .target
            .as_deref()
            .filter(|target| !types::is_namespace(target))
            .into_iter()
            .chain(&call.args)
            .map(|operand| self.of(operand))
            .collect();
        let nothing = Rc::new(Extent::default());
        let operand = |index: usize| operands.get(index).unwrap_or(&nothing);
        let (first, second) = (operand(0), operand(1));
        match name {
            operators::CONDITIONAL => {
                self.takes(1.0);
                return Rc::new(second.or(operand(2)));
            }
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => {
                let found = match call.args.get(1).map(|key| &key.expr) {
                    Some(Expr::Literal(LiteralValue::String(key))) => first.field(key.inner()),
                    _ => first.item(),
                };
                self.copies(&found);
                return found;
            }
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS => {
                self.takes(1.0 + first.weight(READING).min(second.weight(READING)));
                return Rc::new(Extent::single());
            }
            operators::ADD => return self.holds(first.and(second)),
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE => {
                self.takes(1.0);
                return Rc::new(Extent::single());
            }
            _ => {}
        }
        let read: f64 = operands.iter().map(|operand| operand.weight(READING)).sum();
        self.takes(1.0 + read + pairs(name, first, second));
        let format = || match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Literal(LiteralValue::String(text))) => written_out(text.inner()),
            // The format is unknown. Each precision in it takes seven characters, `%.9999f`, and
            // adds at most `MAX_PRECISION` digits.
            _ => first.bytes * MAX_PRECISION / 7.0,
        };
        let made = match name {
            "size" | "int" | "uint" | "double" | "bool" | "contains" | "startsWith" | "endsWith"
            | "matches" | "indexOf" | "lastIndexOf" | "isSorted" | "hasValue" | "compareTo" => {
                Extent::single()
            }
            "replace" => Extent::text(first.bytes + (first.bytes + 1.0) * operand(2).bytes),
            "join" => Extent::text(first.bytes * MAX_ESCAPE + first.values * (SHOWN + second.bytes)),
            "split" | "findAll" => Extent::pieces_of(first.bytes),
            "format" => {
                Extent::text(format() + first.bytes + second.bytes * MAX_ESCAPE + second.values * MAX_NUMBER)
            }
            "string" | "quote" | "bytes" => Extent::text(MAX_NUMBER + read_bytes(&operands) * 3.0),
            "first" | "last" => Extent::clone(&first.item()),
            "trim" | "substring" | "charAt" | "lowerAscii" | "upperAscii" | "reverse" | "slice" | "sort"
            | "distinct" | "find" | "dyn" | "of" | "ofNonZeroValue" | "value" | "or" | "orValue" => {
                operands.iter().fold(Extent::default(), |all, operand| all.or(operand))
            }
            _ => Extent::anything(
                operands.iter().map(|operand| operand.values).sum::<f64>() + 1.0,
                read_bytes(&operands) + MAX_NUMBER,
            ),
        };
        self.holds(made)
    }
}

/// Maximum digits after the decimal point in a format. The library panics beyond it.
const MAX_PRECISION: f64 = 65_535.0;
/// Maximum bytes of one escaped byte of text: `\u{7f}`.
const MAX_ESCAPE: f64 = 6.0;

fn read_bytes(operands: &[Rc<Extent>]) -> f64 {
    operands.iter().map(|operand| operand.bytes).sum()
}

/// Returns the steps of functions that compare all parts of one value with all parts of another.
fn pairs(name: &str, first: &Extent, second: &Extent) -> f64 {
    match name {
        // Each call compiles the pattern and applies it to the text.
        "matches" | "find" | "findAll" => 100.0 + first.bytes * second.bytes * 0.025,
        "contains" | "indexOf" | "lastIndexOf" => {
            first.bytes * second.bytes * COPYING.1 + first.length * second.values
        }
        "intersects" | "equivalent" => first.values * second.values + first.bytes * second.length * 0.1,
        "distinct" => first.length * first.weight(READING),
        "sort" | "sortBy" => first.weight(READING) * (1.0 + first.length).log2(),
        _ => 0.0,
    }
}

/// Returns the sum of the precisions in a format.
fn written_out(format: &str) -> f64 {
    let precisions = format.split("%.").skip(1).map(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        digits.parse::<f64>().unwrap_or(0.0).min(MAX_PRECISION)
    });
    precisions.sum()
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn length(of: &[u8]) -> f64 {
    of.len() as f64
}

/// Returns the nesting depth of a program. There is no recursion here, because the depth may exceed
/// any stack.
pub(super) fn nesting(program: &Expression) -> usize {
    let mut deepest = 0;
    let mut open: Vec<(&Expression, usize)> = vec![(program, 1)];
    while let Some((expression, nesting)) = open.pop() {
        deepest = deepest.max(nesting);
        let mut below = |part| open.push((part, nesting + 1));
        match &expression.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Call(call) => {
                call.target.as_deref().into_iter().chain(&call.args).for_each(below);
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
                [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
                    .into_iter()
                    .for_each(below);
            }
        }
    }
    deepest
}
