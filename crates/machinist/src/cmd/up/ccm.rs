//! The cloud controller manager of `up`, with the permissions that its deployment has.

use std::sync::Arc;
use std::time::Duration;

use machinist_apiserver::Server;
use machinist_controllers::Clients;
use machinist_controllers::ccm::{CcmOptions, CloudControllerManager, Controllers, Running};
use machinist_driver::Provider;
use machinist_kube::{ClientOptions, layer_client};
use machinist_plan::ccm::{route, service};

use super::cloud::{POD_NETWORK, TOKEN};
use super::cluster::options;
use super::writes::CLOUD_CONTROLLER_MANAGER;
use crate::clouds::UpCloud;
use crate::embedded;
use crate::wiring::credential::{self, TokenFrom};

/// Namespace of its settings and of its ServiceAccount.
const NAMESPACE: &str = "kube-system";
/// Default of `--route-reconciliation-period`.
const ROUTE_PERIOD: Duration = Duration::from_secs(5 * 60);

/// Starts the cloud controller manager. Its roles must exist. `machines` is the namespace of the
/// Machines, and `network` the network of the cloud, if it has one.
///
/// # Errors
/// If the token cannot be followed.
pub(super) fn start(
    server: &Server,
    provider: Arc<dyn Provider>,
    machines: &str,
    network: Option<&str>,
) -> anyhow::Result<Running> {
    let service = server.service_as(embedded::cloud_controller_manager());
    let client = layer_client(service, &ClientOptions::new(CLOUD_CONTROLLER_MANAGER));
    let clients = Clients { control: client.clone(), target: client };
    let nodes = UpCloud::Hcloud.cloud().for_nodes.as_ref().expect("this cloud has Nodes");
    let services = service::Options::new(nodes.balancer_class, nodes.annotation_prefix);
    let routes = route::Options {
        cluster: vec![POD_NETWORK.parse().expect("a network")],
        period: ROUTE_PERIOD,
        follows_addresses: true,
    };
    let credential = credential::follow(TokenFrom::Value(TOKEN.to_owned()))?;
    let mut ccm = CcmOptions::new(provider, credential, services, routes);
    ccm.controllers = Controllers { route: network.is_some(), ..Controllers::ALL };
    ccm.machines = Some(machines.to_owned());
    Ok(CloudControllerManager::start(clients, options(NAMESPACE, "cloud-controller-manager"), ccm, None))
}
