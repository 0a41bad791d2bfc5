//! Makes one recording: prepares the kernel, runs the load, takes the events out of the ring
//! buffers, and writes the file.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_recording::ring::Decoder;
use plimsoll_recording::{Header, Totals, Writer};

use super::convert::{Converted, Converter, Done};
use super::pressure::Pressure;
use super::readers::{Batch, Readers};
use super::setup::Setup;
use super::summary::Summary;
use super::wait::{News, Watch, start};
use super::{Options, Progress, Reading, RecordError, kernel};

/// The number of batches, of 64 sub-buffers of 4 KiB each, in a MiB.
const BATCHES_PER_MIB: usize = 4;

/// The maximum length, in bytes, of a text file that the recorded command has written for the
/// recording. The rest of a longer file is not recorded.
const TEXT_BYTES_MAX: usize = 1 << 24;

/// Records this computer according to `options`, and calls `show` with the progress from time to
/// time.
///
/// # Errors
/// If the kernel refuses to be recorded, the command cannot be started, or a write to the file
/// fails. If a write fails, the file has the data that was written before.
pub fn record(options: &Options, show: impl FnMut(Progress)) -> Result<Summary, RecordError> {
    let refused = |what| move |source| RecordError::System { what, source };
    let watch = Watch::new().map_err(refused("listen for signals"))?;
    let mut setup = Setup::new(options)?;
    // The file is opened only after the setup, so that a failed setup does not overwrite an earlier
    // recording with this name.
    let out = output(&options.output)?;
    let began = Instant::now();
    let mut marker = setup.instance.marker()?;
    setup.instance.set("tracing_on", "1")?;
    kernel::texts(&mut setup.header, "before", &mut marker);
    let failed = |source| RecordError::Write {
        path: options.output.clone(),
        source,
    };
    let writer = Writer::new(out, &setup.header).map_err(failed)?;

    let session = Session {
        options,
        watch: &watch,
        began,
    };
    let (converted, lost, status, duration) = session.run(&mut setup, writer, show)?;
    let Converted {
        writer,
        symbols,
        counts,
        damaged,
        first_damage,
    } = converted;
    let mut header = setup.header.clone();
    header.symbols = symbols;
    header.lost = lost;
    let missing = header.missing.clone();
    left_texts(options.texts.as_deref(), &mut header);
    if let Some(status) = status {
        header
            .texts
            .push(("exit status".to_owned(), status.to_string()));
    }
    let totals: Totals = finish(writer, &header).map_err(failed)?;
    Ok(Summary {
        path: options.output.clone(),
        totals,
        cpus: header.cpus,
        duration,
        counts,
        lost: header.lost,
        damaged: first_damage.map(|first| (damaged, first)),
        missing,
        command: status.map(|status| (header.command, status)),
    })
}

/// The parts of a recording session that do not change while it runs.
struct Session<'a> {
    options: &'a Options,
    watch: &'a Watch,
    began: Instant,
}

type Ran = (
    Converted<File>,
    Vec<(u32, u64)>,
    Option<ExitStatus>,
    Duration,
);

