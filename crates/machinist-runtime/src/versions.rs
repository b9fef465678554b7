//! Fingerprints: which versions of which objects a decision was made from.

/// A fingerprint of versions.
#[derive(Debug)]
pub struct Versions(u64);

impl Default for Versions {
    fn default() -> Self {
        Self::new()
    }
}

impl Versions {
    /// The fingerprint of nothing.
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a number.
    pub fn add(&mut self, version: u64) {
        self.0 = (self.0 ^ version).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }

    /// Adds a text.
    pub fn add_text(&mut self, text: &str) {
        for byte in text.bytes() {
            self.add(u64::from(byte));
        }
    }

    /// The fingerprint.
    pub fn done(self) -> u64 {
        self.0
    }
}
