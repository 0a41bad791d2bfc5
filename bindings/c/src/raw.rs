//! Turns pointers of C into references and boxes. Each function is unsafe, because only the C
//! caller knows what a pointer points to.
#![expect(unsafe_code, reason = "C passes pointers")]

use std::slice;

use crate::status::{Failure, plimsoll_status};

fn is_null(name: &str) -> Failure {
    Failure::new(
        plimsoll_status::PLIMSOLL_NULL,
        format_args!("`{name}` is null"),
    )
}

/// Returns what `pointer` points to. If `pointer` is null, the error contains `name`.
///
/// # Safety
/// `pointer` must be null, or valid for reads during `'a`, and nothing may write to its target
/// during `'a`.
pub(crate) unsafe fn get<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller guarantees that `pointer` is null or valid for reads.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(name))
}

/// Turns a pointer of C into a place for a result. The place need not be initialised.
///
/// # Safety
/// `pointer` must be null, or valid for a write.
pub(crate) unsafe fn out<T>(pointer: *mut T, name: &str) -> Result<Out<T>, Failure> {
    if pointer.is_null() {
        return Err(is_null(name));
    }
    Ok(Out(pointer))
}

/// A place for a result: a valid pointer of the caller.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result to the place to which C's pointer points.
    pub(crate) fn put(self, value: T) {
        // SAFETY: the caller of `out` guarantees that the pointer is valid for a write.
        unsafe { self.0.write(value) };
    }
}

/// Returns a slice of `count` values.
///
/// # Safety
/// If `count` is not 0, `pointer` must be null, or valid for reads of `count` values during `'a`,
/// and nothing may write to these values during `'a`.
pub(crate) unsafe fn list<'a, T>(
    pointer: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], Failure> {
    match count {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(is_null(name)),
        // SAFETY: the caller guarantees that there are `count` values, and that nothing writes to
        // them during `'a`.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, count) }),
    }
}

/// Returns a slice of `count` initialised values that may be changed.
///
/// # Safety
/// If `count` is not 0, `pointer` must be null, or valid for reads and writes of `count` values
/// during `'a`, and nothing else may use these values during `'a`.
pub(crate) unsafe fn list_mut<'a, T>(
    pointer: *mut T,
    count: usize,
    name: &str,
) -> Result<&'a mut [T], Failure> {
    match count {
        0 => Ok(&mut []),
        _ if pointer.is_null() => Err(is_null(name)),
        // SAFETY: the caller guarantees that there are `count` values for reads and writes, and
        // that nothing else uses these values.
        _ => Ok(unsafe { slice::from_raw_parts_mut(pointer, count) }),
    }
}

/// Gives an object to C. To free it, C calls a function that passes it to [`unbox`].
pub(crate) fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes an object back from C; `None` for null.
///
/// # Safety
/// `pointer` must be null, or come from [`boxed`] and not have been taken back before.
pub(crate) unsafe fn unbox<T>(pointer: *mut T) -> Option<Box<T>> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees that the pointer comes from `Box::into_raw` and is taken once.
    Some(unsafe { Box::from_raw(pointer) })
}
