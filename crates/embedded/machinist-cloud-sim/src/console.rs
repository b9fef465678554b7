//! The console of an instance: its last lines, in memory only. A restart of the cloud's process
//! clears it.

use std::collections::VecDeque;

/// Enough to see why a machine did not join; a bounded number, so a machine that logs errors for
/// days does not fill the memory.
const KEPT_LINES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Console(VecDeque<String>);

impl Console {
    pub(crate) fn print(&mut self, line: String) {
        if self.0.len() == KEPT_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    pub(crate) fn tail(&self, lines: usize) -> Vec<String> {
        self.0.iter().skip(self.0.len().saturating_sub(lines)).cloned().collect()
    }
}
