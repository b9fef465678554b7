//! Annotations.

/// On a Machine: an integer; the lower, the earlier it is deleted. See [`crate::MachinePriority`].
pub const MACHINE_PRIORITY: &str = "machinepriority.machine.sapcloud.io";
/// On a Machine: when its deletion was asked for by [`TRIGGER_DELETION`], RFC 3339.
pub const MARKED_FOR_DELETION_TIME: &str = "machine.sapcloud.io/marked-for-deletion-time";
/// On a MachineDeployment: Machines that the cluster-autoscaler wants gone, `m1~t1,m2~t2`, or `m1,m2` in the old form.
pub const TRIGGER_DELETION: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
/// On a MachineDeployment, copied to its sets: when the cluster-autoscaler last changed the replicas, RFC 3339.
pub const LAST_REPLICA_CHANGE_BY_SCALER_TIME: &str =
    "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
/// On a MachineDeployment, copied down to the Machines: overrides the creation timeout; a Go duration.
pub const EFFECTIVE_CREATION_TIMEOUT: &str = "node.machine.sapcloud.io/effective-creation-timeout";
/// On a Machine: how long joining took; a Go duration, for people.
pub const MACHINE_JOIN_DURATION: &str = "node.machine.sapcloud.io/machine-join-duration";
/// On a Machine or Node: whether to keep it when it fails; one of the `PRESERVE_` values.
pub const PRESERVE: &str = "node.machine.sapcloud.io/preserve";
/// On a Machine: the Node's value of [`PRESERVE`] that was acted upon last.
pub const LAST_APPLIED_NODE_PRESERVE_VALUE: &str =
    "node.machine.sapcloud.io/last-applied-node-preserve-value";

/// On MachineDeployments and MachineSets: number of the template's revision.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// On a MachineSet: its earlier revisions, a comma list.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// On a MachineSet: the deployment's replicas when it was scaled last.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// On a MachineSet: the same plus the surge, for proportional scaling.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// On a MachineSet: its nodes have the taint [`super::taints::PREFER_NO_SCHEDULE`].
pub const PREFER_NO_SCHEDULE: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
/// On MachineSets and MachineDeployments: lift the freeze. Its presence counts.
pub const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";

/// On a Node: JSON of the node template that was synced last, a [`crate::NodeTemplateSpec`].
pub const LAST_APPLIED_NODE_TEMPLATE: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";
/// On a Node: JSON of the virtual capacity that was synced last.
pub const LAST_APPLIED_VIRTUAL_CAPACITY: &str = "node.machine.sapcloud.io/last-applied-virtual-capacity";
/// On a Node: leave it alone. Its presence counts; [`NOT_MANAGED`] is what is written.
pub const NOT_MANAGED_BY_MCM: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
/// On a Node: why its update in place failed.
pub const UPDATE_FAILED_REASON: &str = "node.machine.sapcloud.io/update-failed-reason";
/// On a Node: the cluster-autoscaler must not remove it.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// On a Node: marks that [`SCALE_DOWN_DISABLED`] was set by a machine controller, which may therefore remove it.
pub const SCALE_DOWN_DISABLED_BY_MCM: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm";

/// What kubectl remembers of the last manifest.
pub const KUBECTL_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Value of [`PRESERVE`]: keep it now.
pub const PRESERVE_NOW: &str = "now";
/// Value of [`PRESERVE`]: keep it once it is Failed.
pub const PRESERVE_WHEN_FAILED: &str = "when-failed";
/// Value of [`PRESERVE`]: kept by the set's own choice.
pub const PRESERVE_AUTO: &str = "auto-preserved";
/// Value of [`PRESERVE`]: never keep it.
pub const PRESERVE_FALSE: &str = "false";
/// Value of [`NOT_MANAGED_BY_MCM`].
pub const NOT_MANAGED: &str = "1";

/// Annotations of a MachineDeployment that are its own: all others are copied to its MachineSets.
pub const NOT_COPIED_TO_MACHINE_SET: &[&str] = &[
    KUBECTL_LAST_APPLIED,
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    PREFER_NO_SCHEDULE,
    UNFREEZE,
    TRIGGER_DELETION,
];
