//! Tests of the printed completion scripts.

use std::process::Command;

use crate::process::{Ended, machinist};

/// Returns the completions of bash for a command line with the cursor at its end.
fn completed_by_bash(line: &str) -> Vec<String> {
    // Like bash, the script sets the words and calls the registered completion function.
    let script = r#"
        source <("$1" completion bash) || exit 1
        read -r -a COMP_WORDS <<< "$2"
        [[ $2 == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMP_LINE=$2 COMP_POINT=${#2}
        registered=$(complete -p machinist) || exit 1
        function=${registered#*-F }
        "${function%% *}" machinist "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" || exit 1
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash", env!("CARGO_BIN_EXE_machinist"), line]);
    let ended = Ended::of(&mut bash);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{line}");
    // Without completions, `printf` prints an empty line.
    ended.stdout.lines().filter(|offered| !offered.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_a_command_a_flag_and_a_value() {
    for (line, expected) in [
        ("machinist cr", &["crds"][..]),
        ("machinist machine-controller-m", &["machine-controller-manager"]),
        ("machinist up --data", &["--data-dir"]),
        ("machinist up --until ", &["ready", "gone"]),
        ("machinist completion f", &["fish"]),
        ("machinist up --no-such", &[]),
    ] {
        assert_eq!(completed_by_bash(line), expected, "{line}");
    }
    let all = completed_by_bash("machinist ");
    for command in ["up", "why", "sim-cloud", "completion"] {
        assert!(all.iter().any(|completed| completed == command), "{command} is not among {all:?}");
    }
}

#[test]
fn other_shells_have_a_script_and_unknown_ones_are_an_error() {
    for (shell, part) in [("zsh", "#compdef machinist"), ("fish", "complete -c machinist")] {
        let ended = Ended::of(&mut machinist(&format!("completion {shell}")));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.contains(part) && ended.stdout.contains("data-dir"), "{}", ended.stdout);
    }
    let ended = Ended::of(&mut machinist("completion tcsh"));
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("[possible values: bash, zsh, fish]"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("'zsh'"), "no other shell is suggested: {}", ended.stderr);
}
