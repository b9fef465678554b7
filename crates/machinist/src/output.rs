//! Output for users: results on stdout, errors on stderr and, on a terminal, a live table below
//! both.
//!
//! `println!` panics if stdout is closed. Here a closed stdout is an ordinary error, and `main`
//! exits without a message.

mod live;

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::config::KubeconfigError;
use serde::Serialize;

use self::live::{Colours, Live};
pub(crate) use self::live::{Line, Look, Size, fit, width};

/// Handle to stdout and the live table. Clones share the same output; each call writes whole lines.
#[derive(Clone)]
pub(crate) struct Output(Arc<Mutex<Sink>>);

/// Writer and the table that it shows.
struct Sink {
    to: Box<dyn Write + Send>,
    live: Live,
    size_of_terminal: fn() -> Option<Size>,
    colours: Colours,
}

impl Output {
    /// Returns the standard output.
    pub(crate) fn stdout() -> Self {
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = if wants_none { Colours::Unwanted } else { Colours::Shown };
        let to = Box::new(io::stdout());
        Self(Arc::new(Mutex::new(Sink {
            to,
            live: Live::default(),
            size_of_terminal: size_of_stdout,
            colours,
        })))
    }

    /// Writes a text unchanged, above the table if there is one.
    pub(crate) fn text(&self, text: &str) -> io::Result<()> {
        self.sink().write(text)
    }

    /// Writes one line.
    pub(crate) fn line(&self, line: &str) -> io::Result<()> {
        self.text(&format!("{line}\n"))
    }

    /// Writes one value as JSON on one line.
    pub(crate) fn json(&self, value: &impl Serialize) -> io::Result<()> {
        self.line(&serde_json::to_string(value)?)
    }

    /// Replaces the table below all other output. The table must fit the terminal. An unchanged
    /// table is not sent again.
    pub(crate) fn show(&self, table: Vec<Line>) -> io::Result<()> {
        let mut sink = self.sink();
        if sink.live.is_drawn(&table, sink.size()) {
            return Ok(());
        }
        let sent = sink.replaced("", table);
        sink.send(&sent)
    }

    /// Makes the table permanent. Later output appears below it.
    pub(crate) fn keep_table(&self) {
        self.sink().live.keep_table();
    }

    /// Does the same as [`Output::keep_table`] inside a panic hook, where the panicking thread may
    /// hold the lock.
    pub(crate) fn keep_table_if_idle(&self) {
        if let Ok(mut sink) = self.0.try_lock() {
            sink.live.keep_table();
        }
    }

    /// Returns the size of the terminal.
    pub(crate) fn size(&self) -> Size {
        self.sink().size()
    }

    /// Returns a writer to stderr that keeps the table intact.
    pub(crate) fn stderr(&self) -> impl Write + use<> {
        Stderr(self.clone())
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    fn size(&self) -> Size {
        (self.size_of_terminal)().unwrap_or(Size::USUAL)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.live.table().is_empty() {
            return self.send(text);
        }
        let table = self.live.table().to_vec();
        let sent = self.replaced(text, table);
        self.send(&sent)
    }

    fn replaced(&mut self, above: &str, table: Vec<Line>) -> String {
        let size = self.size();
        self.live.replace(above, table, size, self.colours)
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        self.to.write_all(text.as_bytes())?;
        self.to.flush()
    }

    /// Writes to stderr. If stderr is a terminal too, it is usually the same terminal as stdout.
    fn write_aside(&mut self, bytes: &[u8]) -> io::Result<()> {
        let table = self.live.table().to_vec();
        if table.is_empty() || !io::stderr().is_terminal() {
            return io::stderr().write_all(bytes);
        }
        let erased = self.live.erase(self.size());
        self.send(&erased)?;
        let written = io::stderr().write_all(bytes);
        let sent = self.replaced("", table);
        self.send(&sent)?;
        written
    }
}

/// Writer to stderr, above the table.
struct Stderr(Output);

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.sink().write_aside(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether stdout is a terminal that can move its cursor.
pub(crate) fn is_live_terminal() -> bool {
    let term = std::env::var_os("TERM").unwrap_or_default();
    io::stdout().is_terminal() && !term.is_empty() && term != "dumb"
}

fn size_of_stdout() -> Option<Size> {
    let (columns, rows) = terminal_size::terminal_size_of(io::stdout())?;
    let size = Size { columns: usize::from(columns.0), rows: usize::from(rows.0) };
    // A pseudo-terminal without a window has the size 0 by 0.
    (0 < size.columns && 0 < size.rows).then_some(size)
}

/// Writes one line for people to stderr.
pub(crate) fn complain(line: &str) {
    // A closed stderr is not an error.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Formats an error and its causes on one line. Some libraries repeat the cause in their message;
/// this function skips such repetitions.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let mut text = cause.to_string().replace('\n', " ");
        // kube quotes paths twice. Other errors keep their quotes, which may belong to a suggested
        // command.
        if cause.is::<KubeconfigError>() {
            text = text.replace("'\"", "'").replace("\"'", "'");
        }
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// Returns whether an error means that stdout is closed.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_cause_is_printed_once() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        let error = anyhow::Error::new(refused).context("client: refused").context("cluster a: no answer");
        assert_eq!(one_line(&error), "cluster a: no answer: client: refused");
    }

    #[test]
    fn double_quotes_are_removed_only_from_kube_errors() {
        let missing = kube::config::Kubeconfig::read_from("/nope").expect_err("the file does not exist");
        let line = one_line(&anyhow::Error::new(missing).context("kubeconfig /nope"));
        assert!(line.contains("'/nope'") && !line.contains('"'), "{line}");
        let advised = "write it again: echo '\"a\"' > file";
        assert_eq!(one_line(&anyhow::anyhow!(advised)), advised);
    }

    fn table(text: &str) -> Vec<Line> {
        vec![Line { look: Look::Plain, text: text.to_owned() }]
    }

    #[test]
    fn an_unchanged_table_is_not_sent_again() {
        let (output, written) = Output::memory();
        output.show(table("a")).expect("shown");
        let once = written.text();
        output.show(table("a")).expect("shown");
        assert_eq!(written.text(), once);
        output.show(table("b")).expect("shown");
        output.line("above").expect("written");
        let last = written.text();
        let (_, last) = last.rsplit_once("above").expect("the line was written");
        assert!(last.contains('b'), "the table is not below the last line: {last:?}");
    }

    #[test]
    fn without_a_table_output_is_unchanged() {
        let (output, written) = Output::memory();
        output.line("a line").expect("written");
        output.text("a \x1b text\n").expect("written");
        assert_eq!(written.text(), "a line\na \x1b text\n");
    }
}

#[cfg(test)]
pub(crate) mod memory {
    use super::*;

    /// Text written to an [`Output`].
    #[derive(Clone, Default)]
    pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no writer panicked").clone()).expect("text")
        }
    }

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no writer panicked").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output {
        /// Returns an output and the text written to it.
        pub(crate) fn memory() -> (Self, Written) {
            let written = Written::default();
            let to = Box::new(written.clone());
            let sink =
                Sink { to, live: Live::default(), size_of_terminal: || None, colours: Colours::Unwanted };
            (Self(Arc::new(Mutex::new(sink))), written)
        }
    }
}
