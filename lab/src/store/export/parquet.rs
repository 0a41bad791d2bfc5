//! Writes files of Apache Parquet: flat tables without missing values, not compressed.
//!
//! A file has groups of rows. In a group, each column has one page of values. A column of text also
//! has a dictionary, and the page of this column has runs of equal indices into the dictionary. So
//! repeated texts take little room. The end of the file says where the pages are. The format's
//! specification, `parquet.thrift`, defines the numbers of fields and types.

use std::collections::BTreeMap;

use super::thrift::{Struct, varint};

/// A column.
pub(super) struct Column<'a> {
    pub(super) name: &'a str,
    pub(super) values: Values<'a>,
}

/// The values of a column.
#[derive(Clone, Copy)]
pub(super) enum Values<'a> {
    Text(&'a [String]),
    Count(&'a [u64]),
    Number(&'a [f64]),
}

/// The four bytes with which each file begins and ends.
const MAGIC: &[u8] = b"PAR1";
/// The maximum number of rows in a row group of the Parquet file. It limits the size of a data
/// page.
const GROUP: usize = 100_000;

const PLAIN: i32 = 0;
const RLE: i32 = 3;
const RLE_DICTIONARY: i32 = 8;
const DATA_PAGE: i32 = 0;
const DICTIONARY_PAGE: i32 = 2;

/// Returns the bytes of a Parquet file with these columns and these pairs of metadata. All columns
/// must have the same number of values.
pub(super) fn file(columns: &[Column<'_>], metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let rows = columns.first().map_or(0, |column| column.values.len());
    let starts = (0..rows).step_by(GROUP);
    let groups = starts.map(|start| group(&mut out, columns, start, rows.min(start + GROUP)));
    let groups: Vec<Struct> = groups.collect();
    let pair = |(key, value): &(&str, &str)| Struct::default().text(1, key).text(2, value);
    let footer = Struct::default()
        .i32(1, 1)
        .structures(2, schema(columns))
        .i64(3, signed(rows))
        .structures(4, groups)
        .structures(5, metadata.iter().map(pair).collect())
        .text(6, concat!("plimsoll version ", env!("CARGO_PKG_VERSION")))
        .end();
    out.extend(&footer);
    let length = u32::try_from(footer.len()).expect("a footer of a few kilobytes");
    out.extend(length.to_le_bytes());
    out.extend(MAGIC);
    out
}

/// The schema of a file, as Parquet writes it: the root, and an element for each column.
fn schema(columns: &[Column<'_>]) -> Vec<Struct> {
    const REQUIRED: i32 = 0;
    let root = Struct::default()
        .text(4, "schema")
        .i32(5, i32::try_from(columns.len()).expect("a few columns"));
    let element = |column: &Column<'_>| {
        let element = Struct::default()
            .i32(1, column.values.kind())
            .i32(3, REQUIRED)
            .text(4, column.name);
        match column.values {
            Values::Text(_) => element.i32(6, 0),
            Values::Count(_) => element.i32(6, 14),
            Values::Number(_) => element,
        }
    };
    std::iter::once(root)
        .chain(columns.iter().map(element))
        .collect()
}

/// Writes the rows from `start` to `end` as one group, and returns the description of the group.
fn group(out: &mut Vec<u8>, columns: &[Column<'_>], start: usize, end: usize) -> Struct {
    let before = out.len();
    let chunks = columns.iter().map(|column| {
        let values = column.values.part(start, end);
        let begin = out.len();
        let (page, encodings) = values.write(out);
        let size = signed(out.len() - begin);
        let chunk = Struct::default()
            .i32(1, values.kind())
            .i32s(2, encodings)
            .texts(3, vec![column.name])
            .i32(4, 0)
            .i64(5, signed(values.len()))
            .i64(6, size)
            .i64(7, size)
            .i64(9, signed(page));
        let chunk = match values {
            Values::Text(_) => chunk.i64(11, signed(begin)),
            _ => chunk,
        };
        Struct::default().i64(2, signed(begin)).structure(3, chunk)
    });
    let chunks: Vec<Struct> = chunks.collect();
    Struct::default()
        .structures(1, chunks)
        .i64(2, signed(out.len() - before))
        .i64(3, signed(end - start))
}

impl Values<'_> {
    fn len(self) -> usize {
        match self {
            Self::Text(of) => of.len(),
            Self::Count(of) => of.len(),
            Self::Number(of) => of.len(),
        }
    }

    fn part(self, start: usize, end: usize) -> Self {
        match self {
            Self::Text(of) => Self::Text(&of[start..end]),
            Self::Count(of) => Self::Count(&of[start..end]),
            Self::Number(of) => Self::Number(&of[start..end]),
        }
    }

    /// The number by which Parquet identifies the type of the values: byte arrays, integers of 64
    /// bits, or floating-point numbers of double precision.
    const fn kind(self) -> i32 {
        match self {
            Self::Text(_) => 6,
            Self::Count(_) => 2,
            Self::Number(_) => 5,
        }
    }

    /// Writes the pages of this column. Returns the position at which the page of values begins,
    /// and the encodings of the pages.
    fn write(self, out: &mut Vec<u8>) -> (usize, Vec<i32>) {
        let encoded: Vec<u8> = match self {
            Self::Text(of) => return write_texts(out, of),
            Self::Count(of) => of.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::Number(of) => of.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let begin = out.len();
        data_page(out, self.len(), PLAIN, &encoded);
        (begin, vec![PLAIN])
    }
}

fn write_texts(out: &mut Vec<u8>, texts: &[String]) -> (usize, Vec<i32>) {
    let mut known: BTreeMap<&str, u64> = BTreeMap::new();
    let mut dictionary = Vec::new();
    let mut indices = Vec::new();
    for text in texts {
        let next = known.len() as u64;
        let index = *known.entry(text).or_insert_with(|| {
            let length = u32::try_from(text.len()).expect("a text of less than 4 GiB");
            dictionary.extend(length.to_le_bytes());
            dictionary.extend(text.bytes());
            next
        });
        indices.push(index);
    }
    let of_dictionary = Struct::default()
        .i32(
            1,
            i32::try_from(known.len()).expect("at most as many as rows"),
        )
        .i32(2, PLAIN);
    page(out, DICTIONARY_PAGE, 7, of_dictionary, &dictionary);
    let begin = out.len();
    data_page(
        out,
        texts.len(),
        RLE_DICTIONARY,
        &runs(&indices, known.len()),
    );
    (begin, vec![PLAIN, RLE, RLE_DICTIONARY])
}

/// Encodes the indices as Parquet does. The first byte is the number of bits of an index. Then come
/// two numbers for each run of equal indices: twice the length of the run, and the index in whole
/// bytes.
fn runs(indices: &[u64], count: usize) -> Vec<u8> {
    let bits = (usize::BITS - count.saturating_sub(1).leading_zeros()).max(1);
    let mut out = vec![u8::try_from(bits).expect("at most 64 bits")];
    for run in indices.chunk_by(|one, next| one == next) {
        varint(&mut out, (run.len() as u64) << 1);
        out.extend(&run[0].to_le_bytes()[..bits.div_ceil(8) as usize]);
    }
    out
}

fn data_page(out: &mut Vec<u8>, count: usize, encoding: i32, data: &[u8]) {
    let head = Struct::default()
        .i32(1, i32::try_from(count).expect("a group of rows"))
        .i32(2, encoding)
        .i32(3, RLE)
        .i32(4, RLE);
    page(out, DATA_PAGE, 5, head, data);
}

/// Writes a page with its head. `of_kind` is the part of the head that depends on the kind of page,
/// and `number` is the Thrift field number of this part.
fn page(out: &mut Vec<u8>, kind: i32, number: u8, of_kind: Struct, data: &[u8]) {
    let size = i32::try_from(data.len()).expect("a page of less than 2 GiB");
    let head = Struct::default()
        .i32(1, kind)
        .i32(2, size)
        .i32(3, size)
        .structure(number, of_kind);
    out.extend(head.end());
    out.extend(data);
}

fn signed(value: usize) -> i64 {
    i64::try_from(value).expect("less than 2⁶³")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_where_its_footer_is() {
        let texts = ["a".to_owned(), "b".to_owned()];
        let columns = [Column {
            name: "text",
            values: Values::Text(&texts),
        }];
        let file = file(&columns, &[("key", "value")]);
        assert_eq!((&file[..4], &file[file.len() - 4..]), (MAGIC, MAGIC));
        let length = file[file.len() - 8..file.len() - 4].try_into().unwrap();
        let footer = file.len() - 8 - u32::from_le_bytes(length) as usize;
        assert_eq!(
            file[footer..footer + 2],
            [0x15, 2],
            "the version comes first"
        );
    }

    /// Reads runs of indices, and checks that an index has the number of bits that the
    /// specification requires.
    #[test]
    fn runs_of_any_number_of_texts_are_read_as_they_were_written() {
        for count in [1, 2, 3, 255, 256, 257, 65_536, 65_537] {
            let most = count as u64 - 1;
            let indices = [0, 0, most, most / 2, most / 2, most];
            let written = runs(&indices, count);
            let bytes = usize::from(written[0]).div_ceil(8);
            assert!(1_u64 << written[0] > most && bytes <= 3);
            let (mut read, mut rest) = (Vec::new(), &written[1..]);
            while let [length, value @ ..] = rest {
                let mut index = [0; 8];
                index[..bytes].copy_from_slice(&value[..bytes]);
                assert_eq!(length & 1, 0, "a run of equal values");
                let length = usize::from(length >> 1);
                read.extend(std::iter::repeat_n(u64::from_le_bytes(index), length));
                rest = &value[bytes..];
            }
            assert_eq!(read, indices);
        }
    }
}
