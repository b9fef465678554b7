//! Who this process is among others: a name that no other has, and a seed for its jitter.

/// The name of the machine that we run on, as far as it is known.
pub(crate) fn host_name() -> String {
    // In a pod this is its name; elsewhere most shells set it.
    let from_kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = std::env::var("HOSTNAME").ok().or_else(from_kernel).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
}

/// A name for this process. The host's name alone is not enough: two containers may share it, and a restarted process must
/// not take the Lease of its predecessor for its own.
pub(super) fn of_this_process() -> String {
    format!("{}_{:016x}{:016x}", host_name(), seed(), seed())
}

/// A number that differs from process to process. Nothing that decides draws from it; it spreads retries.
pub(crate) fn seed() -> u64 {
    getrandom::u64().expect("the operating system has a source of randomness")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_on_one_machine_have_different_names() {
        assert_ne!(of_this_process(), of_this_process());
    }
}
