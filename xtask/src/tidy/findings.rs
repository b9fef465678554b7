//! The result of a rule.

/// The findings of one rule. A fault fails the command, a note does not.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) faults: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Findings {
    pub(super) fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}
