//! The stream of a command in a container: standard output and standard error in frames. Pure.
//!
//! A frame has a header of 8 bytes: the stream (1 or 2), three zeros, and the length of the payload
//! as a big-endian number.

/// Kept of each stream. The driver's own commands print less.
const MAX_OUTPUT_LEN: usize = 256 * 1024;

const HEADER: usize = 8;

/// The output of a command, taken apart while it arrives.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pending: Vec<u8>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Frames {
    /// Adds bytes of the connection.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while let Some((stream, length)) = header(&self.pending) {
            let end = HEADER.saturating_add(length);
            if self.pending.len() < end {
                return;
            }
            let frame: Vec<u8> = self.pending.drain(..end).skip(HEADER).collect();
            let kept = if stream == 2 { &mut self.stderr } else { &mut self.stdout };
            let room = MAX_OUTPUT_LEN.saturating_sub(kept.len()).min(frame.len());
            kept.extend_from_slice(&frame[..room]);
        }
    }
}

fn header(bytes: &[u8]) -> Option<(u8, usize)> {
    let [stream, _, _, _, a, b, c, d, ..] = *bytes else { return None };
    Some((stream, usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_arrive_in_pieces_are_joined() {
        let stream = b"\x01\0\0\0\0\0\0\x02ok\x02\0\0\0\0\0\0\x03bad\x01\0\0\0\0\0\0\x01!";
        for size in 1..stream.len() {
            let mut frames = Frames::default();
            for piece in stream.chunks(size) {
                frames.add(piece);
            }
            assert_eq!((frames.stdout.as_slice(), frames.stderr.as_slice()), (&b"ok!"[..], &b"bad"[..]));
        }
    }
}
