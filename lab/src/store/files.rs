//! Reading and writing the files of a store.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// The error for a file or folder that cannot be written.
pub(super) fn unwritable(path: &Path, why: &dyn Display) -> Error {
    Error::Invalid(format!(
        "cannot write to {}: {why}; name another folder with --store, or keep nothing with \
         --no-store",
        path.display()
    ))
}

/// The error for a file or folder that cannot be read.
pub(super) fn unreadable(path: &Path, why: &dyn Display) -> Error {
    Error::Invalid(format!("cannot read {}: {why}", path.display()))
}

/// Replaces `file` by the JSON text of `value`. A reader sees either the old or the new text.
pub(super) fn replace(file: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    // The name of the draft contains the process's id, because another process may be creating the
    // same store at the same time.
    let draft = file.with_extension(format!("draft-{}", std::process::id()));
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, file))
}

/// Reads a file with one JSON value. Returns `None` if the file does not exist.
pub(super) fn read<T: DeserializeOwned>(file: &Path) -> Result<Option<T>, Error> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(file, &error)),
    };
    let value = serde_json::from_str(&text).map_err(|error| unreadable(file, &error))?;
    Ok(Some(value))
}

/// Reads a file with one JSON value in each line. Returns the values, and the length in bytes of
/// all whole lines. If the writing process was interrupted, the last line may be incomplete. The
/// function leaves out such a line.
pub(super) fn lines<T: DeserializeOwned>(file: &Path) -> Result<(Vec<T>, u64), Error> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(unreadable(file, &error)),
    };
    let mut values = Vec::new();
    let mut length = 0;
    for (nth, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let end = length + line.len();
        match serde_json::from_slice(line) {
            Ok(value) if line.ends_with(b"\n") => values.push(value),
            _ if end == text.len() => break,
            Ok(_) => unreachable!("only the last line may lack its end"),
            Err(error) => {
                let name = file.display();
                return Err(Error::Invalid(format!("{name}:{}: {error}", nth + 1)));
            }
        }
        length = end;
    }
    Ok((values, length as u64))
}

/// A hash of the content of a file, as 16 hexadecimal digits.
///
/// # Errors
/// If the file cannot be read.
pub fn hash_of(file: &Path) -> Result<String, Error> {
    let read = |error: io::Error| unreadable(file, &error);
    let open = BufReader::with_capacity(1 << 20, File::open(file).map_err(read)?);
    hash_of_bytes(open).map_err(read)
}

/// Extends the hash `hash` by the bytes of `word`, and returns the new hash.
fn mixed(hash: u64, word: [u8; 8]) -> u64 {
    let hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 32)
}

/// Returns a hash of everything that `open` reads, as 16 hexadecimal digits. If a file has at most
/// 1 MiB, the hash of the file equals the hash of its text in memory.
///
/// # Errors
/// If reading fails.
pub fn hash_of_bytes(mut open: impl BufRead) -> io::Result<String> {
    let (mut hash, mut length) = (0x9e37_79b9_7f4a_7c15_u64, 0_u64);
    loop {
        let part = open.fill_buf()?;
        if part.is_empty() {
            break;
        }
        // A program has tens of megabytes, so hash eight bytes at a time to be fast.
        let (words, rest) = part.as_chunks::<8>();
        for word in words {
            hash = mixed(hash, *word);
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            hash = mixed(hash, word);
        }
        length += part.len() as u64;
        let read = part.len();
        open.consume(read);
    }
    Ok(format!("{:016x}", hash ^ length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_the_length_count_in_a_hash() {
        let hash = |bytes: &[u8]| hash_of_bytes(bytes).unwrap();
        let text = b"a text of 21 bytes...";
        for at in 0..text.len() {
            let mut other = *text;
            other[at] ^= 1;
            assert_ne!(hash(&other), hash(text), "byte {at}");
            assert_ne!(hash(&text[..at]), hash(text), "{at} bytes");
        }
        assert_ne!(hash(&[0; 9]), hash(&[0; 8]));
        // The hashes that stores already contain must stay valid.
        assert_eq!(hash(text), "13f18e7f2a70f477");
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_a_bad_one_before_it_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines");
        assert_eq!(lines::<Vec<u32>>(&file).unwrap(), (vec![], 0));
        let whole = "[1]\n[2, 3]\n";
        for torn in ["", "[4", "[4]", "[\u{e4}", "\n"] {
            fs::write(&file, format!("{whole}{torn}")).unwrap();
            let read = lines::<Vec<u32>>(&file).unwrap();
            assert_eq!(read, (vec![vec![1], vec![2, 3]], 11), "{torn:?}");
        }
        fs::write(&file, "[1]\n[2\n[3]\n").unwrap();
        let error = lines::<Vec<u32>>(&file).unwrap_err().to_string();
        assert!(error.contains("lines:2: "), "{error}");
    }
}
