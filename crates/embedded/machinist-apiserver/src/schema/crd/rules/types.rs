//! Checks a rule before it runs. Finds undefined fields, variables and functions, and operands that
//! never match. Estimates the steps on the largest value that the schema and the request size
//! allow.
//!
//! Only certain errors are reported. If a type is unknown, every operation is allowed and costs
//! nothing.

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use kube_cel::cel::parser::Expression;

use crate::schema::crd::format::Format;
use crate::schema::crd::rules::functions::TYPES;
use crate::schema::crd::rules::value::escaped;
use crate::schema::crd::schema::{Schema, Type};

/// Functions that kube-apiserver offers to rules, except those for URLs, which need a heavy
/// library. The library also has functions such as `lists.range`. They are not in this list,
/// because they create large lists from nothing.
const FUNCTIONS: [&str; 110] = [
    // The language itself.
    "contains",
    "size",
    "startsWith",
    "endsWith",
    "string",
    "bytes",
    "double",
    "int",
    "uint",
    "bool",
    "dyn",
    "type",
    "matches",
    "duration",
    "timestamp",
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "@not_strictly_false",
    "@in",
    // Optional values.
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "none",
    "of",
    "ofNonZeroValue",
    "value",
    "hasValue",
    "or",
    "orValue",
    "optMap",
    "optFlatMap",
    // Texts.
    "charAt",
    "indexOf",
    "lastIndexOf",
    "join",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "reverse",
    "format",
    "quote",
    "strings.quote",
    // Lists and sets.
    "isSorted",
    "sum",
    "min",
    "max",
    "distinct",
    "flatten",
    "slice",
    "sort",
    "sortBy",
    "first",
    "last",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "equivalent",
    "intersects",
    // Patterns, addresses, quantities, versions.
    "find",
    "findAll",
    "ip",
    "isIP",
    "ip.isCanonical",
    "isCanonical",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "cidr",
    "isCIDR",
    "containsIP",
    "containsCIDR",
    "masked",
    "prefixLength",
    "quantity",
    "isQuantity",
    "sign",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "add",
    "sub",
    "compareTo",
    "isGreaterThan",
    "isLessThan",
    "semver",
    "isSemver",
    "major",
    "minor",
    "patch",
    // Named formats.
    "format.named",
    "format.dns1123Label",
    "format.dns1123Subdomain",
    "validate",
    "named",
    "dns1123Label",
    "dns1123Subdomain",
];

/// Known type of an expression.
#[derive(Debug, Clone)]
enum Ty<'a> {
    Unknown,
    Bool,
    Number,
    String,
    Null,
    /// The result of splitting a text of at most this many characters.
    Pieces(f64),
    /// Another type that is certainly none of the above.
    Other,
    /// A value that this schema describes. The flag marks a whole object.
    Of(&'a Schema, bool),
    Metadata,
}

impl<'a> Ty<'a> {
    /// Returns the type of the values that a schema describes.
    fn settled(self) -> Self {
        let Ty::Of(schema, _) = self else { return self };
        if schema.int_or_string || schema.nullable || schema.preserve_unknown && schema.of.is_none() {
            return Ty::Unknown;
        }
        match (schema.of, schema.format) {
            (Some(Type::Boolean), _) => Ty::Bool,
            (Some(Type::Integer | Type::Number), _) => Ty::Number,
            (Some(Type::String), None | Some(Format::Quantity)) => Ty::String,
            (Some(Type::String), Some(_)) => Ty::Other,
            _ => Ty::Of(schema, false),
        }
    }

    /// Whether values of these types can never be equal or be ordered.
    fn is_apart_from(&self, other: &Self) -> bool {
        let class = |ty: &Self| match ty {
            Ty::Bool => Some(0),
            Ty::Number => Some(1),
            Ty::String => Some(2),
            Ty::Of(schema, _) if matches!(schema.of, Some(Type::Object)) => Some(3),
            Ty::Of(schema, _) if matches!(schema.of, Some(Type::Array)) => Some(4),
            Ty::Pieces(_) => Some(4),
            Ty::Unknown | Ty::Null | Ty::Other | Ty::Metadata | Ty::Of(..) => None,
        };
        matches!((class(self), class(other)), (Some(a), Some(b)) if a != b)
    }

    fn is_certainly_no(&self, wanted: &Self) -> bool {
        let known = !matches!(self, Ty::Unknown);
        known && std::mem::discriminant(self) != std::mem::discriminant(wanted)
    }
}

/// Required result of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The bool of a rule.
    Bool,
    /// The text of a message.
    Text,
}

/// Returns the maximum steps of a program on a value of `schema`, or the reason why it cannot run.
pub(super) fn steps(
    program: &Expression,
    schema: &Schema,
    resource: bool,
    wanted: Wanted,
) -> Result<f64, String> {
    let of_self = Ty::Of(schema, resource);
    let variables = vec![("self", of_self.clone()), ("oldSelf", of_self)];
    let mut check = Check { variables, rounds: 1.0, steps: 0.0 };
    let found = check.of(program)?.settled();
    match wanted {
        Wanted::Bool if found.is_certainly_no(&Ty::Bool) => {
            Err("cel expression must evaluate to a bool".to_owned())
        }
        Wanted::Text if found.is_certainly_no(&Ty::String) => {
            Err("messageExpression must evaluate to a string".to_owned())
        }
        _ => Ok(check.steps),
    }
}

