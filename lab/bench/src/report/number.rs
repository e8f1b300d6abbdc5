//! Numbers for readers, with three significant digits.

/// Three significant digits, with thousands apart.
pub fn shown(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    match magnitude {
        3.. => grouped(value),
        2 => format!("{value:.0}"),
        1 => format!("{value:.1}"),
        0 => format!("{value:.2}"),
        -3..=-1 => format!("{value:.*}", (2 - magnitude).unsigned_abs() as usize),
        _ => format!("{value:.2e}"),
    }
}

/// A whole number, with thousands apart.
pub fn whole(value: u64) -> String {
    grouped(value as f64)
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number for an axis, without needless digits.
pub fn tick(value: f64) -> String {
    let text = if value != 0.0 && value.abs() < 1000.0 {
        format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        grouped(value)
    };
    if text.len() > 8 { format!("{value:e}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let numbers = [0.0, 0.01234, 0.5, 1.0, 12.345, 678.9, 12345.6, 1_234_567.0];
        let texts = ["0", "0.0123", "0.500", "1.00", "12.3", "679", "12,346", "1,234,567"];
        assert_eq!(numbers.map(shown), texts);
        assert_eq!([0.25, 2.0, 1500.0, 0.0].map(tick), ["0.25", "2", "1,500", "0"]);
    }
}
