//! How a call says what went wrong: -1 or NULL, `errno`, and a sentence for the thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;
use tidewater_client::LogError;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The log says so.
    Log(LogError),
    /// The call was wrong.
    Call(&'static str),
    /// Something else, with its number of the system.
    Known {
        /// The number.
        errno: i32,
        /// Why.
        why: String,
    },
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Failure {
        Failure::Log(error)
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// The message of this thread's last failure. It stays until the next one.
pub(crate) fn message() -> *const std::ffi::c_char {
    let none: &'static CStr = c"";
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(none.as_ptr())
}

fn fail(errno: i32, message: &str) {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has no message any more.
    let _ = MESSAGE.try_with(|last| last.replace(message));
    Errno::set_raw(errno);
}

/// Runs a call. Panics end here: no C program sees one.
pub(crate) fn run<T>(failed: T, call: impl FnOnce() -> Result<T, Failure>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(Failure::Log(error))) => {
            fail(error.errno(), &error.to_string());
            failed
        }
        Ok(Err(Failure::Call(why))) => {
            fail(Errno::EINVAL as i32, why);
            failed
        }
        Ok(Err(Failure::Known { errno, why })) => {
            fail(errno, &why);
            failed
        }
        Err(_) => {
            fail(Errno::EIO as i32, "internal error in libtidewater; see standard error");
            failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_a_number_and_a_sentence() {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let result = run(-1, || -> Result<i32, Failure> { panic!("inside") });
        std::panic::set_hook(before);
        assert_eq!((result, Errno::last()), (-1, Errno::EIO));
        assert_eq!(run(-1, || Err(LogError::Stale.into())), -1);
        assert_eq!(Errno::last(), Errno::ESTALE);
        assert_eq!(run(-1, || Err(Failure::Call("a\0b"))), -1);
        MESSAGE.with(|message| assert_eq!(message.borrow().to_bytes(), b"a b"));
        assert_eq!(run(-1, || Ok(5)), 5);
    }
}
