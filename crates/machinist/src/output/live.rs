//! A live table at the bottom of the terminal. It is redrawn in place, and all other output appears
//! above it.
//!
//! ```text
//! permanent lines, which scroll away
//! the table, at most as tall as the terminal
//! the cursor, on an empty line
//! ```
//!
//! Deliberately absent: raw mode, a hidden cursor, an alternate screen and terminal queries. The
//! program changes no terminal mode, so it has none to restore, even after a crash. Other programs
//! then write below the table.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

/// Escape sequence that deletes the rest of the line.
const ERASE_LINE: &str = "\x1b[K";
/// Escape sequence that deletes everything below the cursor.
const ERASE_BELOW: &str = "\x1b[J";

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Characters per line.
    pub columns: usize,
    pub rows: usize,
}

impl Size {
    /// Size of a terminal that does not report its size.
    pub(super) const USUAL: Self = Self { columns: 80, rows: 24 };
}

/// Style of a line, if colours are enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    /// Headings.
    Strong,
    /// Objects that wait for something.
    Waiting,
    /// Secondary text.
    Faint,
}

/// One line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub look: Look,
    /// Text on one line, without control characters.
    pub text: String,
}

/// The table that the terminal shows.
#[derive(Debug, Default)]
pub(super) struct Live {
    drawn: Vec<Line>,
    /// Size of the terminal when the table was drawn.
    size: Option<Size>,
}

impl Live {
    /// Returns the text that replaces the old table with `above` as permanent text and `table`
    /// below it.
    pub(super) fn replace(&mut self, above: &str, table: Vec<Line>, size: Size, colours: Colours) -> String {
        let mut sent = self.back_to_top(size);
        for line in above.split_inclusive('\n') {
            match line.strip_suffix('\n') {
                Some(line) => sent.extend([line, ERASE_LINE, "\n"]),
                None => sent.push_str(line),
            }
        }
        for line in &table {
            sent.extend([&colours.paint(line), ERASE_LINE, "\n"]);
        }
        sent.push_str(ERASE_BELOW);
        self.drawn = table;
        self.size = Some(size);
        sent
    }

    /// Returns whether the terminal already shows this table at this size.
    pub(super) fn is_drawn(&self, table: &[Line], size: Size) -> bool {
        self.drawn == table && self.size == Some(size)
    }

    /// Returns the text that erases the table, so that other text can take its place.
    pub(super) fn erase(&mut self, size: Size) -> String {
        let sent = self.back_to_top(size) + ERASE_BELOW;
        self.drawn.clear();
        sent
    }

    /// Returns the table that was drawn last.
    pub(super) fn table(&self) -> &[Line] {
        &self.drawn
    }

    /// Makes the table permanent text.
    pub(super) fn keep_table(&mut self) {
        self.drawn.clear();
    }

    /// Returns the text that moves the cursor to the first character of the table. A terminal that
    /// became narrower has wrapped the lines of the table.
    fn back_to_top(&self, size: Size) -> String {
        let rows: usize =
            self.drawn.iter().map(|line| width(&line.text).div_ceil(size.columns.max(1)).max(1)).sum();
        let mut sent = String::from("\r");
        if 0 < rows {
            write!(sent, "\x1b[{rows}A").expect("writing to a String cannot fail");
        }
        sent
    }
}

/// Whether lines have colours and weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    Shown,
    /// Disabled by `NO_COLOR`: <https://no-color.org>.
    Unwanted,
}

impl Colours {
    fn paint(self, line: &Line) -> String {
        let Line { look, text } = line;
        let code = match (self, look) {
            (Self::Unwanted, _) | (Self::Shown, Look::Plain) => return text.clone(),
            (Self::Shown, Look::Strong) => 1,
            (Self::Shown, Look::Faint) => 2,
            (Self::Shown, Look::Waiting) => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Returns the number of columns of a text.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

/// Replaces control characters with spaces and cuts the text to this number of columns.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    if width(text) <= columns {
        return text.chars().map(shown).collect();
    }
    let mut left = columns.saturating_sub(1);
    let mut cut: String = text
        .chars()
        .map(shown)
        .take_while(|letter| match left.checked_sub(letter.width().unwrap_or(0)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .collect();
    if 0 < columns {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests;
