//! Progress for people.

/// Prints a line of progress.
#[expect(clippy::print_stderr, reason = "progress of a command that takes minutes")]
pub(super) fn tell(text: &str) {
    eprintln!("{text}");
}
