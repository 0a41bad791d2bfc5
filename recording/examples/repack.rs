//! Reads a recording and writes it again: `repack FILE OUT`. The text of `perf script` is converted
//! to Plimsoll's format.

use std::env;
use std::error::Error;
use std::fs::File;

use plimsoll_recording::Recording;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [from, to] = &arguments[..] else {
        return Err("repack FILE OUT".into());
    };
    let contents = Recording::read(from)?;
    for warning in &contents.warnings {
        eprintln!("warning: {warning}");
    }
    let (_, totals) = contents.recording.write(File::create(to)?)?;
    eprintln!("{} events, {} bytes", totals.events, totals.bytes);
    Ok(())
}
