//! A table below what has been written, drawn over itself again and again while everything else is written above it.
//!
//! ```text
//! lines that stay, and scroll away with time
//! the table, as tall as the terminal at most
//! the cursor, on an empty line of its own
//! ```
//!
//! Deliberately absent: raw mode, a hidden cursor, another screen, questions to the terminal. Nothing is ever switched, so there is
//! nothing to switch back, however the program ends; whoever else writes to the terminal then does so below the table.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

/// Deletes the rest of a line.
const ERASE_LINE: &str = "\x1b[K";
/// Deletes everything below.
const ERASE_BELOW: &str = "\x1b[J";

/// How much room a terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Characters in a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

impl Size {
    /// What a terminal has that does not say.
    pub(super) const USUAL: Self = Self { columns: 80, rows: 24 };
}

/// How a line looks, where colours are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// As any other text.
    Plain,
    /// A heading.
    Strong,
    /// Something that is not as it should be yet.
    Waiting,
    /// Said only for completeness.
    Faint,
}

/// One line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// How it looks.
    pub look: Look,
    /// What it says, on one line and without control characters.
    pub text: String,
}

/// What is drawn, and how.
#[derive(Debug, Default)]
pub(super) struct Live {
    drawn: Vec<Line>,
    /// What the terminal was when they were drawn.
    size: Option<Size>,
}

impl Live {
    /// What to send to a terminal so that `above` stays and `table` is below it, in place of the table before.
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

    /// Whether just this is on a terminal of this size already.
    pub(super) fn is_drawn(&self, table: &[Line], size: Size) -> bool {
        self.drawn == table && self.size == Some(size)
    }

    /// What to send so that something else can be written in place of the table.
    pub(super) fn erase(&mut self, size: Size) -> String {
        let sent = self.back_to_top(size) + ERASE_BELOW;
        self.drawn.clear();
        sent
    }

    /// The table as it was drawn last.
    pub(super) fn table(&self) -> &[Line] {
        &self.drawn
    }

    /// Leaves the table where it is: it is text like any other from now on.
    pub(super) fn settle(&mut self) {
        self.drawn.clear();
    }

    /// To the first character of the table. A terminal that has become narrower has broken its lines.
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

/// Whether lines are told apart by colour and weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    /// They are.
    Shown,
    /// They are not: <https://no-color.org>.
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

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|it| it.width().unwrap_or(0)).sum()
}

/// The text on one line and without anything that a terminal would obey, cut off where it takes more than so many columns.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let shown = |it: char| if it.is_control() { ' ' } else { it };
    if width(text) <= columns {
        return text.chars().map(shown).collect();
    }
    let mut left = columns.saturating_sub(1);
    let mut cut: String = text
        .chars()
        .map(shown)
        .take_while(|it| match left.checked_sub(it.width().unwrap_or(0)) {
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
