//! Tests against hostile rules and objects. The conformance case `rules` tests the meaning of
//! rules.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::schema::crd::rules::judge::judge;
use crate::schema::crd::schema::Schema;
use crate::values::status::FieldErrors;

/// Returns a schema of `spec` with one rule, and the errors of the definition.
fn schema_with(rule: &str) -> (Schema, Vec<String>) {
    schema_of(&json!({"rule": rule, "message": "m"}))
}

fn schema_of(rule: &Value) -> (Schema, Vec<String>) {
    let source = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "x-kubernetes-validations": [rule],
        "properties": {
            "n": {"type": "integer"},
            "s": {"type": "string", "maxLength": 100},
            "l": {"type": "array", "maxItems": 1000, "items": {"type": "integer"}},
            "t": {"type": "array", "maxItems": 10, "items": {"type": "string"}},
        }
    }}});
    let mut errors = FieldErrors::default();
    let schema = Schema::parse(&source, "schema", &mut errors);
    (schema, errors.lines())
}

fn judged(schema: &Schema, spec: Value) -> Vec<String> {
    let mut errors = FieldErrors::default();
    judge(&json!({"spec": spec}), None, schema, &mut errors);
    errors.lines()
}

#[test]
fn expressions_that_would_exhaust_a_stack_are_rejected() {
    let nested = |open: &str, close: &str, times: usize| {
        format!("{}1{} == 1", open.repeat(times), close.repeat(times))
    };
    for (what, rule) in [
        ("brackets", nested("(", ")", 9_000)),
        ("lists", nested("[", "]", 9_000)),
        ("calls", nested("dyn(", ")", 4_000)),
        ("sums", format!("{}1 > 0", "1+".repeat(9_000))),
        ("negations", format!("{}true", "!".repeat(15_000))),
        ("choices", format!("{}true", "true?true:".repeat(1_900))),
        ("fields", format!("self{} == 1", ".n".repeat(9_000))),
        ("length", format!("'{}' == ''", "x".repeat(20_000))),
    ] {
        let (_, refused) = schema_with(&rule);
        assert_eq!(refused.len(), 1, "{what}: {refused:?}");
    }
}

#[test]
fn expressions_that_the_parser_misreads_are_rejected() {
    for misread in ["!!has(self.n)", "! !true", "self.n > --1", "1 - - -self.n < 0", "!!!true"] {
        let (_, refused) = schema_with(misread);
        assert!(refused.iter().any(|why| why.contains("cannot be read here")), "{misread}: {refused:?}");
    }
    for fine in
        ["!has(self.n) || self.n != -1", "1 - -self.n > 0", "self.s != '--!!' && !('!!' == \"--\")", "-1 < 0"]
    {
        let (schema, refused) = schema_with(fine);
        assert!(refused.is_empty(), "{fine}: {refused:?}");
        assert_eq!(judged(&schema, json!({"n": 1, "s": "x"})), Vec::<String>::new(), "{fine}");
    }
}

#[test]
fn the_deepest_accepted_expression_fits_a_worker_stack() {
    let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
        for rule in [
            format!("{}self.n > 0", "1 + ".repeat(90)),
            format!("{}self.n > 0", "dyn(1) + ".repeat(90)),
            format!("{}true : false", "self.n > 0 ? ".repeat(45) + &"true : false ? ".repeat(44)),
            format!("{}1{}.size() > 0 && self.n > 0", "[".repeat(45), "]".repeat(45)),
        ] {
            let (schema, refused) = schema_with(&rule);
            // A rule may be rejected, but an accepted rule must run.
            if refused.is_empty() {
                judged(&schema, json!({"n": 1}));
            }
        }
        let (schema, refused) = schema_with(&format!("{}self.n > 0", "1 + ".repeat(90)));
        assert!(refused.is_empty(), "{refused:?}");
        assert!(judged(&schema, json!({"n": 1})).is_empty());
    });
    worker.expect("the thread starts").join().expect("the stack suffices");
}

#[test]
fn nested_loops_exceed_the_cost_budget() {
    let (_, refused) = schema_with("self.l.all(a, self.l.all(b, self.l.all(c, a + b > c)))");
    assert!(refused[0].contains("estimated rule cost exceeds budget"), "{refused:?}");

    let (_, refused) = schema_with(
        "self.s.split('').all(a, self.s.split('').all(b, self.s.split('').all(c, self.s.split('').all(d, a != d))))",
    );
    assert!(refused[0].contains("estimated rule cost exceeds budget"), "{refused:?}");

    // Nothing is known about a list that an expression creates, so the object decides.
    let (schema, refused) = schema_with(
        "self.l.map(a, a).all(a, self.l.map(b, b).all(b, self.l.map(c, c).all(c, a + b + c < 9)))",
    );
    assert!(refused.is_empty(), "{refused:?}");
    assert!(judged(&schema, json!({"l": [1, 2]})).is_empty());
    let long = judged(&schema, json!({"l": vec![1; 1_000]}));
    assert!(long[0].contains("running out of cost budget"), "{long:?}");
}

