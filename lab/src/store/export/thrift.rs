//! Writes Thrift's compact protocol, in which Parquet keeps its metadata.

/// The type of a field or of the elements of a list.
#[derive(Clone, Copy)]
pub(super) enum Type {
    I32 = 5,
    I64 = 6,
    Binary = 8,
    List = 9,
    Struct = 12,
}

/// The bytes of a struct. Fields must be added in ascending order of their field numbers.
#[derive(Default)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    /// Writes the head of a field. The field number must be larger than that of the field before,
    /// by at most 15.
    fn field(&mut self, number: u8, of: Type) -> &mut Vec<u8> {
        self.bytes.push((number - self.last) << 4 | of as u8);
        self.last = number;
        &mut self.bytes
    }

    pub(super) fn i32(mut self, number: u8, value: i32) -> Self {
        zigzag(self.field(number, Type::I32), i64::from(value));
        self
    }

    pub(super) fn i64(mut self, number: u8, value: i64) -> Self {
        zigzag(self.field(number, Type::I64), value);
        self
    }

    pub(super) fn text(mut self, number: u8, value: &str) -> Self {
        binary(self.field(number, Type::Binary), value);
        self
    }

    pub(super) fn structure(mut self, number: u8, value: Self) -> Self {
        self.field(number, Type::Struct).extend(value.end());
        self
    }

    pub(super) fn structures(self, number: u8, values: Vec<Self>) -> Self {
        let each = |out: &mut Vec<u8>, value: Self| out.extend(value.end());
        self.list(number, Type::Struct, values, each)
    }

    pub(super) fn texts(self, number: u8, values: Vec<&str>) -> Self {
        self.list(number, Type::Binary, values, binary)
    }

    pub(super) fn i32s(self, number: u8, values: Vec<i32>) -> Self {
        let each = |out: &mut Vec<u8>, value| zigzag(out, i64::from(value));
        self.list(number, Type::I32, values, each)
    }

    fn list<T>(
        mut self,
        number: u8,
        of: Type,
        values: Vec<T>,
        each: impl Fn(&mut Vec<u8>, T),
    ) -> Self {
        let out = self.field(number, Type::List);
        match u8::try_from(values.len()) {
            Ok(few) if few < 15 => out.push(few << 4 | of as u8),
            _ => {
                out.push(0xf0 | of as u8);
                varint(out, values.len() as u64);
            }
        }
        values.into_iter().for_each(|value| each(out, value));
        self
    }

    /// The bytes of the struct.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// Writes `value` with seven bits per byte, the lowest bits first. All bytes except the last have
/// their highest bit set.
pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Writes `value` with its sign in the lowest bit, so that negative numbers near zero also take few
/// bytes.
fn zigzag(out: &mut Vec<u8>, value: i64) {
    varint(out, (value << 1 ^ value >> 63).cast_unsigned());
}

fn binary(out: &mut Vec<u8>, value: &str) {
    varint(out, value.len() as u64);
    out.extend(value.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes follow from the specification of the protocol.
    #[test]
    fn structs_are_written_as_the_protocol_says() {
        let inner = Struct::default().i64(3, -1);
        let many = vec![7; 15];
        let written = Struct::default()
            .i32(1, 150)
            .text(4, "ab")
            .structure(5, inner)
            .texts(20, vec!["c"])
            .i32s(21, many);
        let mut expected = vec![0x15, 0xac, 0x02, 0x38, 2, b'a', b'b', 0x1c, 0x36, 1, 0];
        expected.extend([0xf9, 0x18, 1, b'c', 0x19, 0xf5, 15]);
        expected.extend([14; 15]);
        expected.push(0);
        assert_eq!(written.end(), expected);
    }
}
