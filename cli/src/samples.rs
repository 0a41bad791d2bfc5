//! Writes the samples of runs as one table.

use std::path::Path;

use clap::ValueEnum;
use plimsoll_lab::store::export::Rows;

use crate::output::{self, BadInput};

/// The format of a table of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    Parquet,
    Csv,
    Json,
}

/// The format of the table that `write` will write to `file`: the format `chosen` or, if it is
/// `None`, the format for which the ending of the file's name stands, such as `.csv`.
///
/// # Errors
/// If the format is not known, if Parquet would be printed, or if the file cannot be written.
pub(crate) fn format(
    file: Option<&Path>,
    chosen: Option<TableFormat>,
) -> anyhow::Result<TableFormat> {
    let ending = file.and_then(Path::extension).unwrap_or_default();
    let of_ending = match ending.to_str() {
        Some("parquet") => Some(TableFormat::Parquet),
        Some("csv") => Some(TableFormat::Csv),
        Some("json" | "jsonl") => Some(TableFormat::Json),
        _ => None,
    };
    let refused = |why: &str| Err(BadInput(why.to_owned()).into());
    let Some(format) = chosen.or(of_ending) else {
        return refused(
            "the format is not known: add --format parquet, csv or json, or name a file that ends \
             in .parquet, .csv or .json",
        );
    };
    match file {
        Some(file) => output::writable(file, "--output")?,
        None if format == TableFormat::Parquet => {
            return refused("Parquet is no text to print: name a file with --output");
        }
        None => {}
    }
    Ok(format)
}

/// Writes the table to `file`, which it replaces as a whole, or prints it.
pub(crate) fn write(rows: &Rows, format: TableFormat, file: Option<&Path>) -> anyhow::Result<()> {
    let bytes = match format {
        TableFormat::Parquet => rows.parquet(),
        TableFormat::Csv => rows.csv().into_bytes(),
        TableFormat::Json => rows.json().into_bytes(),
    };
    match file {
        Some(file) => output::replace_bytes(file, &bytes),
        None => output::print(&String::from_utf8_lossy(&bytes)),
    }
}
