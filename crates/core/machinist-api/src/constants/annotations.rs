//! Names and values of annotations.

/// On a Machine: deletion priority, an integer. Machines with a lower value are deleted first. See
/// [`crate::MachinePriority`].
pub const MACHINE_PRIORITY: &str = "machinepriority.machine.sapcloud.io";
/// On a Machine: time at which [`TRIGGER_DELETION`] requested its deletion, RFC 3339.
pub const MARKED_FOR_DELETION_TIME: &str = "machine.sapcloud.io/marked-for-deletion-time";
/// On a MachineDeployment: Machines that the cluster-autoscaler wants to delete, `m1~t1,m2~t2`, or
/// `m1,m2` in the old form.
pub const TRIGGER_DELETION: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
/// On a MachineDeployment, copied to its MachineSets: time at which the cluster-autoscaler last
/// changed the replicas, RFC 3339.
pub const LAST_REPLICA_CHANGE_BY_SCALER_TIME: &str =
    "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
/// On a MachineDeployment, copied down to the Machines: overrides the creation timeout; a Go
/// duration.
pub const EFFECTIVE_CREATION_TIMEOUT: &str = "node.machine.sapcloud.io/effective-creation-timeout";
/// On a Machine or Node: whether to preserve the Machine when it fails; one of the `PRESERVE_`
/// values.
pub const PRESERVE: &str = "node.machine.sapcloud.io/preserve";
/// On a Machine: the Node's value of [`PRESERVE`] that was applied last.
pub const LAST_APPLIED_NODE_PRESERVE_VALUE: &str =
    "node.machine.sapcloud.io/last-applied-node-preserve-value";

/// On MachineDeployments and MachineSets: revision number of the template.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// On a MachineSet: its earlier revisions, separated by commas.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// On a MachineSet: the MachineDeployment's replicas at the last scaling.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// On a MachineSet: [`DESIRED_REPLICAS`] plus the surge, for proportional scaling.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// On a MachineSet: its Nodes have the taint [`super::taints::PREFER_NO_SCHEDULE`].
pub const PREFER_NO_SCHEDULE: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
/// On MachineSets and MachineDeployments: ends the freeze. Any value counts.
pub const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";

/// On a Node: JSON of the node template that was synced last, a [`crate::NodeTemplateSpec`].
pub const LAST_APPLIED_NODE_TEMPLATE: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";
/// On a Node: JSON of the virtual capacity that was synced last.
pub const LAST_APPLIED_VIRTUAL_CAPACITY: &str = "node.machine.sapcloud.io/last-applied-virtual-capacity";
/// On a Node: the controllers ignore the Node. Any value counts; [`NOT_MANAGED`] is the value that
/// is written.
pub const NOT_MANAGED_BY_MCM: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
/// On a Node: reason of a failed update in place.
pub const UPDATE_FAILED_REASON: &str = "node.machine.sapcloud.io/update-failed-reason";
/// On a Node: the cluster-autoscaler must not remove it.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// On a Node: marks that a machine controller set [`SCALE_DOWN_DISABLED`] and may therefore remove
/// it.
pub const SCALE_DOWN_DISABLED_BY_MCM: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm";

/// Copy of the last applied manifest; written by `kubectl apply`.
pub const KUBECTL_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Value of [`PRESERVE`]: preserve the Machine now.
pub const PRESERVE_NOW: &str = "now";
/// Value of [`PRESERVE`]: preserve the Machine once it is Failed.
pub const PRESERVE_WHEN_FAILED: &str = "when-failed";
/// Value of [`PRESERVE`]: the MachineSet preserved the Machine automatically.
pub const PRESERVE_AUTO: &str = "auto-preserved";
/// Value of [`PRESERVE`]: never preserve the Machine.
pub const PRESERVE_FALSE: &str = "false";
/// Value of [`NOT_MANAGED_BY_MCM`].
pub const NOT_MANAGED: &str = "1";

/// Annotations of a MachineDeployment that are not copied to its MachineSets; all others are.
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
