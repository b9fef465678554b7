//! Tests that kube recognizes our kinds by the traits of k8s-openapi alone.

use kube_core::Resource;
use machinist_api::{Machine, MachineClass, MachineDeployment, MachineSet};

fn path_of<K: Resource<DynamicType = ()>>() -> String {
    K::url_path(&(), Some("shoot"))
}

#[test]
fn a_typed_api_finds_the_four_kinds() {
    let prefix = "/apis/machine.sapcloud.io/v1alpha1/namespaces/shoot";
    assert_eq!(path_of::<Machine>(), format!("{prefix}/machines"));
    assert_eq!(path_of::<MachineClass>(), format!("{prefix}/machineclasses"));
    assert_eq!(path_of::<MachineSet>(), format!("{prefix}/machinesets"));
    assert_eq!(path_of::<MachineDeployment>(), format!("{prefix}/machinedeployments"));
}
