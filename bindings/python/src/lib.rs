//! The part of the Python package `plimsoll` that is written in Rust: the module
//! `plimsoll._native`.
//!
//! The module takes and returns plain values. It passes tables of samples as files of Parquet in
//! memory. The Python part of the package, `python/plimsoll`, turns these values and tables into
//! typed objects.

mod call;
mod catalog;
mod experiment;
mod reproduce;

use plimsoll_lab::Error as LabError;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    plimsoll,
    Error,
    PyException,
    "An error of Plimsoll; the text is that of the command `plimsoll`."
);
create_exception!(
    plimsoll,
    BadInput,
    Error,
    "An error that the caller can correct, such as an unknown name; the text says what to do."
);

/// The exception with the text of `error`.
fn raised(error: &LabError) -> PyErr {
    if error.is_bad_input() {
        BadInput::new_err(error.to_string())
    } else {
        Error::new_err(error.to_string())
    }
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::catalog::{designs, knobs, machines, variants};
    #[pymodule_export]
    use super::experiment::{check, points, run};
    #[pymodule_export]
    use super::reproduce::{experiments, replay, reproduce};
    #[pymodule_export]
    use super::{BadInput, Error};
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    const COMMIT: &str = env!("PLIMSOLL_COMMIT");
}
