//! What hostile rules and objects may not do. What rules mean is in the conformance case `rules`.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::crd::rules::judge::judge;
use crate::crd::schema::Schema;
use crate::status::FieldErrors;

/// A schema of `spec` with one rule, and what the definition is refused for.
fn schema_with(rule: &str) -> (Schema, Vec<String>) {
    let source = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "x-kubernetes-validations": [{"rule": rule, "message": "m"}],
        "properties": {
            "n": {"type": "integer"},
            "s": {"type": "string", "maxLength": 100},
            "l": {"type": "array", "maxItems": 1000, "items": {"type": "integer"}},
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
fn expressions_that_would_exhaust_a_stack_are_refused() {
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
fn an_expression_that_the_parser_would_misread_is_refused() {
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
fn the_deepest_expression_that_is_taken_fits_on_the_stack_of_a_worker() {
    let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
        for rule in [
            format!("{}self.n > 0", "1 + ".repeat(90)),
            format!("{}self.n > 0", "dyn(1) + ".repeat(90)),
            format!("{}true : false", "self.n > 0 ? ".repeat(45) + &"true : false ? ".repeat(44)),
            format!("{}1{}.size() > 0 && self.n > 0", "[".repeat(45), "]".repeat(45)),
        ] {
            let (schema, refused) = schema_with(&rule);
            // Refused or taken: what is taken must run.
            if refused.is_empty() {
                judged(&schema, json!({"n": 1}));
            }
        }
        let (schema, refused) = schema_with(&format!("{}self.n > 0", "1 + ".repeat(90)));
        assert!(refused.is_empty(), "{refused:?}");
        assert!(judged(&schema, json!({"n": 1})).is_empty());
    });
    worker.expect("a thread").join().expect("it did not overflow");
}

#[test]
fn loops_inside_of_loops_end_in_a_refusal_and_not_in_a_long_wait() {
    let (_, refused) = schema_with("self.l.all(a, self.l.all(b, self.l.all(c, a + b > c)))");
    assert!(refused[0].contains("estimated rule cost exceeds budget"), "{refused:?}");

    // Nothing is known of what a text is split into; the object decides.
    let (schema, refused) = schema_with(
        "self.s.split('').all(a, self.s.split('').all(b, self.s.split('').all(c, a + b + 'z' != c)))",
    );
    assert!(refused.is_empty(), "{refused:?}");
    assert!(judged(&schema, json!({"s": "abc"})).is_empty());
    let long = judged(&schema, json!({"s": "x".repeat(1_000)}));
    assert!(long[0].contains("running out of cost budget"), "{long:?}");
}

#[test]
fn a_rule_that_fails_to_run_refuses_the_object() {
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

    /// Texts made of what rules are made of, most of them wrong.
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
