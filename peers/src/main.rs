//! Measures Plimsoll's page allocator beside allocators of other projects, all in one run.
//!
//! `cargo run --release --manifest-path peers/Cargo.toml [FILE]` prints the tables of `plimsoll
//! bench page` with more rows for the other allocators, and writes the results as JSON to FILE. All
//! allocators manage blocks of 4 KiB and of 2 MiB. General allocators manage virtual memory and
//! write their own metadata into it. Frame allocators need no memory behind the frames.

mod frames;
mod heaps;

use anyhow::Context;
use plimsoll_lab::bench::page::{self, Subject};
use plimsoll_lab::report::table;
use plimsoll_lab::run::progress::Progress;

const WIDTH: usize = 150;

fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1);
    let progress = Progress::new();
    let found = page::run(&progress, peers)?;
    progress.finish();
    println!("{}", table::render_tables(&found.tables, WIDTH));
    if let Some(file) = file {
        let json = serde_json::to_string_pretty(&found.rows)?;
        std::fs::write(&file, json + "\n").with_context(|| format!("cannot write {file}"))?;
    }
    Ok(())
}

fn peers() -> Vec<Box<dyn Subject>> {
    vec![
        Box::new(frames::Depot::new()),
        Box::new(frames::Buddy::new()),
        Box::new(frames::Bitmap::new()),
        Box::new(heaps::Heap::new("mimalloc", mimalloc::MiMalloc)),
        Box::new(heaps::Heap::new("jemalloc", tikv_jemallocator::Jemalloc)),
        Box::new(heaps::Heap::new("snmalloc", snmalloc_rs::SnMalloc)),
        Box::new(heaps::Tlsf::new()),
        Box::new(heaps::Talc::new()),
    ]
}
