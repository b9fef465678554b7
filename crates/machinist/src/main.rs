//! The `machinist` program. The library of this package has its commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    machinist::main()
}
