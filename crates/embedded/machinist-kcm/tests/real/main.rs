//! Runs the same scenarios against two real API servers: one with our controllers, and one with
//! kube-controller-manager. Both must reach the same result. `cargo xtask real --lane kcm` provides
//! the servers.
//!
//! This is a program and not a test harness, so that each result is printed as soon as it is known.

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

mod cluster;
#[path = "../objects/mod.rs"]
mod objects;
mod scenarios;

use std::path::PathBuf;
use std::time::Duration;

use machinist_kcm::{CaPair, KcmConfig};
use machinist_kube::{ClientOptions, KubeconfigSource, connect};
use serde::Deserialize;

use cluster::Cluster;

/// Variable in which `cargo xtask real` passes the description of the clusters.
const CLUSTERS: &str = "MACHINIST_REAL_CLUSTERS";

/// The needed part of that description.
#[derive(Deserialize)]
struct Clusters {
    control: Described,
    target: Described,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    kubeconfig: PathBuf,
    ca_file: PathBuf,
    ca_key_file: PathBuf,
    controller_manager: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let text = std::env::var(CLUSTERS).unwrap_or_else(|_| {
        panic!("{CLUSTERS} is not set. Run `cargo xtask real --lane kcm`, which starts clusters and sets it")
    });
    let Clusters { control, target } = serde_json::from_str(&text).expect("a description of clusters");
    assert!(
        !control.controller_manager && target.controller_manager,
        "exactly one of the two clusters must run our controllers"
    );
    let (ours, theirs) = (cluster(&control).await, cluster(&target).await);
    let controllers = tokio::spawn(machinist_kcm::run(ours.client.clone(), config(&control)));
    ours.until("ServiceAccount", "default", "default", |account| account.is_some()).await;

    let (by_us, by_them) =
        tokio::join!(scenarios::ends_namespaces(&ours), scenarios::ends_namespaces(&theirs));
    assert_eq!(
        by_us, by_them,
        "our controllers (left) must give the result of kube-controller-manager (right)"
    );
    println!("PASSED  ends_namespaces");
    macro_rules! both {
        ($($name:ident),*) => {$(
            tokio::join!(scenarios::$name(&ours), scenarios::$name(&theirs));
            println!("PASSED  {}", stringify!($name));
        )*};
    }
    both!(
        ends_namespaces_with_lost_pods,
        collects_garbage,
        serves_budgets,
        signs,
        finds_lost_nodes,
        clears_tokens
    );
    assert!(!controllers.is_finished(), "our controllers ended");
    controllers.abort();
}

async fn cluster(described: &Described) -> Cluster {
    let source = KubeconfigSource::File(described.kubeconfig.clone());
    let client = connect(&source, &ClientOptions::new("kcm")).await.expect("a client");
    Cluster { client, kubeconfig: described.kubeconfig.clone() }
}

fn config(described: &Described) -> KcmConfig {
    let text = |file: &PathBuf| std::fs::read_to_string(file).expect("readable");
    let mut config = KcmConfig::default();
    config.ca = Some(
        CaPair::from_pem(&text(&described.ca_file), &text(&described.ca_key_file)).expect("an authority"),
    );
    config.node_monitor_grace = Duration::from_secs(4);
    config.node_startup_grace = Duration::from_secs(4);
    config.node_monitor_period = Duration::from_secs(1);
    config.missing_node_quarantine = Duration::from_secs(3);
    config
}
