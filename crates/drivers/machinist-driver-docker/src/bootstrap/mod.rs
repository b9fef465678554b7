//! Bootstrap of a container: translates bootstrap data into files and steps, and runs them once.
//!
//! ```text
//! bootstrap data -> cloud_config or ignition -> Script (files, steps) -> bundle (an archive)
//!   -> /var/lib/machinist/bootstrap in the container -> supervisor (a shell script) -> result
//! ```
//!
//! The supervisor runs inside the container and writes each step and the result to disk, so the
//! bootstrap does not depend on this process. All files here are pure, except `driver`.

mod boot;
mod bundle;
mod cloud_config;
mod driver;
mod ignition;
mod jinja;
mod kubeadm;
mod redact;
mod report;
mod script;
mod users;

pub(crate) use bundle::{Bundle, Start};
pub(crate) use redact::{Cut, redact};
pub(crate) use script::Script;

use machinist_instance::{BootstrapFormat, Error, ErrorKind, UserData};

use crate::spec::ImageMode;

/// The facts about a machine that bootstrap data may refer to.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// The name of the container, which is its host name.
    pub(crate) name: String,
    pub(crate) image_mode: ImageMode,
}

/// Translates the bootstrap data of Cluster API.
///
/// # Errors
/// `InvalidSpec` names the place, and contains none of the data.
pub(crate) fn translate(
    format: BootstrapFormat,
    data: &UserData,
    machine: &Machine,
) -> Result<Script, Error> {
    let text = std::str::from_utf8(data.expose()).map_err(|_| wrong("UTF-8 text"))?;
    match format {
        BootstrapFormat::CloudConfig => cloud_config::translate(text, machine),
        BootstrapFormat::Ignition => ignition::translate(text, machine),
    }
}

/// Translates the user data of a Machine: cloud-config, Ignition or a shell script. A machine with
/// user data of another form would never join, so it is refused before its container exists.
///
/// # Errors
/// As [`translate`].
pub(crate) fn translate_user_data(data: &UserData, machine: &Machine) -> Result<Option<Script>, Error> {
    if data.expose().is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(data.expose()).map_err(|_| wrong("UTF-8 text"))?;
    let first = text.lines().next().unwrap_or_default().trim_end();
    let script = if first.starts_with("#!") {
        let mut script = Script::default();
        script.run(text);
        script
    } else if first == "#cloud-config" || jinja::is_template(first) {
        cloud_config::translate(text, machine)?
    } else if text.trim_start().starts_with('{') {
        ignition::translate(text, machine)?
    } else {
        let text = "user data: expected #cloud-config, a script that begins with #!, or Ignition";
        return Err(Error::new(ErrorKind::InvalidSpec, text));
    };
    Ok(Some(script))
}

fn wrong(expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("bootstrap data: expected {expected}"))
}

fn wrong_at(place: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("bootstrap data, {place}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn machine() -> Machine {
        Machine { name: "c1-w-1".to_owned(), image_mode: ImageMode::Kind }
    }

    #[test]
    fn user_data_is_recognised_by_its_first_line() {
        let translated = |text: &str| translate_user_data(&UserData::new(text), &machine());
        assert_eq!(translated(""), Ok(None));
        let script = translated("#!/bin/sh\necho a\n").expect("valid").expect("a script");
        assert_eq!(script.steps.len(), 1);
        let config = translated("#cloud-config\nruncmd: [\"echo a\", \"echo b\"]\n").expect("valid");
        assert_eq!(config.expect("steps").steps.len(), 2);
        let ignition = translated("{\"ignition\": {\"version\": \"3.4.0\"}}").expect("valid");
        assert_eq!(ignition, Some(Script::default()));
        for text in ["canary0123456789", "canary: true\n", "\n#cloud-config\ncanary: true\n"] {
            let refused = translated(text).expect_err("no machine could join with it");
            assert_eq!(refused.kind, ErrorKind::InvalidSpec);
            assert!(
                refused.message.contains("expected #cloud-config") && !refused.message.contains("canary")
            );
        }
    }
}
