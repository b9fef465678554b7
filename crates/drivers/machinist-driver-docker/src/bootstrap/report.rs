//! The state of a bootstrap: the command that prints it in the container, and its parser. Pure.

use machinist_instance::{BootstrapCause, BootstrapFailure, BootstrapState, BootstrapStatus};

use super::redact::{Cut, redact};

/// Printed of each output: more than is kept, so that a secret that begins before the kept part is
/// recognised.
const PRINTED_BYTES: usize = 3 * BootstrapFailure::OUTPUT_BYTES;

/// The script that prints the state, then an empty line and the end of the output.
pub(super) fn script() -> String {
    format!(
        r#"cd /var/lib/machinist/bootstrap 2>/dev/null || {{ echo 'state absent'; exit 0; }}
alive() {{
    read -r pid born <started && read -r line <"/proc/$pid/stat" || return 1
    rest=${{line##*) }}
    set -- $rest
    shift 19
    [ "$1" = "$born" ]
}} 2>/dev/null
if [ ! -e started ]; then echo 'state staged'
elif [ -e result ]; then echo "state $(cat result)"
elif alive; then echo 'state running'
elif [ -e result ]; then echo "state $(cat result)"
else echo 'state interrupted'
fi
for init in /lib/systemd/systemd /usr/lib/systemd/systemd; do
    [ ! -e $init ] || echo 'init systemd'
done
echo "steps $(cat steps.count)"
[ ! -e step ] || echo "step $(cat step)"
[ ! -e kubeadm-started ] || echo kubeadm
while read -r part; do echo "ignored $part"; done <ignored
echo
tail -c {PRINTED_BYTES} stdout 2>/dev/null
tail -c {PRINTED_BYTES} stderr >&2 2>/dev/null
exit 0
"#
    )
}

/// Parses the output of the script. `None` if it has another form.
pub(super) fn parse(stdout: &str, stderr: &str) -> Option<BootstrapStatus> {
    let (head, output) = stdout.split_once("\n\n").unwrap_or((stdout, ""));
    let (mut state, mut step, mut steps, mut kubeadm_started) = (None, 0, 0, false);
    let mut ignored = Vec::new();
    for line in head.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("state", text) => state = Some(text),
            ("step", number) => step = number.parse().ok()?,
            ("steps", number) => steps = number.parse().ok()?,
            ("kubeadm", _) => kubeadm_started = true,
            ("ignored", part) if !part.is_empty() => ignored.push(part.to_owned()),
            _ => {}
        }
    }
    let failed = |cause: BootstrapCause| {
        BootstrapState::Failed(BootstrapFailure {
            cause,
            kubeadm_started,
            stdout: end_of(output),
            stderr: end_of(stderr),
        })
    };
    let words: Vec<&str> = state?.split(' ').collect();
    let state = match words.as_slice() {
        ["absent" | "staged"] => BootstrapState::NotStarted,
        ["running"] => BootstrapState::Running { step, steps },
        ["succeeded"] => BootstrapState::Succeeded,
        ["nosuccess"] => failed(BootstrapCause::SuccessFileMissing),
        ["interrupted"] => failed(BootstrapCause::Interrupted),
        ["timedout", step] => failed(BootstrapCause::TimedOut { step: step.parse().ok()?, steps }),
        ["exited", step, code] => {
            failed(BootstrapCause::Exited { step: step.parse().ok()?, steps, code: code.parse().ok()? })
        }
        _ => return None,
    };
    Some(BootstrapStatus { state, ignored })
}

/// The facts in the output of the script besides the state: whether the image has systemd, and
/// whether user data waits for its start.
pub(super) fn surroundings(stdout: &str) -> (bool, bool) {
    let (head, _) = stdout.split_once("\n\n").unwrap_or((stdout, ""));
    let has = |expected: &str| head.lines().any(|line| line == expected);
    (has("init systemd"), has("state staged"))
}

/// The end of an output without secrets and without the colours of a terminal.
pub(crate) fn end_of(output: &str) -> String {
    let is_cut = if output.len() < PRINTED_BYTES { Cut::No } else { Cut::AtTheStart };
    redact(&without_colours(output), BootstrapFailure::OUTPUT_BYTES, is_cut)
}

/// Removes the control sequences that begin with ESC and `[` and end with a letter.
fn without_colours(output: &str) -> String {
    let mut parts = output.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |end| end + 1);
        text.push_str(&part[end..]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(stdout: &str) -> Option<BootstrapState> {
        parse(stdout, "").map(|status| status.state)
    }

    #[test]
    fn an_output_has_no_colours() {
        assert_eq!(end_of("a \u{1b}[0;37mCONFIG\u{1b}[0m: b\u{1b}["), "a CONFIG: b");
        assert_eq!(end_of("plain [1] text"), "plain [1] text");
    }

    #[test]
    fn a_bootstrap_without_a_result_is_not_failed() {
        assert_eq!(state("state absent\n"), Some(BootstrapState::NotStarted));
        assert_eq!(state("state staged\nsteps 2\n\n"), Some(BootstrapState::NotStarted));
        let running = "state running\nsteps 17\nstep 3\nignored mounts\nignored a b\n\nstate exited 1 1";
        let status = parse(running, "").expect("a state");
        assert_eq!(status.state, BootstrapState::Running { step: 3, steps: 17 });
        assert_eq!(status.ignored, ["mounts", "a b"]);
        assert_eq!(state("state succeeded\nsteps 2\nstep 2\n\nok"), Some(BootstrapState::Succeeded));
        assert_eq!(state("garbage"), None);
        assert_eq!(state("state exited x y\n"), None);
    }

    #[test]
    fn a_failure_has_a_cause_and_the_end_of_the_output() {
        let text = "state exited 3 1\nsteps 17\nstep 3\nkubeadm\n\njoin abcdef.0123456789abcdef\n";
        let status = parse(text, "error").expect("a state");
        let failure = BootstrapFailure {
            cause: BootstrapCause::Exited { step: 3, steps: 17, code: 1 },
            kubeadm_started: true,
            stdout: "join [redacted]\n".to_owned(),
            stderr: "error".to_owned(),
        };
        assert_eq!(status.state, BootstrapState::Failed(failure));
        let cause = |stdout: &str| match state(stdout) {
            Some(BootstrapState::Failed(failure)) => failure.cause,
            other => panic!("expected a failure, got {other:?}"),
        };
        assert_eq!(cause("state timedout 2\nsteps 4\n\n"), BootstrapCause::TimedOut { step: 2, steps: 4 });
        assert_eq!(cause("state interrupted\nsteps 4\n\n"), BootstrapCause::Interrupted);
        assert_eq!(cause("state nosuccess\nsteps 4\n\n"), BootstrapCause::SuccessFileMissing);
    }

    #[test]
    fn the_surroundings_are_before_the_output() {
        assert_eq!(surroundings("state staged\ninit systemd\nsteps 1\n\n"), (true, true));
        assert_eq!(surroundings("state absent\n\ninit systemd\nstate staged\n"), (false, false));
    }

    #[test]
    fn the_output_is_bounded() {
        let long = "line\n".repeat(PRINTED_BYTES);
        let end = end_of(&long);
        assert_eq!(end.len(), BootstrapFailure::OUTPUT_BYTES);
    }
}
