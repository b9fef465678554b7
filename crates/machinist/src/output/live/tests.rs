//! Tests of the live table with a simulated terminal, which remembers scrolled lines and the
//! position of its cursor.

use super::*;

/// A terminal that wraps long lines, scrolls, and wraps its lines again when its width changes,
/// like most terminals.
struct Terminal {
    size: Size,
    /// All rows since the start. True if the line continues in the next row.
    rows: Vec<(String, bool)>,
    /// Row since the start, and column.
    cursor: (usize, usize),
    live: Live,
}

impl Terminal {
    fn new(columns: usize, rows: usize) -> Self {
        let live = Live::default();
        Self { size: Size { columns, rows }, rows: vec![(String::new(), false)], cursor: (0, 0), live }
    }

    fn show(&mut self, table: &[&str]) {
        self.write_above("", table);
    }

    fn write_above(&mut self, above: &str, table: &[&str]) {
        let line = |text: &&str| Line { look: Look::Plain, text: (*text).to_owned() };
        let table = table.iter().map(line).collect();
        let sent = self.live.replace(above, table, self.size, Colours::Unwanted);
        self.obey(&sent);
    }

    fn obey(&mut self, sent: &str) {
        let mut rest = sent.chars();
        while let Some(next) = rest.next() {
            match next {
                '\r' => self.cursor.1 = 0,
                '\n' => {
                    self.rows[self.cursor.0].1 = false;
                    self.advance();
                }
                '\x1b' => {
                    assert_eq!(rest.next(), Some('['));
                    let sequence: String =
                        rest.by_ref().take_while_inclusive(|letter| !letter.is_ascii_alphabetic());
                    self.obey_sequence(&sequence);
                }
                shown => self.write(shown),
            }
        }
    }

    fn obey_sequence(&mut self, sequence: &str) {
        let (row, column) = self.cursor;
        match sequence.split_at(sequence.len() - 1) {
            (count, "A") => {
                let top = self.rows.len().saturating_sub(self.size.rows);
                self.cursor.0 = row.saturating_sub(count.parse().expect("a count")).max(top);
            }
            ("", "K") => self.cut(row, column),
            ("", "J") => {
                self.cut(row, column);
                self.rows.truncate(row + 1);
            }
            other => panic!("an unknown sequence: {other:?}"),
        }
    }

    fn cut(&mut self, row: usize, column: usize) {
        let (text, goes_on) = &mut self.rows[row];
        *text = text.chars().take(column).collect();
        *goes_on = false;
    }

    fn write(&mut self, shown: char) {
        if self.cursor.1 == self.size.columns {
            self.rows[self.cursor.0].1 = true;
            self.advance();
        }
        let (row, column) = self.cursor;
        let text = &mut self.rows[row].0;
        *text = text.chars().take(column).chain([shown]).chain(text.chars().skip(column + 1)).collect();
        self.cursor.1 += 1;
    }

    fn advance(&mut self) {
        self.cursor = (self.cursor.0 + 1, 0);
        if self.cursor.0 == self.rows.len() {
            self.rows.push((String::new(), false));
        }
    }

    fn is_now(&mut self, columns: usize) {
        self.size.columns = columns;
        let mut lines = vec![String::new()];
        for (text, goes_on) in self.rows.drain(..) {
            lines.last_mut().expect("at least one").push_str(&text);
            if !goes_on {
                lines.push(String::new());
            }
        }
        // The last line is empty and has the cursor.
        lines.pop();
        for line in lines {
            let all: Vec<char> = line.chars().collect();
            let count = all.len().div_ceil(columns).max(1);
            for index in 0..count {
                let part = all.iter().skip(index * columns).take(columns).collect();
                self.rows.push((part, index + 1 < count));
            }
        }
        self.cursor = (self.rows.len() - 1, 0);
    }

    /// Asserts all rows since the start, and that the cursor is on an empty line below them.
    #[track_caller]
    fn shows(&self, expected: &[&str]) {
        let rows: Vec<&str> = self.rows.iter().map(|(text, _)| text.as_str()).collect();
        let (last, rest) = rows.split_last().expect("at least one");
        assert_eq!((rest, *last), (expected, ""));
        assert_eq!(self.cursor, (expected.len(), 0), "the cursor is not on an empty line");
    }
}

trait TakeWhileInclusive: Iterator<Item = char> {
    fn take_while_inclusive(&mut self, goes_on: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        for next in self {
            taken.push(next);
            if !goes_on(next) {
                break;
            }
        }
        taken
    }
}

impl<I: Iterator<Item = char>> TakeWhileInclusive for I {}

#[test]
fn a_table_replaces_a_longer_or_shorter_one() {
    let mut terminal = Terminal::new(20, 10);
    terminal.obey("before\n");
    terminal.show(&["one", "two", "three"]);
    terminal.shows(&["before", "one", "two", "three"]);
    terminal.show(&["I"]);
    terminal.shows(&["before", "I"]);
    terminal.show(&["eins", "zwei"]);
    terminal.shows(&["before", "eins", "zwei"]);
    terminal.show(&[]);
    terminal.shows(&["before"]);
}

#[test]
fn lines_stay_above_the_table_and_scroll_away() {
    let mut terminal = Terminal::new(20, 5);
    terminal.show(&["table", "more of it"]);
    for line in ["a", "b", "c", "d", "e"] {
        terminal.write_above(&format!("{line}\n"), &["table", "more of it"]);
    }
    terminal.write_above("one that is longer than the terminal\n", &["table"]);
    terminal.shows(&["a", "b", "c", "d", "e", "one that is longer t", "han the terminal", "table"]);
}

#[test]
fn a_table_is_replaced_after_the_terminal_became_narrower() {
    let mut terminal = Terminal::new(20, 10);
    terminal.obey("before\n");
    terminal.show(&["a line of 18 signs", "short", ""]);
    terminal.is_now(8);
    terminal.show(&["narrow"]);
    terminal.shows(&["before", "narrow"]);
    terminal.is_now(40);
    terminal.show(&["wide again"]);
    terminal.shows(&["before", "wide again"]);
}

#[test]
fn a_settled_table_stays() {
    let mut terminal = Terminal::new(20, 10);
    terminal.show(&["the last table"]);
    terminal.live.keep_table();
    terminal.show(&["another"]);
    terminal.shows(&["the last table", "another"]);
    let erased = terminal.live.erase(terminal.size);
    terminal.obey(&erased);
    terminal.obey("a word aside\n");
    terminal.show(&["another"]);
    terminal.shows(&["the last table", "a word aside", "another"]);
}

#[test]
fn fit_cuts_texts_and_removes_control_characters() {
    assert_eq!(fit("as it is", 8), "as it is");
    assert_eq!(fit("too long", 7), "too lo…");
    assert_eq!(fit("two\nlines\x1b[2J", 20), "two lines [2J");
    // Each of these takes two columns.
    assert_eq!(fit("機械機械", 8), "機械機械");
    assert_eq!(fit("機械機械", 6), "機械…");
    assert_eq!(fit("any", 0), "");
    let painted = Colours::Shown.paint(&Line { look: Look::Strong, text: "a".to_owned() });
    assert_eq!(painted, "\x1b[1ma\x1b[0m");
    assert_eq!(Colours::Unwanted.paint(&Line { look: Look::Strong, text: "a".to_owned() }), "a");
}
