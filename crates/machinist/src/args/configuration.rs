//! The effective configuration of the two controllers, for `/configz`: the fields of Go's
//! configuration, with the values that this process works with.
//!
//! No flag contains a secret.

use std::time::Duration;

use machinist_api::GoDuration;
use serde_json::{Value, json};

use super::clusters::ClusterArgs;
use super::controllers::{
    CompatibilityArgs, LeaderArgs, MachineControllerArgs, MachineDefaultArgs, MachineSafetyArgs, ManagerArgs,
};
use super::profiling::ProfilingArgs;
use super::value::ClusterFlag;

/// Returns the configuration of the machine controller.
pub(crate) fn config_of_machine_controller(args: &MachineControllerArgs) -> Value {
    let MachineDefaultArgs {
        machine_creation_timeout,
        machine_health_timeout,
        machine_drain_timeout,
        machine_pv_detach_timeout,
        machine_max_evict_retries,
        node_conditions,
        bootstrap_token_auth_extra_groups,
        resource_exhausted_retry,
        drain_volumes_at_once: _,
        replacements_at_once: _,
        dead_node_timeout: _,
        machine_inplace_update_timeout,
        machine_pv_reattach_timeout,
        machine_preserve_timeout,
    } = &args.machines;
    let MachineSafetyArgs {
        machine_safety_apiserver_statuscheck_timeout,
        machine_safety_apiserver_statuscheck_period,
        machine_safety_orphan_vms_period,
        report_orphans_only: _,
    } = &args.safety;
    let mut config = of_both(&args.clusters, &args.leader, &args.profiling, &args.compatibility);
    config["Port"] = args.port.into();
    config["Address"] = args.server.address.to_string().into();
    config["ConcurrentNodeSyncs"] = args.concurrent_syncs.into();
    config["SafetyOptions"] = json!({
        "MachineCreationTimeout": text(*machine_creation_timeout),
        "MachineHealthTimeout": text(*machine_health_timeout),
        "MachineDrainTimeout": text(*machine_drain_timeout),
        "MachineInPlaceUpdateTimeout": text(*machine_inplace_update_timeout),
        "MaxEvictRetries": machine_max_evict_retries,
        "PvDetachTimeout": text(*machine_pv_detach_timeout),
        "PvReattachTimeout": text(*machine_pv_reattach_timeout),
        "MachinePreserveTimeout": text(*machine_preserve_timeout),
        "MachineSafetyAPIServerStatusCheckTimeout": text(*machine_safety_apiserver_statuscheck_timeout),
        "MachineSafetyAPIServerStatusCheckPeriod": text(*machine_safety_apiserver_statuscheck_period),
        "MachineSafetyOrphanVMsPeriod": text(*machine_safety_orphan_vms_period),
    });
    config["NodeConditions"] = node_conditions.join(",").into();
    config["BootstrapTokenAuthExtraGroups"] = bootstrap_token_auth_extra_groups.clone().into();
    config["ResourceExhaustedRetry"] = text(*resource_exhausted_retry);
    let served: Vec<&str> = args.cloud.served().iter().map(|cloud| cloud.name).collect();
    config["Provider"] = served.join(",").into();
    config["ClusterName"] = args.cluster_name.as_ref().unwrap_or(&args.clusters.namespace).clone().into();
    json!({"componentconfig": config})
}

/// Returns the configuration of the manager.
pub(crate) fn config_of_manager(args: &ManagerArgs) -> Value {
    let mut config = of_both(&args.clusters, &args.leader, &args.profiling, &args.compatibility);
    config["Port"] = args.port.into();
    config["Address"] = args.server.address.to_string().into();
    config["ConcurrentNodeSyncs"] = args.concurrent_syncs.into();
    config["SafetyOptions"] = json!({
        "SafetyUp": args.safety_up,
        "SafetyDown": args.safety_down,
        "MachineSafetyOvershootingPeriod": text(args.machine_safety_overshooting_period),
    });
    let protects_nodes = args.autoscaler_scaledown_annotation_during_rollout;
    config["AutoscalerScaleDownAnnotationDuringRollout"] = protects_nodes.into();
    json!({"componentconfig": config})
}

fn of_both(
    clusters: &ClusterArgs,
    leader: &LeaderArgs,
    profiling: &ProfilingArgs,
    compatibility: &CompatibilityArgs,
) -> Value {
    json!({
        "Namespace": clusters.namespace,
        "ControlKubeconfig": flag_text(&clusters.control_kubeconfig),
        "TargetKubeconfig": flag_text(&clusters.target_kubeconfig),
        "CloudProvider": compatibility.cloud_provider.as_deref().unwrap_or_default(),
        "EnableProfiling": profiling.profiling,
        "EnableContentionProfiling": profiling.contention_profiling.unwrap_or_default(),
        "ContentType": "application/json",
        "KubeAPIQPS": clusters.kube_api_qps,
        "KubeAPIBurst": clusters.kube_api_burst,
        "LeaderElection": {
            "LeaderElect": leader.leader_elect,
            "LeaseDuration": text(leader.leader_elect_lease_duration),
            "RenewDeadline": text(leader.leader_elect_renew_deadline),
            "RetryPeriod": text(leader.leader_elect_retry_period),
            "ResourceLock": leader.leader_elect_resource_lock,
        },
    })
}

fn flag_text(flag: &ClusterFlag) -> String {
    match flag {
        ClusterFlag::Unset => String::new(),
        ClusterFlag::InCluster => "inClusterConfig".to_owned(),
        ClusterFlag::None => "none".to_owned(),
        ClusterFlag::File(path) => path.display().to_string(),
    }
}

/// Writes a duration as Go does.
fn text(duration: Duration) -> Value {
    GoDuration::from_std(duration).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};

    fn command(line: &str) -> Command {
        parse(line.split(' ').map(Into::into)).unwrap_or_else(|error| panic!("{error}")).command
    }

    #[test]
    fn the_configuration_has_the_fields_and_defaults_of_go() {
        let Command::MachineController(args) =
            command("machinist machine-controller --sim-endpoint http://a:1 --namespace n --port 7")
        else {
            panic!("another command")
        };
        let config = config_of_machine_controller(&args)["componentconfig"].clone();
        assert_eq!(config["SafetyOptions"]["MachineDrainTimeout"], "2h0m0s");
        assert_eq!(config["LeaderElection"]["LeaseDuration"], "15s");
        assert_eq!((&config["Port"], &config["Namespace"]), (&7.into(), &"n".into()));
        let Command::MachineControllerManager(args) =
            command("machinist machine-controller-manager --safety-up=5")
        else {
            panic!("another command")
        };
        let config = config_of_manager(&args)["componentconfig"].clone();
        assert_eq!(config["SafetyOptions"]["SafetyUp"], 5);
        assert_eq!(config["SafetyOptions"]["MachineSafetyOvershootingPeriod"], "1m0s");
    }
}
