//! Keys, values and effects of taints on Nodes.

/// Key of the taint on Nodes of an outdated MachineSet during a rollout. Value
/// [`PREFER_NO_SCHEDULE_VALUE`], effect [`EFFECT_PREFER_NO_SCHEDULE`].
pub const PREFER_NO_SCHEDULE: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
/// Value of [`PREFER_NO_SCHEDULE`].
pub const PREFER_NO_SCHEDULE_VALUE: &str = "True";
/// Key of the taint on Nodes with critical components that are not ready. A healthy Pending Machine
/// stays Pending while its Node has this taint. Effect [`EFFECT_NO_SCHEDULE`].
pub const CRITICAL_COMPONENTS_NOT_READY: &str = "node.gardener.cloud/critical-components-not-ready";
/// Key of the taint on the Node of a preserved Failed Machine, instead of a cordon. Effect
/// [`EFFECT_NO_SCHEDULE`], with `timeAdded`.
pub const PRESERVED: &str = "node.machine.sapcloud.io/preserved";

/// The effect NoSchedule.
pub const EFFECT_NO_SCHEDULE: &str = "NoSchedule";
/// The effect PreferNoSchedule.
pub const EFFECT_PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
