//! Counts that may be written as a percentage of a total.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Direction of rounding for a fraction of a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Rounds up, for a surge: a small percentage still allows one Machine.
    Up,
    /// Rounds down, for unavailable Machines: a small percentage allows none.
    Down,
}

/// Returns the count that `value` stands for, given the total. Returns `None` if the value is
/// neither an integer nor an integer percentage, if it is negative, or if it overflows.
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
    fn max_surge_rounds_up_and_max_unavailable_rounds_down() {
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
