//! The arguments of `plimsoll linux`, and of the roles of this program inside the guest.

use std::path::PathBuf;

use clap::Subcommand;
use plimsoll_linux::boot::Memory;
use plimsoll_linux::package;

use crate::command::linux_build::LinuxBuild;

/// Boots a Linux kernel with many CPUs in QEMU, without hardware virtualization, runs a load in it and
/// records what its memory management does.
///
/// The guest's time is the number of instructions it has run, so the recording shows how often and
/// where events happen in a real kernel, however busy this computer is. The recording's times mean
/// nothing.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Linux {
    #[command(subcommand)]
    pub(crate) command: Option<LinuxCommand>,
    /// The number of CPUs, at most 255
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) cpus: u32,
    /// Memory of all nodes together: 2G, 3072M; more than 3G has a DMA32 and a Normal zone
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    pub(crate) memory: Memory,
    /// The number of memory nodes; CPUs and memory are divided equally among them
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) nodes: u32,
    /// The load to record: a name that `plimsoll linux loads` lists, a static
    /// program, or a script for /bin/sh
    #[arg(long, value_name = "NAME|FILE", required = true)]
    pub(crate) load: Option<String>,
    /// The recording to write
    #[arg(long, short, value_name = "FILE", required = true)]
    pub(crate) output: Option<PathBuf>,
    /// A kernel of your own: a bzImage or vmlinuz
    #[arg(long, value_name = "FILE", conflicts_with_all = ["series", "hz"])]
    pub(crate) kernel: Option<PathBuf>,
    /// Debian's newest packaged cloud kernel of a series, fetched with apt and not installed
    #[arg(long, value_name = "X.Y", default_value = package::CHECKED_SERIES, conflicts_with = "hz")]
    pub(crate) series: String,
    /// Boots a kernel that `plimsoll linux build` made with this many timer interrupts a second
    #[arg(long, value_name = "N")]
    pub(crate) hz: Option<u32>,
    /// Loads a kernel module first, with the modules it needs; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) module: Vec<String>,
    /// Records every change of a process's resident pages too
    #[arg(long)]
    pub(crate) rss: bool,
    /// Records where holds of a zone lock end, by a probe, so that `plimsoll show` can count pages per hold
    #[arg(long)]
    pub(crate) holds: bool,
    /// Adds arguments to the kernel's command line, where they override ours
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) append: Vec<String>,
    /// Stops the guest after this many seconds, and keeps what it has sent
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Keeps what the guest wrote on its console
    #[arg(long, value_name = "FILE")]
    pub(crate) console: Option<PathBuf>,
    /// Parameters of the load, name=value; for a program or script of your own, its arguments
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(crate) told: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LinuxCommand {
    /// Says what is missing to boot a kernel here, and what installs it
    Doctor,
    /// Lists the loads and their parameters
    Loads,
    Build(LinuxBuild),
}

/// The commands that run inside a booted kernel.
#[derive(Debug, clap::Args)]
pub(crate) struct Guest {
    #[command(subcommand)]
    pub(crate) role: Role,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// The first process of a guest
    Init,
    /// A load
    Load {
        /// The name of the load
        name: String,
        /// Parameters of the load, name=value
        told: Vec<String>,
    },
    /// A worker of a load
    Worker,
    /// A program that ends when its standard input is closed
    Nothing,
}
