//! Panics of what a command runs, as values.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Mutex, PoisonError},
};

/// Runs something that may panic, without the panic's own printing; the error is the message of the
/// first panic of any thread meanwhile.
pub fn catch<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    static MESSAGE: Mutex<Option<String>> = Mutex::new(None);
    let message = || MESSAGE.lock().unwrap_or_else(PoisonError::into_inner);
    *message() = None;
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or("no message");
        let place = info
            .location()
            .map(|place| format!(" ({}:{})", place.file(), place.line()))
            .unwrap_or_default();
        message().get_or_insert(format!("{text}{place}"));
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(before);
    result.map_err(|_| message().take().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::catch;

    #[test]
    fn a_panic_is_told_with_its_place() {
        assert_eq!(catch(|| 1), Ok(1));
        let told = catch(|| panic!("as asked for")).unwrap_err();
        assert!(told.starts_with("as asked for ("), "{told}");
        assert!(told.contains("catch.rs:"), "{told}");
    }
}
