//! Quantities as Kubernetes writes them. An API server may change the spelling of a quantity: it
//! writes `1` for `1000m`.

/// Whether two texts are the same quantity. Texts that are not quantities are compared as they are.
pub fn is_same_quantity(a: &str, b: &str) -> bool {
    a == b || nano(a).is_some_and(|value| Some(value) == nano(b))
}

/// The value in billionths; absent for a text that is not a quantity, or too large.
fn nano(text: &str) -> Option<i128> {
    let text = text.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let places = u32::try_from(fraction.len()).ok()?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == suffix);
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|known| *known == suffix);
    let (factor, exponent): (i128, i32) = match (binary, decimal) {
        (Some(index), _) => (1024_i128.checked_pow(u32::try_from(index).ok()? + 1)?, 0),
        (None, Some(index)) => (1, 3 * i32::try_from(index).ok()? - 9),
        (None, None) => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let exponent = exponent.checked_add(9)?.checked_sub(i32::try_from(places).ok()?)?;
    let value = digits.checked_mul(factor)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent < 0 { (value % power == 0).then_some(value / power) } else { value.checked_mul(power) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_the_same_quantity_in_every_spelling() {
        for (a, b) in [("1", "1000m"), ("1Ki", "1024"), ("1.5G", "1500M"), ("1e3", "1k"), ("0.5", "500m")] {
            assert!(is_same_quantity(a, b), "{a} {b}");
        }
        for (a, b) in [("1", "2"), ("1Gi", "1G"), ("1", "x"), ("", "0")] {
            assert!(!is_same_quantity(a, b), "{a} {b}");
        }
        assert!(is_same_quantity("x", "x"));
    }
}
