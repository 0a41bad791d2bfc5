//! Boots one guest, watches it, and stops it if necessary.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use tempfile::{NamedTempFile, TempDir};

use super::console::{Console, GuestState};
use super::elf::{self, Program};
use super::error::{Error, Stop};
use super::initramfs::{self, Contents};
use super::options::{KernelChoice, LoadChoice, Options};
use super::{doctor, qemu};
use crate::guest::plan::{Plan, Work};
use crate::package::{Kernel, cache, debian, modules};
use crate::record::{Holds, Rss};

/// The interval at which the guest's state and console are checked.
const LOOK: Duration = Duration::from_millis(200);
/// The memory for QEMU itself and its translated code, in addition to the guest's memory, in MiB.
const QEMU_MIB: u64 = 512;

/// The result of booting and recording a guest, and the time that this took.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The kernel image that was booted.
    pub kernel: PathBuf,
    /// The guest's report after it had booted: its clock, CPUs and kernel.
    pub up: String,
    /// The size of the recording, in bytes.
    pub bytes: u64,
    /// The wall-clock duration of the run on this computer.
    pub wall: Duration,
    /// The CPU time that QEMU used on this computer, in seconds; `None` if it is not known.
    pub cpu_seconds: Option<f64>,
}

/// Boots a kernel according to `options` and writes the recording. Calls `told` with each new state
/// of the guest, and with a description before every other long step.
///
/// # Errors
///
/// If this computer lacks something, an option cannot be met, or the guest fails.
pub fn run(options: &Options, told: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    options.check()?;
    let qemu = doctor::qemu()?;
    enough_memory(options)?;
    let load = load(options)?;
    let kernel = kernel(options, told)?;
    let files = Drafts::new(options)?;
    write_initramfs(options, &kernel, load, &files.initramfs)?;
    let arguments = qemu::arguments(
        options,
        qemu::Files {
            kernel: &kernel.image,
            initramfs: &files.initramfs,
            console: &files.console,
            received: files.received.path(),
        },
    );
    let mut guest = Guest::start(&qemu, &arguments, &files)?;
    let ended = guest.watch(options.timeout, told);
    if let Some(console) = &options.console {
        fs::copy(&files.console, console).map_err(Error::file("write", console))?;
    }
    let up = guest.judge(ended?, files.received, &options.output)?;
    let length = fs::metadata(&options.output).map_err(Error::file("read", &options.output))?;
    Ok(Outcome {
        kernel: kernel.image,
        up,
        bytes: length.len(),
        wall: guest.started.elapsed(),
        cpu_seconds: guest.cpu_seconds,
    })
}

fn enough_memory(options: &Options) -> Result<(), Error> {
    let needed = options.memory.0 + QEMU_MIB;
    match doctor::free_mib() {
        Some(free) if free < needed => Err(Error::Asked(format!(
            "a guest of {} needs {needed} MiB here, and {free} MiB are free: give it less with --memory",
            options.memory
        ))),
        _ => Ok(()),
    }
}

/// The program or script that the user supplies, and the busybox that a script needs.
struct UserLoad {
    bytes: Vec<u8>,
    busybox: Option<Vec<u8>>,
}

fn load(options: &Options) -> Result<Option<UserLoad>, Error> {
    let LoadChoice::File(file) = &options.load else {
        return Ok(None);
    };
    let bytes = fs::read(file).map_err(Error::file("read", file))?;
    let refuse = |why: &str| {
        let file = file.display();
        Err(Error::Asked(format!("{file} cannot run in a guest: {why}")))
    };
    let busybox = match elf::kind(&bytes) {
        Program::Static => None,
        Program::Dynamic(_) => {
            return refuse("link it statically, as the guest has no libraries for it");
        }
        Program::Other => return refuse("it is neither a program for x86-64 nor a script"),
        Program::Script(reader) => {
            let reader = reader.split_whitespace().next().unwrap_or_default();
            if !["/bin/sh", "/bin/busybox"].contains(&reader) {
                return refuse("the guest has /bin/sh for scripts, and nothing else");
            }
            let busybox = doctor::static_busybox()?;
            Some(fs::read(&busybox).map_err(Error::file("read", &busybox))?)
        }
    };
    Ok(Some(UserLoad { bytes, busybox }))
}

