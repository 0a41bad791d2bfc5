//! Reads enough of an ELF file to decide whether the program can run in a guest.

/// The kinds of programs, by how a guest can run them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// An x86-64 program that needs no other files.
    Static,
    /// An x86-64 program that needs the loader with this path.
    Dynamic(String),
    /// A script; the text is its interpreter with arguments.
    Script(String),
    /// A file that a guest cannot run.
    Other,
}

const PT_INTERP: u32 = 3;
const EM_X86_64: u16 = 62;

/// Returns the kind of a program. `bytes` are the contents of its file.
pub(crate) fn kind(bytes: &[u8]) -> Program {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        return Program::Script(String::from_utf8_lossy(line).trim().to_owned());
    }
    // The two bytes after the ELF magic mean 64-bit and little-endian.
    let is_x86_64 =
        bytes.starts_with(b"\x7fELF\x02\x01") && number(bytes, 18, 2) == Some(u64::from(EM_X86_64));
    if !is_x86_64 {
        return Program::Other;
    }
    match interpreter(bytes) {
        Some(loader) => Program::Dynamic(loader),
        None => Program::Static,
    }
}

/// Returns the path of the loader that a dynamic program names.
fn interpreter(bytes: &[u8]) -> Option<String> {
    let headers = number(bytes, 32, 8)?;
    let (size, count) = (number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    let mut at = (0..count).map(|nth| headers.saturating_add(nth * size));
    let header = at.find(|&at| number(bytes, at, 4) == Some(u64::from(PT_INTERP)))?;
    let start = usize::try_from(number(bytes, header + 8, 8)?).ok()?;
    let text = bytes.get(start..)?.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Reads the little-endian number of `width` bytes at offset `at`; `None` if the file ends before
/// the number does.
fn number(bytes: &[u8], at: u64, width: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let field = bytes.get(at..at.checked_add(width)?)?;
    Some(
        field
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_dynamic_program() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        if cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
            let Program::Dynamic(loader) = kind(&bytes) else {
                panic!("tests are linked dynamically");
            };
            assert!(loader.contains("ld-linux"), "{loader}");
        }
    }

    #[test]
    fn a_program_without_a_loader_is_static() {
        let mut bytes = vec![0; 120];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = 62;
        assert_eq!(kind(&bytes), Program::Static);
        bytes[18] = 183;
        assert_eq!(kind(&bytes), Program::Other);
    }

    #[test]
    fn scripts_name_their_reader_and_anything_may_be_cut_off() {
        let script = kind(b"#! /bin/sh -e\necho\n");
        assert_eq!(script, Program::Script("/bin/sh -e".to_owned()));
        assert_eq!(kind(b"#!"), Program::Script(String::new()));
        for bytes in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01", b"text"] {
            assert_eq!(kind(bytes), Program::Other);
        }
        // According to this ELF header, the program headers are far beyond the end of the file.
        let mut bytes = vec![0xff; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&[62, 0]);
        assert_eq!(kind(&bytes), Program::Static);
    }
}
