//! The bundle: everything that the supervisor needs, as an archive. Pure.

use std::time::Duration;

use super::Script;
use super::script::Step;
use crate::archive::{self, Entry};

const SUPERVISOR: &str = include_str!("supervisor.sh");

/// The folder of the bundle in the container. `/var` is a volume, so its content survives a restart
/// of the container, and other containers do not see it.
const FOLDER: &str = "var/lib/machinist/bootstrap";

/// The unit that starts the supervisor in a container that gets its user data before its start.
const UNIT: &str = "machinist-bootstrap.service";
const UNIT_FOLDER: &str = "etc/systemd/system";

const UNIT_TEXT: &str = "[Unit]\n\
    Description=Runs the user data of this machine once\n\
    After=network-online.target containerd.service\n\
    ConditionPathExists=!/var/lib/machinist/bootstrap/started\n\
    \n\
    [Service]\n\
    Type=exec\n\
    ExecStart=/bin/sh /var/lib/machinist/bootstrap/supervisor\n\
    KillMode=process\n\
    \n\
    [Install]\n\
    WantedBy=multi-user.target\n";

/// Contract of bootstrap providers: this file exists after a successful bootstrap.
const SUCCESS_FILE: &str = "/run/cluster-api/bootstrap-success.complete";

/// How the bootstrap begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// A call starts the supervisor. At the end, the success file must exist.
    ByCall,
    /// A unit starts the supervisor when the container boots.
    AtBoot,
}

/// The files of a bootstrap.
pub(crate) struct Bundle(Vec<Entry>);

impl Bundle {
    pub(crate) fn new(script: &Script, timeout: Duration, start: Start) -> Self {
        let mut entries = vec![
            Entry::folder(FOLDER, 0o700),
            file("supervisor", 0o700, SUPERVISOR),
            file("steps.count", 0o600, format!("{}\n", script.steps.len())),
            file("timeout", 0o600, format!("{}\n", timeout.as_secs().max(1))),
            file("ignored", 0o600, script.ignored.iter().map(|part| line(part)).collect::<String>()),
            Entry::folder(format!("{FOLDER}/steps"), 0o700),
        ];
        if start == Start::ByCall {
            entries.push(file("success-file", 0o600, format!("{SUCCESS_FILE}\n")));
        }
        for (index, step) in script.steps.iter().enumerate() {
            let name = format!("steps/{}", index + 1);
            match step {
                Step::Run(text) => entries.push(file(&name, 0o700, text.as_str())),
                Step::Write(files) => {
                    let archive = format!("{name}.tar");
                    let extract = format!("tar -xpf /{FOLDER}/{archive} -C /\n");
                    entries.push(file(&archive, 0o600, archive::write(files)));
                    entries.push(file(&name, 0o700, extract));
                }
            }
        }
        if start == Start::AtBoot {
            entries.extend([
                Entry::file(format!("{UNIT_FOLDER}/{UNIT}"), 0o644, UNIT_TEXT),
                Entry::link(
                    format!("{UNIT_FOLDER}/multi-user.target.wants/{UNIT}"),
                    format!("/{UNIT_FOLDER}/{UNIT}"),
                ),
            ]);
        }
        Self(entries)
    }

    /// The archive, with paths below `/`.
    pub(crate) fn archive(&self) -> Vec<u8> {
        archive::write(&self.0)
    }
}

fn file(name: &str, mode: u32, content: impl Into<Vec<u8>>) -> Entry {
    Entry::file(format!("{FOLDER}/{name}"), mode, content)
}

/// One line of a file, without line breaks of its own.
fn line(text: &str) -> String {
    format!("{}\n", text.replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_every_step_in_order() {
        let mut script = Script::default();
        script.write(Entry::file("etc/a", 0o644, "content"));
        script.run("echo a\n");
        script.ignore("mounts");
        let bundle = Bundle::new(&script, Duration::from_secs(300), Start::ByCall);
        let files = archive::read(&bundle.archive());
        let content = |name: &str| {
            let path = format!("{FOLDER}/{name}");
            let found = files.iter().find(|(known, _)| *known == path);
            found.map(|(_, content)| String::from_utf8_lossy(content).into_owned())
        };
        assert_eq!(content("steps.count").as_deref(), Some("2\n"));
        assert_eq!(content("timeout").as_deref(), Some("300\n"));
        assert_eq!(content("ignored").as_deref(), Some("mounts\n"));
        assert_eq!(content("steps/2").as_deref(), Some("echo a\n"));
        assert_eq!(content("success-file"), Some(format!("{SUCCESS_FILE}\n")));
        assert!(content("steps/1.tar").is_some_and(|tar| tar.contains("content")));
    }

    #[test]
    fn a_unit_starts_user_data_at_boot() {
        let bundle = Bundle::new(&Script::default(), Duration::from_secs(1), Start::AtBoot);
        let names: Vec<&str> = bundle.0.iter().map(|entry| entry.path.as_str()).collect();
        assert!(names.contains(&"etc/systemd/system/multi-user.target.wants/machinist-bootstrap.service"));
        assert!(!names.contains(&"var/lib/machinist/bootstrap/success-file"));
    }
}