fn kernel(options: &Options, told: &mut dyn FnMut(&str)) -> Result<Kernel, Error> {
    match &options.kernel {
        KernelChoice::File(file) => Kernel::of_file(file),
        KernelChoice::Series(series) => debian::kernel(series, told),
        KernelChoice::Hz(hz) => {
            let folder = cache::built(*hz)?;
            if !folder.is_dir() {
                return Err(Error::Missing(format!(
                    "there is no kernel in {}: `plimsoll linux build --hz {hz}` makes one",
                    folder.display()
                )));
            }
            Kernel::of_folder(&folder)
        }
    }
}

fn write_initramfs(
    options: &Options,
    kernel: &Kernel,
    load: Option<UserLoad>,
    to: &Path,
) -> Result<(), Error> {
    let mut names = options.modules.clone();
    let work = match &options.load {
        LoadChoice::Named(load) => {
            names.extend(load.modules.iter().map(|&name| name.to_owned()));
            Work::Load(load.name.to_owned(), options.told.clone())
        }
        LoadChoice::File(_) => Work::Program(options.told.clone()),
    };
    let modules = modules::in_order(kernel, &names)?;
    let plan = Plan {
        work,
        modules: modules.iter().map(|module| module.name.clone()).collect(),
        rss: options.rss == Rss::Wanted,
        holds: options.holds == Holds::Wanted,
        buffer_mib: options.buffer_mib(),
        command: options.command.clone(),
    };
    let (load, busybox) = match load {
        Some(load) => (Some(load.bytes), load.busybox),
        None => (None, None),
    };
    let contents = Contents {
        plan: &plan,
        modules: &modules,
        load,
        busybox,
    };
    let file = File::create(to).map_err(Error::file("write", to))?;
    let mut file = BufWriter::new(file);
    initramfs::write(&contents, &mut file, to)?;
    file.flush().map_err(Error::file("write", to))
}

/// The temporary files of one boot.
struct Drafts {
    initramfs: PathBuf,
    console: PathBuf,
    said: PathBuf,
    /// Holds the data received so far. This temporary file is in the same folder as the output. So
    /// Plimsoll notices early that the file system is full, and only has to rename the file at the
    /// end.
    received: NamedTempFile,
    _folder: TempDir,
}

impl Drafts {
    fn new(options: &Options) -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(Error::file("write to", &std::env::temp_dir()))?;
        let beside = options
            .output
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let received = tempfile::Builder::new()
            .prefix(".receiving-")
            .tempfile_in(beside.unwrap_or(Path::new(".")))
            .map_err(Error::file("write", &options.output))?;
        let path = |name: &str| folder.path().join(name);
        Ok(Self {
            initramfs: path("initramfs"),
            console: path("console"),
            said: path("qemu"),
            received,
            _folder: folder,
        })
    }
}

/// A running guest: its QEMU process, and its console output so far.
struct Guest {
    child: Child,
    console: Console,
    console_file: File,
    said: PathBuf,
    started: Instant,
    cpu_seconds: Option<f64>,
}

/// The ways in which a guest can end.
enum End {
    Exit(ExitStatus),
    Stopped(Stop),
}

impl Guest {
    fn start(qemu: &Path, arguments: &[std::ffi::OsString], files: &Drafts) -> Result<Self, Error> {
        let said = File::create(&files.said).map_err(Error::file("write", &files.said))?;
        let console = File::create(&files.console).map_err(Error::file("write", &files.console))?;
        drop(console);
        let child = Command::new(qemu)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            // Ctrl-C must reach only this process, which then stops QEMU and keeps the data
            // received from it.
            .process_group(0)
            .spawn()
            .map_err(Error::file("run", qemu))?;
        Ok(Self {
            child,
            console: Console::new(),
            console_file: File::open(&files.console)
                .map_err(Error::file("read", &files.console))?,
            said: files.said.clone(),
            started: Instant::now(),
            cpu_seconds: None,
        })
    }

