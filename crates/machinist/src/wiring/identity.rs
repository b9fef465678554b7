//! Identity of this process: a unique name, and a seed for its jitter.

/// Returns the host name, or "unknown".
pub(crate) fn host_name() -> String {
    // In a pod, HOSTNAME is the name of the pod. Elsewhere most shells set it.
    let from_kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = std::env::var("HOSTNAME").ok().or_else(from_kernel).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
}

/// Returns a unique name for this process. The host name is not enough: two containers may share
/// it, and a restarted process must not mistake the Lease of its predecessor for its own.
pub(super) fn of_this_process() -> String {
    format!("{}_{:016x}{:016x}", host_name(), seed(), seed())
}

/// Returns a random number. It spreads retries; decisions do not use it.
pub(crate) fn seed() -> u64 {
    getrandom::u64().expect("the operating system provides randomness")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_on_one_host_have_different_names() {
        assert_ne!(of_this_process(), of_this_process());
    }
}
