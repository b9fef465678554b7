//! A machine controller for a cloud of one's own. `cloud` has the driver; everything else is in the
//! crate `machinist`.

mod cloud;

use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let provider = Arc::new(cloud::Example::default());
    machinist::machine_controller::run(provider, cloud::CALL_BOUND)
}