    /// Waits until the guest ends or must be stopped.
    fn watch(&mut self, timeout: Duration, told: &mut dyn FnMut(&str)) -> Result<End, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .map_err(Error::file("handle signals of", Path::new("this process")))?;
        }
        told("booting");
        loop {
            let ended = self.child.try_wait();
            let ended = ended.map_err(Error::file("wait for", Path::new(qemu::QEMU)))?;
            // This call comes after the check for QEMU's end, so that it also reads the last lines
            // of the console.
            self.listen(told)?;
            if let Some(status) = ended {
                return Ok(End::Exit(status));
            }
            self.cpu_seconds = cpu_seconds(self.child.id()).or(self.cpu_seconds);
            let why = if stop.load(Ordering::Relaxed) {
                Some(Stop::Signal)
            } else {
                (self.started.elapsed() > timeout).then_some(Stop::Timeout(timeout))
            };
            if let Some(why) = why {
                self.child
                    .kill()
                    .map_err(Error::file("end", Path::new(qemu::QEMU)))?;
                self.child
                    .wait()
                    .map_err(Error::file("wait for", Path::new(qemu::QEMU)))?;
                return Ok(End::Stopped(why));
            }
            thread::sleep(LOOK);
        }
    }

    fn listen(&mut self, told: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let mut bytes = Vec::new();
        self.console_file
            .read_to_end(&mut bytes)
            .map_err(Error::file("read", Path::new("the guest's console")))?;
        if self.console.take(&bytes) {
            match self.console.state() {
                GuestState::Up(text) => told(&format!("up: {text}")),
                GuestState::Load => told("load runs"),
                GuestState::Reading => told("reading out"),
                GuestState::Booting | GuestState::Done | GuestState::Failed(_) => {}
            }
        }
        Ok(())
    }

    /// If the recording is complete, moves it to the output and returns the guest's
    /// [`GuestState::Up`] report. Otherwise keeps the received data and returns an error.
    fn judge(&self, end: End, received: NamedTempFile, output: &Path) -> Result<String, Error> {
        let state = self.console.state();
        if let (End::Exit(status), GuestState::Done) = (&end, state)
            && status.success()
        {
            make_public(&received, output)?;
            received
                .persist(output)
                .map_err(|error| Error::file("write", output)(error.error))?;
            return Ok(self.console.up().to_owned());
        }
        let kept = keep(received, output)?;
        let console = self.console.tail();
        Err(match (end, state) {
            (End::Stopped(why), state) => Error::Stopped {
                why,
                after: state.when().to_owned(),
                kept,
            },
            (End::Exit(_), GuestState::Failed(said)) => Error::Guest {
                said: said.clone(),
                console,
                kept,
            },
            (End::Exit(status), state) => {
                let said = fs::read_to_string(&self.said).unwrap_or_default();
                Error::Ended {
                    after: state.when().to_owned(),
                    how: format!("QEMU ended with {status}. {}", said.trim()),
                    console,
                    kept,
                }
            }
        })
    }
}

/// Makes a temporary file readable by all users. Only its owner can read a new temporary file.
fn make_public(received: &NamedTempFile, output: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let public = fs::Permissions::from_mode(0o644);
    let set = received.as_file().set_permissions(public);
    set.map_err(Error::file("write", output))
}

/// Keeps the received data beside the output, as `OUTPUT.part`, unless it is empty.
fn keep(received: NamedTempFile, output: &Path) -> Result<Option<PathBuf>, Error> {
    let length = fs::metadata(received.path()).map_or(0, |data| data.len());
    if length == 0 {
        return Ok(None);
    }
    let mut name = output.as_os_str().to_owned();
    name.push(".part");
    let kept = PathBuf::from(name);
    make_public(&received, &kept)?;
    received
        .persist(&kept)
        .map_err(|error| Error::file("write", &kept)(error.error))?;
    Ok(Some(kept))
}

/// Returns the seconds of CPU time that a process has used so far.
fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let ticks = ticks()?.checked_add(ticks()?)?;
    let per_second = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Some(f64::from(ticks) / f64::from(per_second))
}
