//! Metrics of the operating system about this process, with the usual names. Only Linux has them.

use std::fs;
use std::time::Duration;

use machinist_kube::{Clock, SystemClock};
use machinist_serve::{Counter, Gauge, Metrics};

const CPU: Counter =
    Counter::new("process_cpu_seconds_total", "Time for which the process used a CPU, in seconds.");
const RESIDENT: Gauge = Gauge::new("process_resident_memory_bytes", "Resident memory in bytes.");
const VIRTUAL: Gauge = Gauge::new("process_virtual_memory_bytes", "Virtual memory in bytes.");
const THREADS: Gauge = Gauge::new("process_threads", "Threads of the process.");
const OPEN_FILES: Gauge = Gauge::new("process_open_fds", "Open file descriptors.");
const MOST_FILES: Gauge = Gauge::new("process_max_fds", "Largest number of open file descriptors.");
const STARTED: Gauge =
    Gauge::new("process_start_time_seconds", "Start of the process, in seconds since 1970.");

/// Ticks of a second in `/proc/self/stat`. Linux shows this number on every processor.
const TICKS_PER_SECOND: u64 = 100;

/// Adds the metrics. They are read for each answer.
pub(super) fn add(metrics: &Metrics) {
    let started = Clock::now(&SystemClock).as_duration();
    metrics.add_source(move |metrics| {
        metrics.set(&STARTED, &[], started.as_secs_f64());
        record(metrics);
    });
}

fn record(metrics: &Metrics) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (gauge, field, unit) in
        [(&RESIDENT, "VmRSS", 1024.0), (&VIRTUAL, "VmSize", 1024.0), (&THREADS, "Threads", 1.0)]
    {
        if let Some(number) = number_after(&status, field) {
            metrics.set(gauge, &[], number * unit);
        }
    }
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(ticks) = cpu_ticks(&stat) {
        metrics.add_seconds(&CPU, &[], Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        metrics.set_number(&OPEN_FILES, &[], open.count());
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(most) = number_after(&limits, "Max open files") {
        metrics.set(&MOST_FILES, &[], most);
    }
}

/// Returns the first number of the line that begins with a text.
fn number_after(text: &str, start: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(start))?;
    rest.trim_start_matches(':').split_whitespace().next()?.parse().ok()
}

/// Returns the time in user and kernel mode. The name of the program may contain spaces, so the
/// fields are counted after it.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, kernel): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + kernel)
}

#[test]
fn the_files_of_linux_are_read() {
    let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
    assert_eq!(cpu_ticks(stat), Some(300));
    assert_eq!(number_after("Name:\tx\nVmRSS:\t   2048 kB\n", "VmRSS"), Some(2048.0));
    let limits = "Limit   Soft   Hard   Units\nMax open files            1024   4096   files\n";
    assert_eq!(number_after(limits, "Max open files"), Some(1024.0));
}
