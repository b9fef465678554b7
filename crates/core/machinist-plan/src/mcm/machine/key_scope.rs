//! Within which part of its place the cloud recognises a repeated creation for a Machine.
//!
//! A class may name another part tomorrow. There, a call with the same key may create a second
//! instance. So a call in another part waits until the instance of an earlier call would be shown.

use machinist_instance::KeyScope;

/// Facts that name the key scope of the calls that may have created a Machine's instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct KeyScopeFacts {
    /// The key scope of the last call of this process that may have created the instance.
    pub called: Option<KeyScope>,
    /// The key scope that was written before the last call of any process.
    pub intended: Option<KeyScope>,
    /// The key scope that the class names now.
    pub of_class: KeyScope,
}

impl KeyScopeFacts {
    /// Returns the key scope of the last own call, if the class names another one now.
    pub(super) fn left_by_own_call(&self) -> Option<&KeyScope> {
        self.called.as_ref().filter(|called| **called != self.of_class)
    }

    /// Whether a written call may have been made in another key scope than the class names now. An
    /// earlier version of this program wrote no key scope, so a call of it may have had any.
    pub(super) fn is_left_by_record(&self) -> bool {
        *self.intended.as_ref().unwrap_or(&KeyScope::WHOLE) != self.of_class
    }
}
