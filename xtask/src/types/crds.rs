//! Compares our CRDs with the CRDs of the programs that we replace. Tests of `machinist-api`
//! compare them, because this crate does not compile the definitions.

use anyhow::Result;

use crate::go_modules::{self, GO_MCM, Source};
use crate::workspace;

/// The CRDs of a program, in its Go module.
struct Crds {
    program: &'static str,
    module: &'static str,
    version: &'static str,
    folder: &'static str,
    /// The test that compares them with ours, and the variable for the folder.
    test: &'static str,
    variable: &'static str,
}

/// The releases whose objects Machinist manages.
const ALL: [Crds; 2] = [
    Crds {
        program: "Go MCM",
        module: GO_MCM.0,
        version: GO_MCM.1,
        folder: "kubernetes/crds",
        test: "go_crds::every_field_of_go_is_a_field_of_ours",
        variable: "MACHINIST_GO_CRDS",
    },
    Crds {
        program: "Cluster API's Docker provider",
        module: "sigs.k8s.io/cluster-api/test",
        version: "v1.12.0",
        folder: "infrastructure/docker/config/crd/bases",
        test: "go_crds::the_docker_kinds_accept_the_objects_of_the_docker_provider",
        variable: "MACHINIST_DOCKER_CRDS",
    },
];

/// Fails if a field of a program is missing in our CRDs, or differs. For a module that cannot be
/// downloaded, this only prints the reason.
pub(super) fn compare() -> Result<()> {
    for crds in &ALL {
        // No other command of this program downloads these modules.
        match go_modules::provide(crds.module, crds.version, Source::FilesToRead) {
            Ok(module) => workspace::run_test(
                "machinist-api",
                crds.test,
                (crds.variable, module.folder.join(crds.folder).as_os_str()),
            )?,
            Err(reason) => println!("SKIPPED the CRDs of {} {}: {reason:#}", crds.program, crds.version),
        }
    }
    Ok(())
}
