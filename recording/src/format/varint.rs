//! Encodes numbers and texts as bytes. Each byte has seven bits of a number, the least significant
//! first; the high bit means that more bytes follow. Signed numbers are first mapped to unsigned
//! numbers, so that small numbers of either sign take few bytes.

/// Appends `value` to `out`, in one to ten bytes.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    // The loop ends: the value loses seven bits in each iteration.
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// Appends to `out` the length of `text` in bytes, and then `text`.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Takes a number off the front of `bytes`. Returns `None` if `bytes` ends early or the number
/// exceeds 64 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Takes a text off the front of `bytes`. The length of the text, in bytes, precedes the text.
/// Bytes that are not UTF-8 are replaced. Returns `None` if `bytes` ends early.
pub(super) fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(take(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Maps a signed number to an unsigned one by moving the sign into the lowest bit.
pub(super) const fn fold(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

/// Maps the result of [`fold`] back to the signed number.
pub(super) const fn unfold(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_ends_early_or_does_not_fit_is_nothing() {
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        assert_eq!(
            take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]),
            None
        );
        assert_eq!(take_text(&mut &[3, b'a'][..]), None);
        assert_eq!(
            take_text(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..]),
            None
        );
    }

    proptest! {
        #[test]
        fn every_number_and_text_comes_back(value: u64, signed: i64, text: String) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put(&mut bytes, fold(signed));
            put_text(&mut bytes, &text);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(take(&mut rest).map(unfold), Some(signed));
            prop_assert_eq!(take_text(&mut rest), Some(text));
            prop_assert!(rest.is_empty());
        }
    }
}
