//! A count that may be written as a percentage of another.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a fraction of a Machine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// For a surge: a small percentage still allows one.
    Up,
    /// For what may be missing: a small percentage allows none.
    Down,
}

/// The count that `value` means when all there is are `total`. `None` if it is no whole number and no percentage of one,
/// if it is negative, or if it does not fit.
pub fn scaled_value(value: &IntOrString, total: i32, rounding: Rounding) -> Option<i32> {
    let count = match value {
        IntOrString::Int(count) => i64::from(*count),
        IntOrString::String(text) => {
            let percent: i32 = text.strip_suffix('%')?.parse().ok()?;
            let hundredths = i64::from(percent) * i64::from(total);
            match rounding {
                Rounding::Down => hundredths.div_euclid(100),
                Rounding::Up => (hundredths + 99).div_euclid(100),
            }
        }
    };
    i32::try_from(count).ok().filter(|count| 0 <= *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surge_rounds_up_and_what_may_be_missing_rounds_down() {
        let percent = |text: &str| IntOrString::String(text.to_owned());
        for (value, up, down) in [
            (IntOrString::Int(2), Some(2), Some(2)),
            (IntOrString::Int(-1), None, None),
            (percent("25%"), Some(3), Some(2)),
            (percent("1%"), Some(1), Some(0)),
            (percent("0%"), Some(0), Some(0)),
            (percent("100%"), Some(10), Some(10)),
            (percent("-10%"), None, None),
            (percent("2"), None, None),
            (percent("2.5%"), None, None),
            (percent("%"), None, None),
            (percent("many"), None, None),
        ] {
            assert_eq!(scaled_value(&value, 10, Rounding::Up), up, "up, for {value:?}");
            assert_eq!(scaled_value(&value, 10, Rounding::Down), down, "down, for {value:?}");
        }
        assert_eq!(scaled_value(&percent("2147483647%"), i32::MAX, Rounding::Up), None);
    }
}
