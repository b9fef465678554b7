//! Pods as machines, for Gardener's `provider: local`. The Secret of a class names the cluster of
//! the pods; without a kubeconfig, it is the cluster with the machine objects.

use std::sync::Arc;

use machinist_driver::Provider;
use machinist_driver_local::{
    ControlCluster, LocalOptions, LocalProvider, PROMISES, client_options, validate,
};

use super::cloud::{Cloud, ForMachines, ForUp, Given, Reader, STARTING, UpCloud};
use crate::wiring::control_cluster;

/// The row of the registry.
pub(super) const CLOUD: Cloud = Cloud {
    name: "local",
    other_names: &[],
    about: "Pods of a Kubernetes cluster; by default of the cluster of --control-kubeconfig",
    check: validate,
    needs_no_settings: true,
    own_flag: |_| None,
    for_machines,
    for_nodes: None,
    reader: Reader::Alone(reader),
    up: Some(ForUp {
        which: UpCloud::Local,
        about: "Pods of this cluster; a simulated host runs them, and the machines inside of them join",
        quick_start: include_str!("../../quickstart-local.yaml"),
    }),
};

/// The address of the control cluster of `up`. The port of the real address may change.
const ADDRESS_OF_UP: &str = "machinist up";

fn for_machines(given: &Given<'_>) -> anyhow::Result<ForMachines> {
    let (address, connecting) = control_cluster(given.clusters, client_options())?;
    let namespace = given.clusters.namespace.clone();
    let provider = async move {
        let client = connecting.await?;
        let control = Some(ControlCluster { address, client, ends_with_process: false });
        let provider = LocalProvider::new(LocalOptions { namespace, control });
        Ok(Arc::new(provider) as Arc<dyn Provider>)
    };
    Ok(ForMachines {
        provider: Box::pin(provider),
        waits_for: STARTING,
        call_bound: PROMISES.call_bound,
        traffic: None,
    })
}

/// Returns the provider of `up`, whose pods are in the embedded API server.
pub(crate) fn for_up(client: kube::Client, namespace: &str) -> Arc<dyn Provider> {
    let address = ADDRESS_OF_UP.to_owned();
    let control = Some(ControlCluster { address, client, ends_with_process: true });
    Arc::new(LocalProvider::new(LocalOptions { namespace: namespace.to_owned(), control }))
}

/// Only the parsers are used; no request is sent.
fn reader() -> Arc<dyn Provider> {
    Arc::new(LocalProvider::new(LocalOptions::default()))
}
