//! Plays inputs against the embedded server until one fails: the given files, or new inputs made
//! from the corpus.
//!
//! A child process plays the inputs and prints each input's number first. If the process dies,
//! takes too long or uses too much memory, the input is created again from its number and stored as
//! a file. Then the next input is played.

#![expect(clippy::print_stdout, reason = "this program prints a report")]
#![expect(
    clippy::disallowed_methods,
    reason = "the program watches real time, and the child reports a failure by its exit status"
)]

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Parser;
use machinist_conformance::fuzz::{TARGETS, Target, mutated};

/// Interval of the memory checks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Stack of a request in `machinist`: the stack of a thread of its runtime.
const STACK: usize = 2 << 20;

#[derive(Parser)]
struct Args {
    /// Target that reads the inputs: request, body, patch, selector, continue, schema, rule,
    /// json_path, watch
    target: String,

    /// Play only these files
    files: Vec<PathBuf>,

    /// Number of inputs to play
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    runs: u64,

    /// Stop after this many seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// First seed; the same seed creates the same inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Time limit for one input, in seconds
    #[arg(long, default_value_t = 10)]
    longest: u64,

    /// Memory limit for the process, in megabytes
    #[arg(long, default_value_t = 1024)]
    megabytes: u64,

    /// Stop after this many failed inputs
    #[arg(long, default_value_t = 20)]
    failures: usize,

    /// Folder for failed inputs
    #[arg(long, default_value = "target/fuzz")]
    keep: PathBuf,

    /// Play inputs from this number on and print each number
    #[arg(long, hide = true)]
    play_from: Option<u64>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    let Some(target) = TARGETS.iter().find(|target| target.name == args.target) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        return Err(format!("TARGET: expected one of {}", names.join(", ")).into());
    };
    if !args.files.is_empty() {
        let inputs: Result<Vec<_>, _> = args.files.iter().map(fs::read).collect();
        for (file, input) in args.files.iter().zip(inputs?) {
            let began = Instant::now();
            on_a_small_stack(target, input);
            println!("{} {:?}", file.display(), began.elapsed());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let corpus = corpus(target)?;
    match args.play_from {
        Some(first) => {
            play(&args, target, &corpus, first)?;
            Ok(ExitCode::SUCCESS)
        }
        None => watch(&args, target, &corpus),
    }
}

/// Reads the files of the target's corpus, sorted by name.
fn corpus(target: &Target) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    Ok(files.iter().map(fs::read).collect::<Result<_, _>>()?)
}

/// Seed of one input, far from the seed of the same number in another run.
fn seed_of(args: &Args, number: u64) -> u64 {
    args.seed.wrapping_mul(0x1_0000_0000).wrapping_add(number)
}

fn on_a_small_stack(target: &Target, input: Vec<u8>) {
    let play = target.play;
    let played =
        std::thread::Builder::new().stack_size(STACK).spawn(move || play(&input)).map(|thread| thread.join());
    if !matches!(played, Ok(Ok(()))) {
        std::process::exit(101);
    }
}

fn play(args: &Args, target: &Target, corpus: &[Vec<u8>], first: u64) -> Result<(), Box<dyn Error>> {
    let mut told = std::io::stdout();
    for number in first..args.runs {
        told.write_all(&number.to_le_bytes())?;
        told.flush()?;
        on_a_small_stack(target, mutated(corpus, seed_of(args, number)));
    }
    Ok(())
}

/// Reason why a playing process ended.
enum End {
    /// All inputs were played.
    Done,
    /// The time limit of the run was reached.
    Over,
    /// An input failed.
    Failed(&'static str),
}

fn watch(args: &Args, target: &Target, corpus: &[Vec<u8>]) -> Result<ExitCode, Box<dyn Error>> {
    let over = Instant::now() + Duration::from_secs(args.seconds);
    let (mut next, mut failures, mut slowest) = (0, 0, (Duration::ZERO, 0));
    fs::create_dir_all(&args.keep)?;
    loop {
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .arg("--play-from")
            .arg(next.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut told = child.stdout.take().ok_or("the child process has no output")?;
        let (sender, numbers) = channel();
        let reader = std::thread::spawn(move || {
            let mut number = [0; 8];
            while told.read_exact(&mut number).is_ok() && sender.send(u64::from_le_bytes(number)).is_ok() {}
        });
        let mut at = next;
        let end = follow(args, &mut child, &numbers, over, &mut at, &mut slowest);
        // The process may have ended already.
        let _ended = child.kill();
        child.wait()?;
        drop(numbers);
        let _told = reader.join();
        next = at + 1;
        match end? {
            End::Failed(how) => {
                failures += 1;
                let file = args.keep.join(format!("{}-{}-{at}", target.name, args.seed));
                fs::write(&file, mutated(corpus, seed_of(args, at)))?;
                println!("FAILED {how}: {}", file.display());
            }
            End::Done | End::Over => break,
        }
        if args.failures <= failures {
            break;
        }
    }
    let slow = args.keep.join(format!("{}-{}-slowest", target.name, args.seed));
    fs::write(&slow, mutated(corpus, seed_of(args, slowest.1)))?;
    println!(
        "{}: {next} inputs, {failures} failed, the slowest took {:?} ({})",
        target.name,
        slowest.0,
        slow.display()
    );
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn follow(
    args: &Args,
    child: &mut Child,
    numbers: &Receiver<u64>,
    over: Instant,
    at: &mut u64,
    slowest: &mut (Duration, u64),
) -> Result<End, Box<dyn Error>> {
    let mut began = Instant::now();
    let mut looked = Instant::now();
    loop {
        let told = numbers.recv_timeout(LOOK_EVERY);
        let took = began.elapsed();
        match told {
            Ok(number) => {
                *slowest = (*slowest).max((took, *at));
                (*at, began) = (number, Instant::now());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(if child.wait()?.success() { End::Done } else { End::Failed("died") });
            }
        }
        if Duration::from_secs(args.longest) < began.elapsed() {
            return Ok(End::Failed("exceeds the time limit"));
        }
        if LOOK_EVERY <= looked.elapsed() {
            looked = Instant::now();
            if resident_megabytes(child.id()).is_some_and(|used| args.megabytes < used) {
                return Ok(End::Failed("exceeds the memory limit"));
            }
        }
        if over <= Instant::now() {
            return Ok(End::Over);
        }
    }
}

/// Returns the resident memory of a process, or `None` on systems without `/proc`.
fn resident_megabytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes >> 10)
}
