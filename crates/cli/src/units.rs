//! Formats numbers for people: with a unit, and with few digits.

/// A number with its thousands separated.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with the singular or plural of a word.
pub fn times(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Bytes, in powers of a thousand.
pub fn bytes(number: u64) -> String {
    scaled(number as f64, "B", &["kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Nanoseconds.
pub fn nanoseconds(number: u64) -> String {
    scaled(number as f64, "ns", &["µs", "ms", "s"])
}

/// As `12 ns`, `4.0 µs`, `16.8 ms`, `120 s`.
fn scaled(mut value: f64, unit: &str, larger: &[&str]) -> String {
    if value < 1000.0 {
        return format!("{value:.0} {unit}");
    }
    let mut name = unit;
    for larger in larger {
        // 999.6 would be printed as 1000.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        name = larger;
    }
    let decimals = usize::from(value < 99.95);
    format!("{value:.decimals$} {name}")
}

/// A ratio with three digits.
pub fn ratio(value: f64) -> String {
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// A time span in its two largest units.
pub fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// The size of a device or file, rounded down, in units as `mkfs --size` takes them.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 {
        value /= 1024.0;
        unit += 1;
    }
    let shown = format!("{:.1}", (value * 10.0).floor() / 10.0);
    format!("{} {}", shown.trim_end_matches(".0"), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_powers_of_1024() {
        let sizes = [0, 1023, 256 << 20, 3 << 29, u64::MAX].map(size);
        assert_eq!(sizes, ["0 bytes", "1023 bytes", "256 MiB", "1.5 GiB", "16 EiB"]);
    }

    #[test]
    fn numbers_have_few_digits_and_a_unit() {
        let counts = [0, 999, 1000, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2].map(|n| times(n, "flush", "flushes")), ["1 flush", "2 flushes"]);
        let sizes = [0, 999, 1000, 4_040_000, 16_777_216, 99_960_000, 999_600_000, u64::MAX];
        let expected =
            ["0 B", "999 B", "1.0 kB", "4.0 MB", "16.8 MB", "100 MB", "1.0 GB", "18.4 EB"];
        assert_eq!(sizes.map(bytes), expected);
        let times = [12, 4_040, 16_800_000, 120_000_000_000, 5_000_000_000_000].map(nanoseconds);
        assert_eq!(times, ["12 ns", "4.0 µs", "16.8 ms", "120 s", "5000 s"]);
        assert_eq!(
            [0.0, 1.02, 9.999, 21.6, 170.4].map(ratio),
            ["0.00", "1.02", "10.0", "21.6", "170"]
        );
        assert_eq!([5, 60, 8_000, 90_000].map(span), ["5 s", "1 min", "2 h 13 min", "1 d 1 h"]);
    }
}
