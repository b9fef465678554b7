//! Rewrites a command line before clap parses it: the program name of a link, and flags in the
//! spelling of Go's machine-controller-manager.
//!
//! Old manifests use flags that no longer exist. A flag that is not needed is dropped with a
//! warning. A flag for a feature that is not implemented yet is an error, because silently
//! switching off a safety feature is dangerous. clap checks the value of the flag first.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Link names under which this program runs one of the two controllers.
const CALLED_AS: [&str; 2] = ["machine-controller-manager", "machine-controller"];

/// A flag of older releases of Go's machine-controller-manager that has no effect.
struct Removed {
    name: &'static str,
    form: Form,
    reason: &'static str,
}

/// How a flag takes its value.
#[derive(PartialEq, Eq)]
enum Form {
    /// `--flag` or `--flag=false`.
    Switch,
    /// `--flag=value` or `--flag value`.
    Valued,
}

/// Removed flags. All of them belonged to the manager.
const REMOVED: &[Removed] = &[
    Removed {
        name: "delete-migrated-machine-class",
        form: Form::Switch,
        reason: "there are no old machine classes to migrate",
    },
    Removed {
        name: "machine-safety-orphan-vms-period",
        form: Form::Valued,
        reason: "the manager does not call a cloud; the machine controller handles orphaned instances",
    },
    Removed {
        name: "machine-safety-apiserver-statuscheck-timeout",
        form: Form::Valued,
        reason: "the manager does not check the health of machines",
    },
    Removed {
        name: "machine-safety-apiserver-statuscheck-period",
        form: Form::Valued,
        reason: "the manager does not check the health of machines",
    },
];

/// A command line, ready for clap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// Arguments, with the program name first.
    pub words: Vec<OsString>,
    /// Warnings about flags, for the user.
    pub warnings: Vec<String>,
}

/// Rewrites the arguments of a command line for clap.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> CommandLine {
    let mut words = words.into_iter().peekable();
    let program = words.next().unwrap_or_else(|| "machinist".into());
    let mut line = CommandLine { words: vec![program.clone()], warnings: Vec::new() };
    if let Some(name) = called_as(&program) {
        line.words.push(name.into());
    }
    while let Some(word) = words.next() {
        if word == "--" {
            line.words.push(word);
            line.words.extend(words);
            break;
        }
        let Some((flag, value)) = word.to_str().and_then(split_flag) else {
            line.words.push(word);
            continue;
        };
        let command = line.words.get(1).and_then(|word| word.to_str()).unwrap_or_default().to_owned();
        if let Some(removed) = removed(&command, &flag) {
            line.warnings.push(format!("--{flag} is deprecated and has no effect: {}", removed.reason));
            if value.is_none() && removed.form == Form::Valued {
                words.next();
            }
            continue;
        }
        line.words.push(match value {
            Some(value) => format!("--{flag}={value}").into(),
            None => format!("--{flag}").into(),
        });
    }
    line
}

/// Returns the command for the name under which the program was started.
fn called_as(program: &OsStr) -> Option<&'static str> {
    let name = Path::new(program).file_name()?;
    CALLED_AS.into_iter().find(|known| name == *known)
}

/// Splits `--some_flag=value` into `some-flag` and `value`.
fn split_flag(word: &str) -> Option<(String, Option<&str>)> {
    let rest = word.strip_prefix("--").filter(|rest| !rest.is_empty())?;
    let (name, value) = match rest.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (rest, None),
    };
    Some((name.replace('_', "-"), value))
}

fn removed(command: &str, flag: &str) -> Option<&'static Removed> {
    let is_manager = command == CALLED_AS[0];
    REMOVED.iter().find(|removed| is_manager && removed.name == flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> CommandLine {
        read(text.split(' ').map(OsString::from))
    }

    fn read_back(text: &str) -> String {
        let line = words(text);
        line.words.join(OsStr::new(" ")).into_string().expect("text in, text out")
    }

    #[test]
    fn underscores_become_dashes_in_flag_names_only() {
        assert_eq!(read_back("machinist up --data_dir my_dir"), "machinist up --data-dir my_dir");
        assert_eq!(read_back("machinist up --data_dir=my_dir"), "machinist up --data-dir=my_dir");
        assert_eq!(read_back("machinist x -- --data_dir"), "machinist x -- --data_dir");
    }

    #[test]
    fn a_link_named_like_a_controller_runs_that_controller() {
        assert_eq!(read_back("./machine-controller --v 2"), "./machine-controller machine-controller --v 2");
        assert_eq!(
            read_back("/bin/machine-controller-manager --v=2"),
            "/bin/machine-controller-manager machine-controller-manager --v=2"
        );
        assert_eq!(read_back("/bin/machinist up"), "/bin/machinist up");
    }

    #[test]
    fn removed_flags_are_dropped_with_a_warning() {
        for text in [
            "--delete-migrated-machine-class=false",
            "--delete_migrated_machine_class",
            "--machine-safety-orphan-vms-period 30m",
        ] {
            let line = words(&format!("machinist machine-controller-manager {text} --port 1"));
            assert_eq!(line.words[2..], ["--port", "1"]);
            assert_eq!(line.warnings.len(), 1);
            assert!(line.warnings[0].contains(" is deprecated and has no effect: "), "{:?}", line.warnings);
        }
    }

    #[test]
    fn the_book_lists_the_removed_flags() {
        let page = include_str!("../../../../docs/src/reference/flags.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `--")).collect();
        let removed = REMOVED.iter().map(|flag| format!("| `--{}` | {} |", flag.name, flag.reason));
        let expected: Vec<String> = removed.collect();
        assert_eq!(rows, expected);
    }
}
