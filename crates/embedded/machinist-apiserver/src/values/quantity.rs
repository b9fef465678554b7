//! Quantities in canonical form: without a fraction, and with the largest unit that loses no
//! precision.

/// Quantities have a precision of one billionth. Smaller fractions are rounded up.
const NANOS: i128 = 1_000_000_000;
const DECIMAL: [(i32, &str); 10] =
    [(18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"), (-6, "u"), (-9, "n")];
const BINARY: [(u32, &str); 6] = [(60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];

/// An amount in billionths, and the kind of unit of its text.
#[derive(Debug, Clone, Copy)]
struct Quantity {
    nanos: i128,
    units: Units,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Units {
    Decimal,
    Binary,
    /// Exponent notation, such as `1e3`.
    Exponent,
}

/// Returns the stored form of a quantity. Returns `None` if the text is not a quantity or is too
/// large to calculate with.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let Quantity { nanos, units } = parse(text)?;
    let is_small = nanos.abs() < 1024 * NANOS;
    if units == Units::Binary && !is_small && nanos % NANOS == 0 {
        let whole = nanos / NANOS;
        let unit = BINARY.iter().find(|(bits, _)| whole % (1 << bits) == 0);
        return Some(
            unit.map_or_else(|| whole.to_string(), |(bits, unit)| format!("{}{unit}", whole >> bits)),
        );
    }
    if nanos == 0 {
        return Some("0".to_owned());
    }
    // The last unit is one billionth, and every amount is a multiple of it.
    let (exponent, unit) = DECIMAL.into_iter().find(|(exponent, _)| nanos % ten_to(exponent + 9) == 0)?;
    let number = nanos / ten_to(exponent + 9);
    Some(match units {
        Units::Exponent if exponent != 0 => format!("{number}e{exponent}"),
        Units::Exponent => number.to_string(),
        Units::Decimal | Units::Binary => format!("{number}{unit}"),
    })
}

/// Whether one quantity is more than another. False if either text is not a quantity.
pub(crate) fn is_more(one: &str, other: &str) -> bool {
    matches!((parse(one), parse(other)), (Some(one), Some(other)) if other.nanos < one.nanos)
}

fn ten_to(exponent: i32) -> i128 {
    10_i128.pow(u32::try_from(exponent).unwrap_or_default())
}

/// Whether the text is a quantity, also if the quantity is too large to calculate with.
pub(crate) fn is_quantity(text: &str) -> bool {
    parts(text).is_some_and(|parts| unit_of(parts.unit).is_some())
}

/// The parts of a quantity's text.
struct QuantityParts<'a> {
    negative: bool,
    /// All digits, without the point.
    digits: String,
    fraction: &'a str,
    unit: &'a str,
}

fn parts(text: &str) -> Option<QuantityParts<'_>> {
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (negative, number) = match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then_some(QuantityParts { negative, digits, fraction, unit })
}

fn parse(text: &str) -> Option<Quantity> {
    let QuantityParts { negative, digits: all, fraction, unit } = parts(text)?;
    let mantissa: i128 = all.parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()?;
    let (units, exponent, bits) = unit_of(unit)?;
    // The whole calculation comes first, so that only the result is rounded.
    let power = exponent + 9 - scale;
    let scaled = mantissa.checked_mul(1_i128.checked_shl(bits)?)?;
    let nanos = match power {
        0.. => scaled.checked_mul(10_i128.checked_pow(u32::try_from(power).ok()?)?)?,
        _ => {
            let divisor = 10_i128.checked_pow(power.unsigned_abs())?;
            scaled / divisor + i128::from(scaled % divisor != 0)
        }
    };
    Some(Quantity { nanos: if negative { -nanos } else { nanos }, units })
}

/// Returns the kind of a unit, with its powers of ten and of two.
fn unit_of(unit: &str) -> Option<(Units, i32, u32)> {
    if let Some((exponent, _)) = DECIMAL.iter().find(|(_, known)| *known == unit) {
        return Some((Units::Decimal, *exponent, 0));
    }
    if let Some((bits, _)) = BINARY.iter().find(|(_, known)| *known == unit) {
        return Some((Units::Binary, 0, *bits));
    }
    let exponent = unit.strip_prefix(['e', 'E'])?;
    Some((Units::Exponent, exponent.parse().ok()?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_have_one_canonical_form() {
        let cases = [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1", "1"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("1024Mi", "1Gi"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1536Mi", "1536Mi"),
            ("2Gi", "2Gi"),
            ("1.5Gi", "1536Mi"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-1500m", "-1500m"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("100M", "100M"),
            ("12E", "12E"),
            ("0.0000000001", "1n"),
            ("1.1Ki", "1126400m"),
        ];
        for (text, wanted) in cases {
            assert_eq!(canonical(text).as_deref(), Some(wanted), "{text}");
        }
        for wrong in ["", "x", "1x", "1.2.3", "-", "1e", "--1"] {
            assert_eq!(canonical(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn amounts_compare_across_units() {
        assert!(is_more("2Gi", "1Gi"));
        assert!(is_more("1Gi", "1G"));
        assert!(!is_more("1000m", "1"));
        assert!(!is_more("x", "1"));
    }

    proptest! {
        #[test]
        fn canonical_form_is_lossless(text in "[0-9]{1,12}(\\.[0-9]{1,12})?(Ki|Mi|Gi|Ei|n|m|k|M|E|e[0-9]{1,2})?") {
            if let Some(once) = canonical(&text) {
                prop_assert!(canonical(&once).is_some());
                prop_assert!(!is_more(&once, &text) && !is_more(&text, &once));
            }
        }
    }
}
