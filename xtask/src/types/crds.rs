//! Compares our CRDs with those of Go MCM. A test of `machinist-api` compares them, because this
//! crate does not compile the definitions.

use anyhow::Result;

use crate::go_modules::{self, Source};
use crate::workspace;

const MODULE: &str = "github.com/gardener/machine-controller-manager";
/// The newest release whose objects Machinist manages.
const VERSION: &str = "v0.62.1";
/// Folder of the CRDs in the module.
const FOLDER: &str = "kubernetes/crds";

/// Fails if a field of Go MCM is missing in our CRDs, or differs. Without the module, this only
/// prints the reason.
pub(super) fn compare() -> Result<()> {
    // No other command of this program downloads the module.
    match go_modules::provide(MODULE, VERSION, Source::CacheOrProxy) {
        Ok(module) => workspace::run_test(
            "machinist-api",
            "go_crds::every_field_of_go_is_a_field_of_ours",
            ("MACHINIST_GO_CRDS", module.folder.join(FOLDER).as_os_str()),
        ),
        Err(reason) => {
            println!("SKIPPED the CRDs of Go MCM {VERSION}: {reason:#}");
            Ok(())
        }
    }
}
