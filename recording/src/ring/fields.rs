//! Reads the fields of one event of a ring buffer by their names.

use super::entries::little_endian;
use super::layout::{Field, Format};

/// The bytes of one event and the format that describes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    format: &'a Format,
    payload: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn new(format: &'a Format, payload: &'a [u8]) -> Self {
        Self { format, payload }
    }

    fn field(&self, name: &str) -> Option<&'a Field> {
        self.format.fields.iter().find(|field| field.name == name)
    }

    /// Returns the field `name` as an unsigned number; `None` if there is no such field, or the
    /// event ends before the end of the field.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let field = self.field(name)?;
        let bytes = self.payload.get(field.offset..)?.get(..field.size)?;
        little_endian(bytes)
    }

    /// Returns the field `name` as a signed number. Returns `None` if [`Record::number`] does, or
    /// if the value of an unsigned field does not fit.
    pub(super) fn signed(&self, name: &str) -> Option<i64> {
        let field = self.field(name)?;
        let value = self.number(name)?;
        if !field.signed {
            return i64::try_from(value).ok();
        }
        let unused = 64_u32.checked_sub(u32::try_from(field.size).ok()?.checked_mul(8)?)?;
        Some((value.checked_shl(unused)?).cast_signed() >> unused)
    }

    /// Returns the field `name` as a `T`; `None` if there is no such field, or its number does not
    /// fit.
    pub(super) fn small<T: TryFrom<u64>>(&self, name: &str) -> Option<T> {
        T::try_from(self.number(name)?).ok()
    }

    /// Returns the text from the field's beginning to the first zero byte or the end of the event.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let bytes = self.payload.get(self.field(name)?.offset..)?;
        let text = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).trim_end().to_owned())
    }

    /// Returns the addresses of a call chain. The field `size` gives the number of addresses, but
    /// the function returns at most the number of addresses that the event holds.
    pub(super) fn addresses(&self, name: &str) -> Option<Vec<u64>> {
        /// The values that mark the end of a call chain that is shorter than its array.
        const NONE: [u64; 3] = [0, u64::MAX, u32::MAX as u64];
        let (field, size) = (self.field(name)?, self.field("size")?);
        // The addresses of the call chain follow the field `int size`, aligned to the width of an
        // address. So the distance between the two fields is this width.
        let width = field.offset.checked_sub(size.offset);
        let width = width.filter(|width| matches!(width, 4 | 8))?;
        let most = usize::try_from(self.number("size")?).ok()?;
        let bytes = self.payload.get(field.offset..)?;
        let chain = bytes.chunks_exact(width).filter_map(little_endian);
        Some(
            chain
                .take(most)
                .take_while(|word| !NONE.contains(word))
                .collect(),
        )
    }
}
