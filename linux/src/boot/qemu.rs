//! Makes the command line with which QEMU boots a guest.

use std::ffi::OsString;
use std::path::Path;

use super::initramfs::{LIBRARIES, PROGRAM};
use super::options::Options;

/// The name of the emulator's program.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// The guest's clock counts instructions and never waits for this computer's clock. One thread
/// emulates all CPUs in turn, because with one thread per CPU, a guest with many CPUs misses timer
/// ticks.
const CLOCK: [&str; 4] = [
    "-accel",
    "tcg,thread=single",
    "-icount",
    "shift=0,sleep=off",
];

/// All CPU features that QEMU can emulate except fast string operations. With these operations, the
/// kernel would clear and copy pages byte by byte. Each byte would cost one step of the emulator
/// and one nanosecond of guest time.
const CPU: &str = "max,-erms,-fsrm";

/// The kernel's command-line arguments, to which the user's arguments are appended.
///
/// - `panic=-1` with `-no-reboot`: a panic ends QEMU instead of hanging it.
/// - Watchdogs and stall warnings are off, because they would only detect that the emulator is
///   slow.
/// - `nohz=off`: every CPU keeps its tick even when idle, so that the timer wheel alone decides
///   when timers fire.
/// - `nokaslr`: functions keep the addresses at which they were linked.
const KERNEL: &str = "console=ttyS0 quiet loglevel=4 panic=-1 nowatchdog \
    rcupdate.rcu_cpu_stall_suppress=1 mitigations=off nokaslr audit=0 nohz=off";

/// Files on this computer that a guest reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) console: &'a Path,
    /// The file that receives the guest's output on the virtual serial port.
    pub(crate) received: &'a Path,
}

/// Returns the arguments with which QEMU boots the guest.
pub(crate) fn arguments(options: &Options, files: Files<'_>) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| all.extend(words.iter().map(OsString::from));
    add(&[
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
    ]);
    add(&["-machine", "q35", "-cpu", CPU]);
    add(&CLOCK);
    add(&["-smp", &options.cpus.to_string()]);
    add(&["-m", &format!("{}M", options.memory.0)]);
    for words in nodes(options) {
        add(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    add(&["-device", "virtio-serial-pci"]);
    add(&["-device", "virtserialport,chardev=recording,name=plimsoll"]);
    let mut file = |option: &str, before: &str, path: &Path| {
        let mut value = OsString::from(before);
        value.push(path);
        all.extend([OsString::from(option), value]);
    };
    file("-serial", "file:", files.console);
    file(
        "-chardev",
        "file,id=recording,path=",
        &escaped(files.received),
    );
    file("-kernel", "", files.kernel);
    file("-initrd", "", files.initramfs);
    all.extend([OsString::from("-append"), kernel_arguments(options).into()]);
    all
}

/// Returns the arguments that divide CPUs and memory among nodes, as evenly as whole CPUs and MiB
/// allow.
fn nodes(options: &Options) -> Vec<[String; 4]> {
    if options.nodes == 1 {
        return Vec::new();
    }
    let (nodes, cpus) = (options.nodes, options.cpus);
    let mib = |node: u64| node * options.memory.0 / u64::from(nodes);
    let node = |node: u32| {
        let cpu = |node: u32| node * cpus / nodes;
        let (first, last) = (cpu(node), cpu(node + 1) - 1);
        let mib = mib(u64::from(node) + 1) - mib(u64::from(node));
        [
            "-object".to_owned(),
            format!("memory-backend-ram,id=memory{node},size={mib}M"),
            "-numa".to_owned(),
            format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}"),
        ]
    };
    (0..nodes).map(node).collect()
}

fn kernel_arguments(options: &Options) -> String {
    let mut text = KERNEL.to_owned();
    // The kernel passes unknown parameters on to its first process, as environment variables.
    text += &format!(" LD_LIBRARY_PATH={LIBRARIES} rdinit={PROGRAM}");
    for more in &options.append {
        text += &format!(" {more}");
    }
    text + " -- guest init"
}

/// Doubles commas, because a single comma ends a value in QEMU's arguments.
fn escaped(path: &Path) -> std::path::PathBuf {
    match path.to_str() {
        Some(text) => text.replace(',', ",,").into(),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Memory;
    use super::super::options::tests::options;
    use super::*;

    fn line(options: &Options) -> String {
        let files = Files {
            kernel: Path::new("/k/vmlinuz"),
            initramfs: Path::new("/t/initramfs"),
            console: Path::new("/t/console"),
            received: Path::new("/t/a,b.part"),
        };
        let words = arguments(options, files).into_iter();
        let words: Vec<String> = words.map(|word| word.into_string().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn time_is_instructions_and_one_thread_emulates() {
        let line = line(&options());
        assert!(line.contains("-icount shift=0,sleep=off"), "{line}");
        assert!(line.contains("-accel tcg,thread=single"), "{line}");
        assert!(line.contains("-smp 4 -m 2048M -device"), "{line}");
        assert!(line.contains("path=/t/a,,b.part"), "{line}");
        assert!(line.ends_with("-- guest init"), "{line}");
    }

    #[test]
    fn what_is_appended_comes_last_so_that_it_wins() {
        let append = vec!["nohz=on".to_owned(), "numa_balancing=disable".to_owned()];
        let line = line(&Options {
            append,
            ..options()
        });
        assert!(
            line.ends_with("nohz=on numa_balancing=disable -- guest init"),
            "{line}"
        );
        assert!(line.find("nohz=off") < line.find("nohz=on"), "{line}");
    }

    #[test]
    fn nodes_share_all_cpus_and_all_memory() {
        let of = |nodes, cpus, mib| {
            let memory = Memory(mib);
            super::nodes(&Options {
                nodes,
                cpus,
                memory,
                ..options()
            })
        };
        assert!(of(1, 4, 2048).is_empty());
        let three = of(3, 8, 2048).concat().join(" ");
        assert_eq!(
            three,
            "-object memory-backend-ram,id=memory0,size=682M \
             -numa node,nodeid=0,cpus=0-1,memdev=memory0 \
             -object memory-backend-ram,id=memory1,size=683M \
             -numa node,nodeid=1,cpus=2-4,memdev=memory1 \
             -object memory-backend-ram,id=memory2,size=683M \
             -numa node,nodeid=2,cpus=5-7,memdev=memory2"
        );
    }
}
