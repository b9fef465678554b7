//! Plays inputs against the embedded server until one breaks it: those of files, or ever new ones made out of the corpus.
//!
//! The inputs are played in a process of their own, which says before each one which it is. When that process dies, takes too long or too much
//! memory, the input is made once more from its number, kept as a file, and the next one has its turn.

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]
#![expect(
    clippy::disallowed_methods,
    reason = "real time is what is watched, and a process that fails says so by how it ends"
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

/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The stack that a request has in `machinist`: that of a thread of its runtime.
const STACK: usize = 2 << 20;

#[derive(Parser)]
struct Args {
    /// What to read the inputs as: request, body, patch, selector, continue, schema, rule, json_path, watch
    target: String,

    /// Play these files, and nothing else
    files: Vec<PathBuf>,

    /// How many inputs to play
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    runs: u64,

    /// Stop after so long
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// Where to begin; the same seed makes the same inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The longest that one input may take, in seconds
    #[arg(long, default_value_t = 10)]
    longest: u64,

    /// The most memory that the process may take, in megabytes
    #[arg(long, default_value_t = 1024)]
    megabytes: u64,

    /// Stop after so many inputs that fail
    #[arg(long, default_value_t = 20)]
    failures: usize,

    /// Where inputs that fail are kept
    #[arg(long, default_value = "target/fuzz")]
    keep: PathBuf,

    /// Plays, from this number on, and says which
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

/// The files of the target's corpus, in their order.
fn corpus(target: &Target) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder)?.map(|entry| entry.map(|it| it.path())).collect::<Result<_, _>>()?;
    files.sort();
    Ok(files.iter().map(fs::read).collect::<Result<_, _>>()?)
}

/// The seed of one input: far from that of the same number of another run.
fn seed_of(args: &Args, number: u64) -> u64 {
    args.seed.wrapping_mul(0x1_0000_0000).wrapping_add(number)
}

fn on_a_small_stack(target: &Target, input: Vec<u8>) {
    let play = target.play;
    let played =
        std::thread::Builder::new().stack_size(STACK).spawn(move || play(&input)).map(|it| it.join());
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

/// What became of a process that plays.
enum End {
    /// All inputs are played.
    Done,
    /// The time is over.
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
        let mut told = child.stdout.take().ok_or("the process has no output")?;
        let (sender, numbers) = channel();
        let reader = std::thread::spawn(move || {
            let mut number = [0; 8];
            while told.read_exact(&mut number).is_ok() && sender.send(u64::from_le_bytes(number)).is_ok() {}
        });
        let mut at = next;
        let end = follow(args, &mut child, &numbers, over, &mut at, &mut slowest);
        // It may have ended by itself.
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
            return Ok(End::Failed("takes too long"));
        }
        if LOOK_EVERY <= looked.elapsed() {
            looked = Instant::now();
            if resident_megabytes(child.id()).is_some_and(|used| args.megabytes < used) {
                return Ok(End::Failed("takes too much memory"));
            }
        }
        if over <= Instant::now() {
            return Ok(End::Over);
        }
    }
}

/// What a process holds in memory; unknown where there is no such file.
fn resident_megabytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes >> 10)
}
