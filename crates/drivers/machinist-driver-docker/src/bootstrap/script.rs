//! The result of the translation: files and steps, in order.

use crate::archive::{Content, Entry};

/// The steps of a bootstrap, and the parts of the data that have no effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    /// The parts of the data that have no effect, for users.
    pub(crate) ignored: Vec<String>,
}

/// One step of a bootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Extracts an archive below `/`.
    Write(Vec<Entry>),
    /// Runs a shell script from `/`.
    Run(String),
}

impl Script {
    /// Adds a shell script.
    pub(crate) fn run(&mut self, script: impl Into<String>) {
        self.steps.push(Step::Run(script.into()));
    }

    /// Adds a file. Consecutive files are one step.
    pub(crate) fn write(&mut self, entry: Entry) {
        match self.steps.last_mut() {
            Some(Step::Write(entries)) => {
                // The last file of a path wins, as if each were written for itself.
                entries.retain(|earlier| earlier.path != entry.path);
                entries.push(entry);
            }
            Some(Step::Run(_)) | None => self.steps.push(Step::Write(vec![entry])),
        }
    }

    /// Appends to a file. A file keeps the permissions and the owner that the data does not set.
    pub(crate) fn append(&mut self, entry: Entry, sets: Sets) {
        let Content::File(more) = &entry.content else { return self.write(entry) };
        if let Some(Step::Write(entries)) = self.steps.last_mut()
            && let Some(earlier) = entries.iter_mut().find(|earlier| earlier.path == entry.path)
            && let Content::File(content) = &mut earlier.content
        {
            content.extend_from_slice(more);
            if sets.permissions {
                earlier.mode = entry.mode;
            }
            if sets.owner {
                (earlier.uid, earlier.gid) = (entry.uid, entry.gid);
            }
            return;
        }
        // The file may exist in the image. The new part is written beside it first.
        let part = format!("{PARTS}/{}", self.steps.len());
        let path = quote(&absolute(&entry.path));
        let (part_path, folder) = (quote(&absolute(&part)), quote(&parent(&absolute(&entry.path))));
        let mut append = format!("mkdir -p {folder} && cat {part_path} >>{path} && rm -f {part_path}");
        if sets.owner {
            append.push_str(&format!(" && chown {}:{} {path}", entry.uid, entry.gid));
        }
        // A change of the owner may clear special bits, so the permissions are last.
        if sets.permissions {
            append.push_str(&format!(" && chmod {:o} {path}", entry.mode));
        }
        self.write(Entry { path: part, mode: 0o600, ..entry });
        self.run(append + "\n");
    }

    /// Changes the owner of a path by names that only the container knows.
    pub(crate) fn own(&mut self, path: &str, owner: &str) {
        self.run(format!("chown -- {} {}\n", quote(owner), quote(&absolute(path))));
    }

    /// Notes a part of the data that has no effect, once.
    pub(crate) fn ignore(&mut self, part: impl Into<String>) {
        let part = part.into();
        if !self.ignored.contains(&part) {
            self.ignored.push(part);
        }
    }
}

/// The properties of a file that appended data sets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sets {
    pub(crate) permissions: bool,
    pub(crate) owner: bool,
}

/// The folder for parts of files that are appended.
const PARTS: &str = "var/lib/machinist/parts";

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

fn parent(path: &str) -> String {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/".to_owned(),
        Some((parent, _)) => parent.to_owned(),
    }
}

/// Quotes a text for a shell.
pub(crate) fn quote(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./=:,@%+".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Joins the words of a command for a shell.
pub(crate) fn join(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quote("a-b/c=d"), "a-b/c=d");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(join(&["echo".to_owned(), "a b".to_owned()]), "echo 'a b'");
    }

    #[test]
    fn an_appended_part_joins_a_file_of_the_same_step() {
        let mut script = Script::default();
        script.write(Entry::file("etc/a", 0o644, "1\n"));
        script.append(Entry::file("etc/a", 0o644, "2\n"), Sets::default());
        assert_eq!(script.steps, [Step::Write(vec![Entry::file("etc/a", 0o644, "1\n2\n")])]);
        script.append(Entry::file("etc/it's", 0o644, "3\n"), Sets::default());
        let Some(Step::Run(append)) = script.steps.last() else { panic!("expected a script") };
        assert_eq!(
            append,
            "mkdir -p /etc && cat /var/lib/machinist/parts/1 >>'/etc/it'\\''s' && rm -f /var/lib/machinist/parts/1\n"
        );
    }

    #[test]
    fn the_last_file_of_a_path_wins() {
        let mut script = Script::default();
        script.write(Entry::file("etc/a", 0o644, "1"));
        script.write(Entry::file("etc/a", 0o600, "2"));
        assert_eq!(script.steps, [Step::Write(vec![Entry::file("etc/a", 0o600, "2")])]);
    }
}