impl Session<'_> {
    /// Runs the load, and takes the events out of the ring buffers during the load or afterwards.
    fn run(
        &self,
        setup: &mut Setup,
        writer: Writer<File>,
        mut show: impl FnMut(Progress),
    ) -> Result<Ran, RecordError> {
        let system = |what| move |source| RecordError::System { what, source };
        let batches = self.options.memory_mib.get() as usize * BATCHES_PER_MIB;
        let (sender, receiver) = sync_channel::<Batch>(batches);
        let pressure = Arc::new(Pressure::default());
        let done = Arc::new(Done::default());
        let converter = self.converter(setup, writer, &pressure, &done);
        let converter = converter(receiver).map_err(system("start a thread"))?;
        let readers = |setup: &Setup| {
            let bytes = setup.sub_buffer_bytes;
            Readers::start(&setup.instance, &setup.cpus, bytes, &pressure, &sender)
                .map_err(system("read the ring buffers"))
        };
        let meanwhile = match self.options.reading {
            Reading::Meanwhile => Some(readers(setup)?),
            Reading::Afterwards => None,
        };

        let shown = || {
            show(Progress {
                events: done.events.load(Ordering::Relaxed),
                bytes: done.bytes.load(Ordering::Relaxed),
                lost: lost(setup).iter().map(|(_, events)| events).sum(),
                elapsed: self.began.elapsed(),
            });
        };
        let ran = self.load(setup, shown);
        let mut marker = setup.instance.marker()?;
        kernel::texts(&mut setup.header, "after", &mut marker);
        setup.instance.set("tracing_on", "0")?;
        let duration = self.began.elapsed();
        let readers = match meanwhile {
            Some(readers) => readers,
            None => readers(setup)?,
        };
        let read = readers.finish().map_err(system("read the ring buffers"));
        // The converter ends when all senders are dropped. The readers have ended and dropped their
        // senders; this is the last sender.
        drop(sender);
        let converted = converter.join();
        let converted = converted.map_err(|_| RecordError::Formats("a panic".to_owned()))?;
        read?;
        Ok((converted, lost(setup), ran?, duration))
    }

    /// Runs the command, and writes a note into the ring buffers before and after it.
    fn load(&self, setup: &Setup, shown: impl FnMut()) -> Result<Option<ExitStatus>, RecordError> {
        let mut marker = setup.instance.marker()?;
        let texts = self.options.texts.as_deref();
        marker.note("begin");
        let path = setup.instance.path("trace_marker");
        let child = start(&self.options.command, &path, texts);
        let child = child.map_err(|source| RecordError::Command {
            name: self.options.command[0].to_string_lossy().into_owned(),
            source,
        })?;
        let until = self.options.length.map(|length| Instant::now() + length);
        let ended = self.watch.run(child, until, shown);
        marker.note("end");
        ended.map_err(|source| RecordError::System {
            what: "wait for the command",
            source,
        })
    }

    /// Returns a function that starts the converter's thread.
    fn converter(
        &self,
        setup: &Setup,
        writer: Writer<File>,
        pressure: &Arc<Pressure>,
        done: &Arc<Done>,
    ) -> impl FnOnce(Receiver<Batch>) -> std::io::Result<thread::JoinHandle<Converted<File>>> + use<>
    {
        let failed = self.watch.sender();
        let converter = Converter {
            decoder: Decoder::new(setup.formats.clone(), setup.kallsyms.clone()),
            writer,
            sub_buffer_bytes: setup.sub_buffer_bytes,
            pressure: Arc::clone(pressure),
            done: Arc::clone(done),
            on_failure: Box::new(move || {
                // If this call fails, the recording is already ending, so the converter ignores the
                // error.
                let _ = failed.send(News::Failed);
            }),
        };
        move |batches| {
            let thread = thread::Builder::new().name("plimsoll-write".to_owned());
            thread.spawn(move || converter.run(&batches))
        }
    }
}

fn output(path: &Path) -> Result<File, RecordError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.open(path).map_err(|source| RecordError::Output {
        path: path.to_owned(),
        source,
    })
}

fn finish(
    writer: Result<Writer<File>, plimsoll_recording::WriteError>,
    header: &Header,
) -> Result<Totals, plimsoll_recording::WriteError> {
    let (_, totals) = writer?.finish(header)?;
    Ok(totals)
}

fn lost(setup: &Setup) -> Vec<(u32, u64)> {
    let of_cpu = |&cpu: &u32| (cpu, setup.instance.lost(cpu));
    let lost = setup.cpus.iter().map(of_cpu);
    lost.filter(|(_, events)| *events > 0).collect()
}

/// Adds the files of `folder`, which the recorded command may have written, to the texts in the
/// header. A text has the name of its file.
fn left_texts(folder: Option<&Path>, header: &mut Header) {
    let Some(entries) = folder.and_then(|folder| fs::read_dir(folder).ok()) else {
        return;
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let (Some(name), Ok(mut text)) = (file.file_name(), fs::read(&file)) else {
            continue;
        };
        text.truncate(TEXT_BYTES_MAX);
        let text = String::from_utf8_lossy(&text).into_owned();
        header
            .texts
            .push((name.to_string_lossy().into_owned(), text));
    }
}
