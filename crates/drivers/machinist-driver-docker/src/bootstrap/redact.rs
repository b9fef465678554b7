//! Removes secrets from the output of a bootstrap. Pure.

use std::sync::LazyLock;

use regex::Regex;

const HIDDEN: &str = "[redacted]";

/// Shapes of secrets: bootstrap tokens, certificate keys and hashes, and data of kubeconfigs.
static SHAPES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let shapes = [
        r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b",
        r"\b[0-9a-fA-F]{64}\b",
        r"(?:certificate-authority|client-certificate|client-key)-data: *[A-Za-z0-9+/=]+",
        r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+",
    ];
    shapes.iter().map(|shape| Regex::new(shape).expect("the shapes are constants")).collect()
});

/// Replaces secrets, and keeps the last `longest` bytes. If the text was cut, it may begin inside
/// of a secret, so its first line is left out.
pub(crate) fn redact(text: &str, longest: usize, is_cut: Cut) -> String {
    let text = match is_cut {
        Cut::No => text,
        Cut::AtTheStart => text.split_once('\n').map_or("", |(_, rest)| rest),
    };
    let mut text = without_pem(text);
    for shape in SHAPES.iter() {
        text = shape.replace_all(&text, HIDDEN).into_owned();
    }
    let start = text.len().saturating_sub(longest);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.split_off(start)
}

/// Whether the beginning of a text is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    No,
    AtTheStart,
}

/// Replaces PEM blocks, also blocks without a begin or an end.
fn without_pem(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut is_inside = false;
    for line in text.split_inclusive('\n') {
        let (begins, ends) = (line.contains("-----BEGIN "), line.contains("-----END "));
        if ends && !begins && !is_inside {
            // The block began before the text.
            kept.clear();
        }
        if ends || (begins && !is_inside) {
            kept.push("[redacted]\n");
        } else if !is_inside {
            kept.push(line);
        }
        is_inside = (is_inside || begins) && !ends;
    }
    kept.dedup_by(|a, b| a == b && *a == "[redacted]\n");
    kept.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> String {
        redact(text, 4096, Cut::No)
    }

    #[test]
    fn tokens_and_keys_are_replaced() {
        let text = format!("join --token abcdef.0123456789abcdef --certificate-key {} ok", "0a".repeat(32));
        assert_eq!(all(&text), "join --token [redacted] --certificate-key [redacted] ok");
        assert_eq!(all("client-key-data: QUJD\nx"), "[redacted]\nx");
        assert_eq!(all("v1.33.0 at 2026-01-02, sha 0a0a"), "v1.33.0 at 2026-01-02, sha 0a0a");
    }

    #[test]
    fn pem_blocks_are_replaced_even_if_an_end_is_missing() {
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIcanary\n-----END RSA PRIVATE KEY-----\n";
        assert_eq!(all(&format!("before\n{key}after\n")), "before\n[redacted]\nafter\n");
        assert_eq!(all("before\n-----BEGIN PRIVATE KEY-----\nMIIcanary\n"), "before\n[redacted]\n");
        assert_eq!(all("MIIcanary\n-----END PRIVATE KEY-----\nafter\n"), "[redacted]\nafter\n");
    }

    #[test]
    fn only_the_end_is_kept_in_whole_characters() {
        assert_eq!(redact("aé", 1, Cut::No), "");
        assert_eq!(redact("abcdef", 3, Cut::No), "def");
        assert_eq!(redact("ef.0123456789abcdef canary\nnext\n", 4096, Cut::AtTheStart), "next\n");
    }
}