struct Check<'a> {
    variables: Vec<(&'a str, Ty<'a>)>,
    /// Number of iterations of the enclosing loops.
    rounds: f64,
    steps: f64,
}

impl<'a> Check<'a> {
    /// Counts steps as kube-apiserver's estimate does: one for a variable, a field and most calls,
    /// none for a constant.
    fn takes(&mut self, steps: f64) {
        self.steps += self.rounds * steps;
    }

    fn of(&mut self, expression: &'a Expression) -> Result<Ty<'a>, String> {
        match &expression.expr {
            Expr::Unspecified => Ok(Ty::Unknown),
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Ty::Bool,
                LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => Ty::Number,
                LiteralValue::String(_) => Ty::String,
                LiteralValue::Null => Ty::Null,
                LiteralValue::Bytes(_) => Ty::Other,
            }),
            Expr::Ident(name) => {
                self.takes(1.0);
                self.variable(name)
            }
            Expr::Select(select) => {
                let operand = &select.operand;
                if is_namespace(operand) {
                    return Ok(Ty::Unknown);
                }
                let of = self.of(operand)?;
                self.takes(1.0);
                let found = field(of, &select.field)?;
                Ok(if select.test { Ty::Bool } else { found })
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                self.takes(10.0);
                list.elements.iter().try_for_each(|element| self.of(element).map(drop))?;
                Ok(Ty::Other)
            }
            Expr::Map(map) => {
                self.takes(30.0);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.of(&entry.key)?;
                        self.of(&entry.value)?;
                    }
                }
                Ok(Ty::Other)
            }
            Expr::Struct(of) => Err(format!("undeclared reference to '{}' (in container '')", of.type_name)),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn variable(&self, name: &str) -> Result<Ty<'a>, String> {
        if let Some((_, ty)) = self.variables.iter().rev().find(|(known, _)| *known == name) {
            return Ok(ty.clone());
        }
        if TYPES.contains(&name) || name.starts_with('@') {
            return Ok(Ty::Unknown);
        }
        Err(format!("undeclared reference to '{name}' (in container '')"))
    }

    fn call(&mut self, call: &'a CallExpr) -> Result<Ty<'a>, String> {
        let mut operands = Vec::with_capacity(call.args.len());
        let name = call.func_name.as_str();
        let mut characters = 0.0;
        if let Some(target) = call.target.as_deref().filter(|target| !is_namespace(target)) {
            characters = longest_text(&self.of(target)?);
            if matches!(name, "contains" | "startsWith" | "endsWith" | "matches" | "split" | "findAll") {
                self.takes(characters * STEPS_PER_CHARACTER);
            }
        }
        for argument in &call.args {
            operands.push(self.of(argument)?);
        }
        if !matches!(
            name,
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::EQUALS | operators::NOT_EQUALS
        ) {
            self.takes(1.0);
        }
        let settled = |at: usize| operands.get(at).cloned().map_or(Ty::Unknown, Ty::settled);
        let unfit = || Err(format!("found no matching overload for '{name}'"));
        match name {
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT => {
                if operands.iter().any(|ty| ty.clone().settled().is_certainly_no(&Ty::Bool)) {
                    return unfit();
                }
                Ok(Ty::Bool)
            }
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS => {
                if settled(0).is_apart_from(&settled(1)) {
                    unfit()
                } else {
                    Ok(Ty::Bool)
                }
            }
            operators::IN => Ok(Ty::Bool),
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO => {
                if settled(0).is_apart_from(&settled(1)) {
                    return unfit();
                }
                Ok(match settled(0) {
                    Ty::Number => Ty::Number,
                    Ty::String => Ty::String,
                    _ => Ty::Unknown,
                })
            }
            operators::NEGATE => Ok(settled(0)),
            operators::CONDITIONAL => {
                if settled(0).is_certainly_no(&Ty::Bool) || settled(1).is_apart_from(&settled(2)) {
                    return unfit();
                }
                Ok(operands.into_iter().nth(1).unwrap_or(Ty::Unknown))
            }
            operators::INDEX => Ok(element(operands.into_iter().next().unwrap_or(Ty::Unknown))),
            operators::OPT_INDEX | operators::OPT_SELECT => Ok(Ty::Unknown),
            "split" | "findAll" => Ok(Ty::Pieces(characters)),
            "contains" | "startsWith" | "endsWith" | "matches" | "isIP" | "isCIDR" | "isQuantity"
            | "isSemver" | "hasValue" | "isSorted" => Ok(Ty::Bool),
            "size" | "indexOf" | "lastIndexOf" | "int" | "double" => Ok(Ty::Number),
            "string" | "lowerAscii" | "upperAscii" | "trim" | "substring" | "charAt" | "join" => {
                Ok(Ty::String)
            }
            _ if FUNCTIONS.contains(&name) => Ok(Ty::Unknown),
            _ => Err(format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> Result<Ty<'a>, String> {
        let range = self.of(&comprehension.iter_range)?;
        let start = self.of(&comprehension.accu_init)?;
        let (held, around) = (self.variables.len(), self.rounds);
        let rounds = most_items(&range);
        let (first, second) = match (&comprehension.iter_var2, range) {
            // A loop visits the keys of a map and the items of a list.
            (None, Ty::Of(schema, _)) if schema.items.is_none() => (Ty::String, Ty::Unknown),
            (None, range) => (element(range), Ty::Unknown),
            (Some(_), range) => (Ty::Unknown, element(range)),
        };
        self.variables.push((&comprehension.iter_var, first));
        if let Some(name) = &comprehension.iter_var2 {
            self.variables.push((name, second));
        }
        self.variables.push((&comprehension.accu_var, start.clone()));
        self.rounds = around * rounds;
        let inside = self.of(&comprehension.loop_cond).and_then(|_| self.of(&comprehension.loop_step));
        self.rounds = around;
        let result = inside.and_then(|_| self.of(&comprehension.result));
        self.variables.truncate(held);
        result
    }
}

/// Whether an identifier is part of a function's name and not a variable: `optional` in
/// `optional.of(x)`, `sets` in `sets.contains(a, b)`.
pub(super) fn is_namespace(expression: &Expression) -> bool {
    const NAMESPACES: [&str; 6] = ["optional", "sets", "strings", "format", "ip", "math"];
    matches!(&expression.expr, Expr::Ident(name) if NAMESPACES.contains(&name.as_str()))
}

/// Returns the type of a collection's elements.
fn element(of: Ty<'_>) -> Ty<'_> {
    match of {
        Ty::Of(schema, _) => schema
            .items
            .as_ref()
            .or(schema.additional.as_ref())
            .map_or(Ty::Unknown, |below| Ty::Of(below, below.embedded_resource)),
        Ty::Pieces(_) => Ty::String,
        _ => Ty::Unknown,
    }
}

/// A call that reads a text takes one step per ten characters.
const STEPS_PER_CHARACTER: f64 = 0.1;

/// Bytes of the largest request. This is the limit if the schema sets none.
const LARGEST_REQUEST: f64 = 3_145_728.0;

/// Returns the maximum number of items in a collection, or one if nothing is known.
fn most_items(of: &Ty<'_>) -> f64 {
    let schema = match of {
        Ty::Of(schema, _) => schema,
        Ty::Pieces(characters) => return characters.max(1.0),
        _ => return 1.0,
    };
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let bound = |count: u64| count as f64;
    if let Some(items) = &schema.items {
        return schema.bounds.max_items.map_or_else(|| largest_count(items), bound);
    }
    match &schema.additional {
        Some(values) => schema.bounds.max_properties.map_or_else(|| largest_count(values), bound),
        None => 1.0,
    }
}

/// Returns how many values of a schema fit into a request.
pub(super) fn largest_count(schema: &Schema) -> f64 {
    let smallest = match schema.of {
        Some(Type::Integer | Type::Number) => 1.0,
        Some(Type::Boolean) => 4.0,
        Some(Type::String | Type::Array | Type::Object) => 2.0,
        None => 1.0,
    };
    LARGEST_REQUEST / (smallest + 1.0)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn longest_text(of: &Ty<'_>) -> f64 {
    match of {
        Ty::Of(schema, _) if schema.of == Some(Type::String) => {
            schema.bounds.max_length.map_or(LARGEST_REQUEST, |length| length as f64)
        }
        _ => 0.0,
    }
}

fn field<'a>(of: Ty<'a>, name: &str) -> Result<Ty<'a>, String> {
    let undefined = || Err(format!("undefined field '{name}'"));
    match of {
        Ty::Of(_, true) if name == "metadata" => Ok(Ty::Metadata),
        Ty::Of(_, true) if matches!(name, "apiVersion" | "kind") => Ok(Ty::String),
        Ty::Of(schema, _) => {
            if let Some(values) = &schema.additional {
                return Ok(Ty::Of(values, values.embedded_resource));
            }
            let found =
                schema.properties.iter().find(|(property, _)| escaped(property).as_deref() == Some(name));
            match found {
                Some((_, below)) => Ok(Ty::Of(below, below.embedded_resource)),
                None if schema.of == Some(Type::Object) => undefined(),
                None if matches!(
                    schema.of,
                    Some(Type::String | Type::Integer | Type::Number | Type::Boolean)
                ) =>
                {
                    Err(format!(
                        "type '{}' does not support field selection",
                        schema.of.map_or("", Type::as_str)
                    ))
                }
                None => Ok(Ty::Unknown),
            }
        }
        Ty::Metadata if matches!(name, "name" | "generateName") => Ok(Ty::String),
        Ty::Metadata => undefined(),
        _ => Ok(Ty::Unknown),
    }
}
