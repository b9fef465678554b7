//! Archives of files in the `ustar` format, written and read in memory. Pure.
//!
//! The driver needs few properties of a file, so this is shorter than a dependency: regular files,
//! folders and symbolic links, with mode, numeric owner and any length of path.

/// Size of a header and unit of the content.
const BLOCK: usize = 512;
/// Longest path in a header; a longer path is in a record before the entry.
const MAX_NAME_LEN: usize = 100;
/// The type of the record that contains the path of the next entry.
const LONG_NAME: u8 = b'L';
const REGULAR: u8 = b'0';
const LINK: u8 = b'2';
const FOLDER: u8 = b'5';

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The path without a leading slash.
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) content: Content,
}

/// The content of an entry: a file, a folder or a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    File(Vec<u8>),
    Folder,
    /// A symbolic link to a path of at most 100 bytes.
    Link(String),
}

impl Entry {
    /// A file that belongs to root.
    pub(crate) fn file(path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode, uid: 0, gid: 0, content: Content::File(content.into()) }
    }

    /// A folder that belongs to root.
    pub(crate) fn folder(path: impl Into<String>, mode: u32) -> Self {
        Self { path: path.into(), mode, uid: 0, gid: 0, content: Content::Folder }
    }

    /// A symbolic link.
    pub(crate) fn link(path: impl Into<String>, target: impl Into<String>) -> Self {
        Self { path: path.into(), mode: 0o777, uid: 0, gid: 0, content: Content::Link(target.into()) }
    }
}

/// Writes an archive.
pub(crate) fn write(entries: &[Entry]) -> Vec<u8> {
    let mut archive = Vec::new();
    for entry in entries {
        let path = entry.path.trim_start_matches('/');
        if MAX_NAME_LEN < path.len() {
            let content = [path.as_bytes(), b"\0"].concat();
            archive.extend(header(
                "././@LongLink",
                LONG_NAME,
                &Entry::file("", 0o644, []),
                content.len(),
                "",
            ));
            append(&mut archive, &content);
        }
        let (kind, content, link) = match &entry.content {
            Content::File(content) => (REGULAR, content.as_slice(), ""),
            Content::Folder => (FOLDER, &[][..], ""),
            Content::Link(target) => (LINK, &[][..], target.as_str()),
        };
        archive.extend(header(path, kind, entry, content.len(), link));
        append(&mut archive, content);
    }
    archive.extend([0; 2 * BLOCK]);
    archive
}

fn append(archive: &mut Vec<u8>, content: &[u8]) {
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

fn header(path: &str, kind: u8, entry: &Entry, size: usize, link: &str) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, longest: usize, bytes: &[u8]| {
        let length = bytes.len().min(longest);
        header[at..at + length].copy_from_slice(&bytes[..length]);
    };
    put(0, MAX_NAME_LEN, path.as_bytes());
    put(100, 8, format!("{:07o}\0", entry.mode & 0o7777).as_bytes());
    put(108, 8, format!("{:07o}\0", entry.uid & 0o777_7777).as_bytes());
    put(116, 8, format!("{:07o}\0", entry.gid & 0o777_7777).as_bytes());
    put(124, 12, format!("{size:011o}\0").as_bytes());
    // The time of modification is 1970, so that equal content gives an equal archive.
    put(136, 12, b"00000000000\0");
    put(148, 8, b"        ");
    put(156, 1, &[kind]);
    put(157, MAX_NAME_LEN, link.as_bytes());
    put(257, 8, b"ustar\x0000");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Reads the regular files of an archive: path and content. Reading ends at the first damage.
pub(crate) fn read(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut rest = archive;
    while let Some((header, after)) = rest.split_at_checked(BLOCK) {
        let Some(size) = octal(&header[124..136]) else { break };
        let Some(content) = after.get(..size) else { break };
        let path = text(&header[..MAX_NAME_LEN]);
        if path.is_empty() {
            break;
        }
        if matches!(header[156], REGULAR | 0) {
            files.push((path, content.to_vec()));
        }
        rest = after.get(size.next_multiple_of(BLOCK)..).unwrap_or_default();
    }
    files
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn octal(field: &[u8]) -> Option<usize> {
    usize::from_str_radix(text(field).trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_archive_is_read_back() {
        let long = format!("{}/end", "folder".repeat(20));
        let archive = write(&[
            Entry::folder("etc", 0o755),
            Entry::file("/etc/a", 0o640, "content"),
            Entry::link("etc/b", "/etc/a"),
            Entry::file("empty", 0o644, []),
        ]);
        assert_eq!(archive.len() % BLOCK, 0);
        assert_eq!(
            read(&archive),
            [("etc/a".to_owned(), b"content".to_vec()), ("empty".to_owned(), Vec::new())]
        );
        assert_eq!(&archive[BLOCK + 100..BLOCK + 107], b"0000640");
        let with_long_path = write(&[Entry::file(long.clone(), 0o644, "x")]);
        assert!(with_long_path.windows(long.len()).any(|window| window == long.as_bytes()));
    }

    #[test]
    fn a_damaged_archive_ends_early() {
        let archive = write(&[Entry::file("a", 0o644, "x".repeat(600)), Entry::file("b", 0o644, "y")]);
        assert_eq!(read(&archive[..BLOCK + 100]), []);
        assert_eq!(read(b"not an archive"), []);
    }
}
