//! Judges a container whose Node has not registered. Pure.

use machinist_instance::{
    Boot, BootTrouble, BootstrapCause, BootstrapFailure, BootstrapState, BootstrapStatus,
};

use crate::model::Container;

/// Folder of the output of user data in the container.
const OUTPUT: &str = "/var/lib/machinist/bootstrap";
/// A container that the engine has started this often again restarts in a circle. Each pause is
/// twice as long as the one before, so the third restart is in the first second.
const CIRCLE: u32 = 3;
/// The exit codes of the engine for a command that it cannot run.
const NO_COMMAND: [i64; 2] = [126, 127];

/// The state of a container, as far as its details show it.
pub(super) enum Outside {
    /// The container runs: a look inside decides.
    Runs,
    /// The details decide.
    Known(Boot),
    /// The end of the console explains the problem.
    Console {
        /// The problem.
        cause: String,
        /// Whether the container can never join.
        is_final: bool,
    },
}

/// Judges the details of a container.
pub(super) fn outside(container: &Container) -> Outside {
    let name = container.name.trim_start_matches('/');
    let code = container.state.exit_code;
    match container.state.status.as_str() {
        "running" => Outside::Runs,
        "restarting" if CIRCLE <= container.restart_count => Outside::Console {
            cause: format!(
                "container {name} restarts again and again; its first process exits with code {code}"
            ),
            is_final: true,
        },
        "exited" | "dead" => {
            let because = match container.state.error.as_str() {
                "" => format!("it exited with code {code}"),
                error => error.to_owned(),
            };
            Outside::Console { cause: format!("container {name} does not run: {because}"), is_final: false }
        }
        "paused" => Outside::Known(Boot::Trouble(BootTrouble {
            cause: format!("container {name} is paused"),
            output: Vec::new(),
            see: format!("docker inspect {name}; continue it with docker unpause {name}"),
            is_final: false,
        })),
        // Created, restarting and removing containers are in another state soon.
        _ => Outside::Known(Boot::Working),
    }
}

/// The container no longer exists.
pub(super) fn gone(which: &str) -> Boot {
    Boot::Trouble(BootTrouble {
        cause: format!("container {which} no longer exists"),
        output: Vec::new(),
        see: "docker ps --all".to_owned(),
        is_final: true,
    })
}

/// A problem that the console explains.
pub(super) fn by_console(name: &str, cause: String, is_final: bool, console: &str) -> Boot {
    Boot::Trouble(BootTrouble {
        cause,
        output: BootTrouble::last_lines(console),
        see: format!("docker logs {name}"),
        is_final,
    })
}

/// Whether the engine could not run a shell.
pub(super) fn has_no_shell(code: i64, output: &str) -> bool {
    NO_COMMAND.contains(&code) && output.contains("/bin/sh") && output.contains("no such file or directory")
}

/// The image cannot run user data.
pub(super) fn unusable_image(name: &str, missing: &str) -> Boot {
    Boot::Trouble(BootTrouble {
        cause: format!("the image of container {name} has no {missing}, which runs the user data"),
        output: Vec::new(),
        see: format!("docker inspect {name}"),
        is_final: true,
    })
}

/// Judges the user data of a container that runs.
pub(super) fn inside(name: &str, status: &BootstrapStatus, has_systemd: bool, is_staged: bool) -> Boot {
    match &status.state {
        // A unit of systemd starts it.
        BootstrapState::NotStarted if is_staged && !has_systemd => unusable_image(name, "systemd"),
        BootstrapState::NotStarted | BootstrapState::Running { .. } | BootstrapState::Succeeded => {
            Boot::Working
        }
        BootstrapState::Failed(failure) => Boot::Trouble(BootTrouble {
            cause: cause(&failure.cause),
            output: BootTrouble::last_lines(output(failure)),
            see: format!("docker exec {name} sh -c 'cat {OUTPUT}/stdout {OUTPUT}/stderr'"),
            is_final: false,
        }),
    }
}

fn cause(cause: &BootstrapCause) -> String {
    match cause {
        BootstrapCause::Exited { step, steps, code } if 0 < *step => {
            format!("step {step} of {steps} of the user data exited with code {code}")
        }
        BootstrapCause::Exited { .. }
        | BootstrapCause::SuccessFileMissing
        | BootstrapCause::TimedOut { .. }
        | BootstrapCause::Interrupted => format!("the user data failed: {cause}"),
    }
}

/// Programs write their errors to stderr.
fn output(failure: &BootstrapFailure) -> &str {
    if failure.stderr.trim().is_empty() { &failure.stdout } else { &failure.stderr }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(status: &str, restarts: u32, code: i64) -> Container {
        let container = json!({
            "Id": "1", "Name": "/w", "RestartCount": restarts, "State": {"Status": status, "ExitCode": code},
        });
        serde_json::from_value(container).expect("a container")
    }

    #[test]
    fn only_a_circle_of_restarts_is_final() {
        for (status, restarts, expected) in [
            ("running", 9, None),
            ("created", 0, None),
            ("restarting", 2, None),
            ("restarting", 3, Some(true)),
            ("exited", 9, Some(false)),
        ] {
            let found = match outside(&container(status, restarts, 7)) {
                Outside::Console { is_final, cause } => {
                    assert!(cause.contains("code 7"), "{cause}");
                    Some(is_final)
                }
                Outside::Runs | Outside::Known(_) => None,
            };
            assert_eq!(found, expected, "{status} {restarts}");
        }
    }

    #[test]
    fn a_failed_step_is_reported_with_its_last_lines() {
        let failure = BootstrapFailure {
            cause: BootstrapCause::Exited { step: 1, steps: 1, code: 3 },
            kubeadm_started: false,
            stdout: String::new(),
            stderr: (0..9).map(|line| format!("line {line}\n")).collect(),
        };
        let status = BootstrapStatus { state: BootstrapState::Failed(failure), ignored: Vec::new() };
        let Boot::Trouble(trouble) = inside("w", &status, true, true) else { panic!("expected a problem") };
        assert!(!trouble.is_final, "an exit code alone waits");
        assert_eq!(trouble.cause, "step 1 of 1 of the user data exited with code 3");
        assert_eq!(trouble.output, ["line 4", "line 5", "line 6", "line 7", "line 8"]);
        assert!(trouble.see.starts_with("docker exec w "), "{}", trouble.see);
    }

    #[test]
    fn user_data_without_systemd_never_runs() {
        let status = BootstrapStatus { state: BootstrapState::NotStarted, ignored: Vec::new() };
        assert_eq!(inside("w", &status, true, true), Boot::Working, "systemd still boots");
        assert_eq!(inside("w", &status, false, false), Boot::Working, "there is no user data");
        let boot = inside("w", &status, false, true);
        assert!(matches!(&boot, Boot::Trouble(trouble) if trouble.is_final), "{boot:?}");
        assert!(has_no_shell(127, "exec: \"/bin/sh\": stat /bin/sh: no such file or directory"));
        assert!(!has_no_shell(1, "/bin/sh: a: no such file or directory"));
    }
}
