//! Writes and reads numbers in JSON, which has no infinity. A finite number becomes a JSON number.
//! Any other number becomes a JSON string.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Other(String),
}

/// Writes `value` as a number or, if it is not finite, as `"inf"`, `"-inf"` or `"NaN"`.
pub(crate) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    let number = if value.is_finite() {
        Number::Finite(*value)
    } else {
        Number::Other(value.to_string())
    };
    number.serialize(to)
}

/// Reads a number that [`serialize`] has written.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    match Number::deserialize(from)? {
        Number::Finite(value) => Ok(value),
        Number::Other(text) => text.parse().map_err(D::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::measure::stats::Estimate;

    proptest! {
        #[test]
        fn every_number_is_read_as_it_was_written(
            values in prop::array::uniform3(prop::num::f64::ANY)
        ) {
            let [median, low, high] = values;
            let estimate = Estimate { median, low, high };
            let text = serde_json::to_string(&estimate).unwrap();
            let read: Estimate = serde_json::from_str(&text).unwrap();
            let bits = |of: f64| if of.is_nan() { f64::NAN.to_bits() } else { of.to_bits() };
            let read = [read.median, read.low, read.high].map(bits);
            prop_assert_eq!(read, values.map(bits), "{}", text);
        }
    }
}
