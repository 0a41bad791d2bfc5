//! Opens a recording: plain, gzip or zstd, from a file or standard input.
//!
//! The first bytes determine the format, not the file name, because a pipe has no name and a name
//! may be wrong.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::ReadError;

/// The size of the buffers for packed and unpacked data, in bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// The largest window of a zstd frame, in bytes. It is the window of `zstd --long=27`, and the
/// largest window that `zstd -d` accepts by default. Without this limit, a few crafted kilobytes
/// could fill 2 GiB of memory.
const WINDOW_BYTES_MAX: u64 = 1 << 27;

/// Opens `file`, or standard input for `-`.
pub(crate) fn open(file: &str) -> Result<Box<dyn BufRead + Send>, ReadError> {
    let source: Box<dyn Read + Send> = if file == "-" {
        Box::new(io::stdin())
    } else {
        let open_error = |source| ReadError::Open {
            file: file.to_owned(),
            source,
        };
        let opened = File::open(file).map_err(open_error)?;
        if opened.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(open_error(io::ErrorKind::IsADirectory.into()));
        }
        Box::new(opened)
    };
    unpack(file, source)
}

/// Wraps `source` in the decoder for the format that the first bytes of `source` indicate.
pub(crate) fn unpack(
    file: &str,
    mut source: Box<dyn Read + Send>,
) -> Result<Box<dyn BufRead + Send>, ReadError> {
    let mut magic = Vec::with_capacity(8);
    let read = source.by_ref().take(8).read_to_end(&mut magic);
    read.map_err(|source| ReadError::Read {
        file: file.to_owned(),
        line: 1,
        source,
    })?;
    let bytes = Cursor::new(magic.clone()).chain(source);
    Ok(match *magic {
        [0x1f, 0x8b, ..] => buffered(MultiGzDecoder::new(buffered(bytes))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            buffered(Zstd::new(buffered(bytes)))
        }
        _ if magic == b"PERFILE2" => {
            return Err(ReadError::PerfData {
                file: file.to_owned(),
            });
        }
        _ => buffered(bytes),
    })
}

fn buffered(source: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, source))
}

/// Unpacks all zstd frames of a stream one after the other, because parallel zstd writes several
/// frames.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    state: Frame,
}

#[derive(PartialEq, Eq)]
enum Frame {
    /// The position is between two zstd frames, so the stream may end here.
    Between,
    Inside,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self {
            source,
            decoder,
            state: Frame::Between,
        }
    }

    /// Begins the next frame that has content; returns false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        // The loop ends: each iteration reads at least a frame header from the stream.
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.state = Frame::Inside;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = self.source.by_ref().take(u64::from(length));
                    io::copy(&mut { skipped }, &mut io::sink())?;
                }
                Err(error) => return Err(corrupt(&error)),
            }
        }
        Ok(false)
    }

    /// Checks the content of a frame against the frame's checksum, if the frame has a checksum.
    fn end_frame(&mut self) -> io::Result<()> {
        self.state = Frame::Between;
        let stored = self.decoder.get_checksum_from_data();
        let computed = self.decoder.get_calculated_checksum();
        if stored.is_some() && computed.is_some() && stored != computed {
            return Err(io::Error::other(
                "the zstd checksum does not match; copy it again",
            ));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // The loop ends: each iteration decodes at least a block or begins the next frame.
        loop {
            if self.state == Frame::Between && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() < out.len() && !self.decoder.is_finished() {
                let wanted = BlockDecodingStrategy::UptoBytes(out.len());
                let decoded = self.decoder.decode_blocks(&mut self.source, wanted);
                decoded.map_err(|error| corrupt(&error))?;
            }
            let count = self.decoder.read(out)?;
            if self.decoder.is_finished() && self.decoder.can_collect() == 0 {
                self.end_frame()?;
            }
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
        }
    }
}

fn corrupt(error: &FrameDecoderError) -> io::Error {
    if let FrameDecoderError::WindowSizeTooBig { requested, max } = error {
        let cause = format!(
            "zstd data with a window of {} MiB, more than {} MiB; unpack it first: zstd -d --long=31",
            requested >> 20,
            max >> 20
        );
        return io::Error::new(io::ErrorKind::InvalidData, cause);
    }
    let cause = format!("damaged or cut zstd data ({error}); copy or record it again");
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn text_of(bytes: Vec<u8>) -> Result<String, String> {
        let mut text = String::new();
        let mut input =
            unpack("f", Box::new(Cursor::new(bytes))).map_err(|error| error.to_string())?;
        input
            .read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
        Ok(text)
    }

    fn zstd(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_first_bytes_choose_the_decoder() {
        for packed in [b"words\n".to_vec(), gzip("words\n"), zstd("words\n")] {
            assert_eq!(text_of(packed), Ok("words\n".to_owned()));
        }
        assert_eq!(text_of(Vec::new()), Ok(String::new()));
    }

    #[test]
    fn frames_follow_each_other_and_skippable_ones_are_skipped() {
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        assert_eq!(
            text_of([zstd("one "), skippable.clone(), zstd("two")].concat()).unwrap(),
            "one two"
        );
        assert_eq!(text_of([skippable, zstd("two")].concat()).unwrap(), "two");
        assert_eq!(
            text_of([gzip("one "), gzip("two")].concat()).unwrap(),
            "one two"
        );
    }

    #[test]
    fn a_frame_larger_than_every_buffer_comes_out_whole() {
        let text: String = (0..400_000)
            .map(|number| format!("line {number}\n"))
            .collect();
        assert!(text.len() > 8 * BUFFER_BYTES);
        assert!(text_of(zstd(&text)).unwrap() == text);
    }

    #[test]
    fn cut_and_damaged_data_say_so() {
        let whole = zstd(&"some text that packs ".repeat(100));
        let cut = text_of(whole[..whole.len() / 2].to_vec()).expect_err("half a frame");
        assert!(cut.contains("damaged or cut zstd data"), "{cut}");
        let gzip = gzip("some text");
        text_of(gzip[..gzip.len() - 9].to_vec()).expect_err("its end is missing");
    }

    proptest! {
        #[test]
        fn no_change_of_packed_data_makes_it_panic(
            edits in vec((any::<Index>(), any::<u8>()), 0..4),
            length: Index,
            cut: bool,
        ) {
            let text = "some text that packs, and 1234567890 that does not ".repeat(20);
            let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
            for mut packed in [gzip(&text), zstd(&text), [skippable, zstd(&text)].concat()] {
                for (at, to) in &edits {
                    let at = at.index(packed.len());
                    packed[at] = *to;
                }
                if cut {
                    packed.truncate(length.index(packed.len()));
                }
                if let Ok(read) = text_of(packed) {
                    // A damaged back reference copies at most the number of bytes that one block
                    // can have.
                    prop_assert!(read.len() <= 1 << 20, "{}", read.len());
                }
            }
        }
    }

    #[test]
    fn a_window_that_would_take_gigabytes_is_refused() {
        // A zstd frame: a header that states a window of 2 to the power of `log` bytes, and an
        // empty last block.
        let frame = |log: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3, 1, 0, 0].to_vec();
        assert_eq!(text_of(frame(27)).unwrap(), "");
        let error = text_of(frame(28)).expect_err("256 MiB");
        assert!(
            error.contains("a window of 256 MiB, more than 128 MiB"),
            "{error}"
        );
    }

    #[test]
    fn a_perf_data_file_is_sent_back_to_perf() {
        let error = text_of(b"PERFILE2\0\0\0".to_vec()).expect_err("not text");
        assert!(error.contains("perf script -i f"), "{error}");
    }
}
