//! Parses numbers as the kernel and perf print them.

pub(super) fn number(text: &[u8]) -> Option<u64> {
    match text.strip_prefix(b"0x") {
        Some(digits) => hexadecimal(digits),
        None => decimal(text),
    }
}

pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let mut value = (!text.is_empty()).then_some(0_u64)?;
    for byte in text {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    Some(value)
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// Parses a decimal number that is followed by `end`. Returns the number, and the text after `end`.
pub(super) fn number_until(text: &[u8], end: u8) -> Option<(u64, &[u8])> {
    let (digits, rest) = digits(text);
    let value = decimal(digits)?;
    (rest.first() == Some(&end)).then(|| (value, &rest[1..]))
}

/// Splits `text` after its leading decimal digits.
pub(super) fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

pub(super) fn narrow(value: u64, most: u64) -> Option<u32> {
    u32::try_from(value).ok().filter(|_| value <= most)
}
