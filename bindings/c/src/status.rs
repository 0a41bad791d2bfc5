//! Error codes, and the message of a thread's last error. No panic leaves the library.
#![expect(
    unsafe_code,
    reason = "exported names are unsafe attributes, and C passes buffers as pointers"
)]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;

use plimsoll_mm::page::{AllocError, FreeError};

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "this is the name in C")]
pub enum plimsoll_status {
    /// The call was successful.
    PLIMSOLL_OK = 0,
    /// A pointer that must not be null is null.
    PLIMSOLL_NULL = 1,
    /// A number is out of bounds, or a setting is impossible; the message says which.
    PLIMSOLL_INVALID = 2,
    /// There is not enough memory.
    PLIMSOLL_NO_MEMORY = 3,
    /// The page is not the first page of an allocated block: it is free already (a double free),
    /// inside a block, or in no zone. Nothing was freed.
    PLIMSOLL_NOT_ALLOCATED = 4,
    /// The block was allocated with another order. Nothing was freed.
    PLIMSOLL_WRONG_ORDER = 5,
    /// The handle belongs to another thread.
    PLIMSOLL_WRONG_THREAD = 6,
    /// The selection found no process that it is allowed to kill, or a process that was chosen
    /// before is still dying and will free its memory soon.
    PLIMSOLL_NOBODY = 7,
    /// The library has a bug, and stopped in the middle of the call. The objects of the call must
    /// not be used any more.
    PLIMSOLL_PANIC = 8,
}

/// A failed call: its code, and its message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: plimsoll_status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: plimsoll_status, message: impl Display) -> Self {
        let message = message.to_string();
        Self { status, message }
    }

    pub(crate) fn invalid(message: impl Display) -> Self {
        Self::new(plimsoll_status::PLIMSOLL_INVALID, message)
    }
}

impl From<AllocError> for Failure {
    fn from(why: AllocError) -> Self {
        let status = match why {
            AllocError::OutOfMemory(_) => plimsoll_status::PLIMSOLL_NO_MEMORY,
            AllocError::NoSuchZone => plimsoll_status::PLIMSOLL_INVALID,
        };
        Self::new(status, why)
    }
}

impl From<FreeError> for Failure {
    fn from(why: FreeError) -> Self {
        let status = match why {
            FreeError::OutsideZones(_) | FreeError::NotAllocated(_) => {
                plimsoll_status::PLIMSOLL_NOT_ALLOCATED
            }
            FreeError::WrongOrder { .. } => plimsoll_status::PLIMSOLL_WRONG_ORDER,
        };
        Self::new(status, why)
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the body of an exported function. Turns a failure or a panic of the body into a code and a
/// message.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> plimsoll_status {
    // The header forbids the caller to use the objects of a call that panicked, so their state does
    // not matter.
    let failure = match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return plimsoll_status::PLIMSOLL_OK,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(plimsoll_status::PLIMSOLL_PANIC, text_of(&*payload)),
    };
    // If the thread is ending, `LAST` may have been dropped already. The caller then gets only the
    // code.
    let _gone = LAST.try_with(|last| last.replace(failure.message));
    failure.status
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    let literal = payload.downcast_ref::<&str>().copied();
    owned.or(literal).unwrap_or("a panic without a message")
}

/// Returns the meaning of a status, in English. The text is constant. `status` may be any number.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_message(status: i32) -> *const c_char {
    const TEXTS: [&CStr; 9] = [
        c"success",
        c"a pointer is null",
        c"a number is out of bounds, or a setting is impossible",
        c"out of memory",
        c"the page is not the first one of an allocated block",
        c"the block was allocated with another order",
        c"the handle belongs to another thread",
        c"no candidate may be killed now",
        c"a fault of the library",
    ];
    let text = usize::try_from(status).ok().and_then(|nth| TEXTS.get(nth));
    text.copied().unwrap_or(c"no such status").as_ptr()
}

/// Writes the message of this thread's last failed call into the `size` bytes of `buffer`. The
/// message is UTF-8, is cut between two characters if it does not fit, and always ends with a zero
/// byte. Returns the length of the whole message in bytes, without the zero byte. Writes nothing if
/// `buffer` is null or `size` is 0.
///
/// # Safety
/// `buffer` must be null, or valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_last_error(buffer: *mut c_char, size: usize) -> usize {
    let last = LAST.try_with(|last| last.borrow().clone());
    let last = last.unwrap_or_default();
    // SAFETY: the caller guarantees that `buffer` is null or has room for `size` bytes.
    unsafe { write_text(&last, buffer, size) };
    last.len()
}

/// Writes `text` into a buffer, cut to fit and ended by a zero byte.
///
/// # Safety
/// `buffer` must be null, or valid for writes of `size` bytes.
unsafe fn write_text(text: &str, buffer: *mut c_char, size: usize) {
    let Some(most) = size.checked_sub(1).filter(|_| !buffer.is_null()) else {
        return;
    };
    let bytes = text.floor_char_boundary(most);
    // SAFETY: the caller guarantees room for `size` bytes, and `bytes` is less than `size`. A text
    // of Rust does not overlap with a buffer of C.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, bytes) };
    // SAFETY: `bytes` is less than `size`, so this byte is in the buffer.
    let end = unsafe { buffer.add(bytes) };
    // SAFETY: `end` is in the buffer, because `bytes` is less than `size`.
    unsafe { end.write(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code_and_a_message() {
        let status = guard(|| panic!("a planted panic {}", 7));
        assert_eq!(status, plimsoll_status::PLIMSOLL_PANIC);
        let mut buffer = [0x7f; 10];
        // SAFETY: the buffer has this many bytes.
        let length = unsafe { plimsoll_last_error(buffer.as_mut_ptr(), buffer.len()) };
        assert_eq!(length, "a planted panic 7".len());
        let text = buffer.map(|byte| byte.to_ne_bytes()[0]);
        assert_eq!(
            &text, b"a planted\0",
            "it is cut, and ends with a zero byte"
        );
        // The message is cut before a character that does not fit.
        guard(|| panic!("12345678…"));
        // SAFETY: the buffer has this many bytes.
        unsafe { plimsoll_last_error(buffer.as_mut_ptr(), buffer.len()) };
        let text = buffer.map(|byte| byte.to_ne_bytes()[0]);
        assert_eq!(&text[..9], b"12345678\0");
        guard(|| panic!("a planted panic {}", 7));
        // SAFETY: a null buffer is allowed.
        let again = unsafe { plimsoll_last_error(ptr::null_mut(), 5) };
        assert_eq!(again, length);
    }

    #[test]
    fn every_status_has_a_text() {
        for status in [0, 8] {
            // SAFETY: the text is a constant of this library.
            let text = unsafe { CStr::from_ptr(plimsoll_message(status)) };
            assert_ne!(text, c"no such status");
        }
        for status in [-1, 9, i32::MAX] {
            // SAFETY: the text is a constant of this library.
            let text = unsafe { CStr::from_ptr(plimsoll_message(status)) };
            assert_eq!(text, c"no such status");
        }
    }
}
