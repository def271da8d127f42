//! Writing to a person: standard output that may be a closed pipe, errors, progress.

use std::{
    error::Error,
    fmt::Display,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
#[cfg(any(feature = "similar", feature = "skips"))]
use burnscope::python::Fault;
use indicatif::{ProgressBar, ProgressStyle};

/// Text that matters most.
pub const STRONG: Style = Style::new().bold();
/// Text that matters least.
pub const FAINT: Style = Style::new().dimmed();
/// Something is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Something is as it should be.
#[cfg(any(feature = "models", feature = "similar"))]
pub const GOOD: Style = AnsiColor::Green.on_default();

/// `text` in a style; the colours go where the output is no terminal or `NO_COLOR` is set.
pub fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Writes to standard output. A reader that has gone away, as `head` does, is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::AutoStream::auto(io::stdout().lock());
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot write to standard output: {error}"),
        )),
        Ok(()) => Ok(()),
    }
}

/// Text from a file, with what would move a terminal's cursor or change its state made visible.
pub fn printable(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        // Controls, and the marks that reorder text.
        let moves = character.is_control()
            || matches!(character, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if moves {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Writes an error to standard error, in one line.
pub fn error(error: &dyn Error) {
    let text = printable(&error.to_string().replace('\n', " "));
    // Where standard error is closed too, only the exit code is left to tell.
    let _ = writeln!(anstream::stderr(), "{} {text}", styled(BAD, "error:"));
}

/// Writes a remark to standard error, in one line.
#[cfg(feature = "similar")]
pub fn note(text: &str) {
    print_error(&format!(
        "{} {}\n",
        styled(FAINT, "note:"),
        text.replace('\n', " ")
    ));
}

/// Writes what is wrong with the input to standard error, a line for each fault, and says how many
/// there are.
#[cfg(any(feature = "similar", feature = "skips"))]
pub fn faults<'a>(faults: impl IntoIterator<Item = &'a Fault>) -> usize {
    let line = |fault: &Fault| {
        let text = fault.to_string().replace('\n', " ");
        print_error(&format!("{} {text}\n", styled(BAD, "problem:")));
    };
    faults.into_iter().map(line).count()
}

/// The exit code of a command that did its work but could not read some files.
#[cfg(any(feature = "similar", feature = "skips"))]
pub const INCOMPLETE: u8 = 3;

/// A line that moves while something takes long; nothing where standard error is no terminal.
pub fn spinner(text: impl Into<String>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(text.into());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A line that counts while something takes long; nothing where standard error is no terminal.
#[cfg(feature = "similar")]
pub fn counter(text: impl Into<String>) -> ProgressBar {
    let bar = spinner(text);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {pos} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// A bar that fills while something takes long; nothing where standard error is no terminal.
#[cfg(feature = "embed")]
pub fn bar(text: impl Into<String>) -> ProgressBar {
    let bar = spinner(text);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar
}

/// Writes to standard error as it is.
pub fn print_error(text: &str) {
    // As above: nobody is left to tell.
    let _ = write!(anstream::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn nothing_in_a_text_moves_the_cursor() {
        assert_eq!(printable("a.b é"), "a.b é");
        assert_eq!(
            printable("\x1b[2J\n\u{9b}\u{202e}"),
            "\\u{1b}[2J\\n\\u{9b}\\u{202e}"
        );
    }
}