#[test]
fn message_expressions_count_against_the_budget() {
    let nested = "self.s.split('').map(a, self.s.split('').map(b, self.s.split('').map(c, self.s.split('').map(d, \
                  self.s.split('').map(e, e).join()).join()).join()).join()).join()";
    let (_, refused) = schema_of(&json!({"rule": "self.n > 0", "messageExpression": nested}));
    assert!(refused[0].contains("estimated messageExpression cost exceeds budget"), "{refused:?}");

    // If the definition does not reveal the cost, the object decides.
    let hidden = nested.replace("self.s.split('')", "self.l.map(i, string(i))");
    let (schema, refused) = schema_of(&json!({"rule": "self.n > 0", "messageExpression": hidden}));
    assert!(refused.is_empty(), "{refused:?}");
    let short = judged(&schema, json!({"n": 0, "l": [7]}));
    assert!(short[0].ends_with(": 7"), "{short:?}");
    let long = judged(&schema, json!({"n": 0, "l": vec![7; 100]}));
    assert!(
        long[0].contains("messageExpression evaluation failed due to running out of cost budget"),
        "{long:?}"
    );
    assert!(judged(&schema, json!({"n": 1, "l": vec![7; 100]})).is_empty(), "the message is not needed");
}

#[test]
fn values_that_would_exhaust_memory_are_not_created() {
    let doubled = ".map(a, a + a)".repeat(40);
    for rule in [
        format!("[self.s]{doubled}.size() == 1"),
        format!("[self.l]{doubled}.size() == 1"),
        format!("[[self.s]]{doubled}.map(a, a.join('-')).size() == 1"),
        "[self.s].map(a, a.replace('', a)).map(a, a.replace('', a)).map(a, a.replace('', a)).map(a, a.replace('', a)) \
         == []"
            .to_owned(),
        "[self.s].map(a, [a, a, a, a].join(a)).map(a, a.split('').join(a)).map(a, a.split('').join(a)).map(a, \
         a.split('').join(a)) == []"
            .to_owned(),
        "self.l.map(a, '%.65535f').join('').format(self.l.map(a, 1.5)) == ''".to_owned(),
        "[self.l].map(a, a.map(b, a).map(c, a.map(d, a))) == []".to_owned(),
    ] {
        let (schema, refused) = schema_with(&rule);
        assert!(refused.is_empty(), "{rule}: {refused:?}");
        let complaints = judged(&schema, json!({"s": "x".repeat(100), "l": vec![1; 1_000]}));
        let refusal = complaints.first().expect(&rule);
        assert!(refusal.contains("running out of cost budget"), "{rule}: {complaints:?}");
    }
}

#[test]
fn realistic_rules_stay_within_the_budget() {
    let object = json!({
        "s": "a/b".repeat(33), "n": 5, "l": (0..200).collect::<Vec<_>>(), "t": ["x".repeat(63), "y", "z"],
    });
    for rule in [
        "self.l.all(a, self.l.exists_one(b, a == b))",
        "self.l.map(a, a * 2).filter(a, a > 10).size() > 100",
        "self.s.split('/').all(part, part.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",
        "self.t.map(t, t.upperAscii() + '-' + string(self.n)).join(', ').size() < 1000",
        "self.s.replace('/', '//').lowerAscii().contains('//')",
        "'%s has %d of %.2f'.format([self.s, self.n, 1.5]).endsWith('1.50')",
        "self.l.sum() < 100000 && self.l == self.l && self.l.distinct().size() == self.l.size()",
        "self.t.exists(t, t in ['x', 'y']) && (has(self.n) ? self.n : 0) + self.l[3] == 8",
    ] {
        let (schema, refused) = schema_with(rule);
        assert!(refused.is_empty(), "{rule}: {refused:?}");
        assert_eq!(judged(&schema, object.clone()), Vec::<String>::new(), "{rule}");
    }
}

#[test]
fn a_panic_in_the_library_rejects_the_object() {
    let (schema, refused) = schema_with("('%.' + self.s + 'f').format([1.5]) == ''");
    assert!(refused.is_empty(), "{refused:?}");
    let complaints = judged(&schema, json!({"s": "99999"}));
    assert!(complaints[0].contains("evaluating rule: m"), "{complaints:?}");
}

#[test]
fn a_rule_that_fails_to_run_rejects_the_object() {
    for (rule, spec, why) in [
        ("self.n / 0 > 1", json!({"n": 1}), "division by zero"),
        ("self.l[5] > 1", json!({"l": [1]}), ""),
        ("self.n > 0", json!({}), "no such key: n"),
        ("self.n + 9223372036854775807 > 0", json!({"n": 1}), "integer overflow"),
        ("timestamp(self.s).getFullYear() > 0", json!({"s": "never"}), ""),
    ] {
        let (schema, refused) = schema_with(rule);
        assert!(refused.is_empty(), "{rule}: {refused:?}");
        let complaints = judged(&schema, spec);
        assert_eq!(complaints.len(), 1, "{rule}");
        assert!(
            complaints[0].contains(why) && complaints[0].contains("evaluating rule: m"),
            "{complaints:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Texts made of fragments of rules, most of them invalid.
    #[test]
    fn no_text_makes_the_parser_or_a_run_panic(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "self", "oldSelf", ".n", ".s", ".l", "[", "]", "(", ")", "1", "-", "+", "*", "/", "%", "'a'", "\"", "?", ":",
                "&&", "||", "!", "==", "<", ".all(", "x", ",", ".map(", "has(", "size(", "true", "null", "{", "}", "in",
                ".matches(", ".split(", "1.5e3", "0x1f", "b'1'", "r'", "\\", "duration('1h')", "ü", "\u{0}", ".?n", "[?0]",
            ]),
            0..12,
        )
    ) {
        let (schema, _) = schema_with(&words.concat());
        judged(&schema, json!({"n": 1, "s": "a", "l": [1, 2]}));
    }
}
