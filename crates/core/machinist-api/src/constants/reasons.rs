//! Names of reasons of conditions and Events.

/// Node condition `Terminating`: a MachineSet is scaled down.
pub const SCALE_DOWN: &str = "ScaleDown";
/// Node condition `Terminating`: the Machine failed.
pub const UNHEALTHY: &str = "Unhealthy";

/// Node condition `InPlaceUpdate`: the Node may be selected.
pub const CANDIDATE_FOR_UPDATE: &str = "CandidateForUpdate";
/// Node condition `InPlaceUpdate`: the Node was selected and has to be drained.
pub const SELECTED_FOR_UPDATE: &str = "SelectedForUpdate";
/// Node condition `InPlaceUpdate`: the Node was drained.
pub const DRAIN_SUCCESSFUL: &str = "DrainSuccessful";
/// Node condition `InPlaceUpdate`: the node agent may start the update.
pub const READY_FOR_UPDATE: &str = "ReadyForUpdate";
/// Node condition `InPlaceUpdate`: the update succeeded.
pub const UPDATE_SUCCESSFUL: &str = "UpdateSuccessful";
/// Node condition `InPlaceUpdate`: the update failed.
pub const UPDATE_FAILED: &str = "UpdateFailed";

/// Node condition `Preserved`: the controller preserves the Machine.
pub const PRESERVED_BY_MCM: &str = "Preserved by MCM.";
/// Node condition `Preserved`: the user asked to preserve the Machine.
pub const PRESERVED_BY_USER: &str = "Preserved by user.";
/// Node condition `Preserved`: the preservation ended.
pub const PRESERVATION_STOPPED: &str = "Preservation stopped.";

/// `Progressing`: the new MachineSet grew or old ones shrank.
pub const MACHINE_SET_UPDATED: &str = "MachineSetUpdated";
/// `Progressing`, and an Event: creating the new MachineSet failed.
pub const MACHINE_SET_CREATE_ERROR: &str = "MachineSetCreateError";
/// `Progressing`: a new MachineSet was created.
pub const NEW_MACHINE_SET_CREATED: &str = "NewMachineSetCreated";
/// `Progressing`: a MachineSet with the new template existed already.
pub const FOUND_NEW_MACHINE_SET: &str = "FoundNewMachineSet";
/// `Progressing`: the rollout is complete.
pub const NEW_MACHINE_SET_AVAILABLE: &str = "NewMachineSetAvailable";
/// `Progressing`: the rollout made no progress within the deadline.
pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// `Progressing`: the MachineDeployment is paused.
pub const DEPLOYMENT_PAUSED: &str = "DeploymentPaused";
/// `Progressing`: the MachineDeployment is no longer paused.
pub const DEPLOYMENT_RESUMED: &str = "DeploymentResumed";

/// `Available`: enough Machines are available.
pub const MINIMUM_REPLICAS_AVAILABLE: &str = "MinimumReplicasAvailable";
/// `Available`: too few Machines are available.
pub const MINIMUM_REPLICAS_UNAVAILABLE: &str = "MinimumReplicasUnavailable";

/// `Frozen`: a MachineSet has far more Machines than replicas.
pub const OVERSHOOTING_REPLICA_COUNT: &str = "OverShootingReplicaCount";
/// `Frozen`: copied from the MachineDeployment.
pub const MACHINE_DEPLOYMENT_STATE_SYNC: &str = "MachineDeploymentStateSync";
/// End of a freeze: the surplus was deleted.
pub const UNDERSHOOTING_REPLICA_COUNT: &str = "UnderShootingReplicaCount";
/// End of a freeze: a user set the annotation for it.
pub const UNFREEZE_ANNOTATION: &str = "UnfreezeAnnotation";

/// `ReplicaFailure`, and an Event of a MachineSet: creating a Machine failed.
pub const FAILED_CREATE: &str = "FailedCreate";
/// `ReplicaFailure`, and an Event of a MachineSet: deleting a Machine failed.
pub const FAILED_DELETE: &str = "FailedDelete";
/// Event of a MachineSet: a Machine was created.
pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
/// Event of a MachineSet: a Machine was deleted.
pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
/// Event of a MachineSet: the MachineSet is frozen.
pub const FROZE_MACHINE_SET: &str = "FrozeMachineSet";
/// Event of a MachineSet: the MachineSet is no longer frozen.
pub const UNFROZE_MACHINE_SET: &str = "UnfrozeMachineSet";

/// Event of a MachineDeployment: a MachineSet was scaled.
pub const SCALING_MACHINE_SET: &str = "ScalingMachineSet";
/// Event of a MachineDeployment: an annotation asks for the deletion of a Machine that does not
/// belong to the MachineDeployment. Ours; Go MCM only logs it.
pub const CHOSEN_MACHINE_UNKNOWN: &str = "ChosenMachineUnknown";
/// Event of a MachineDeployment: an entry of the annotation with Machines to delete cannot be
/// parsed. Ours.
pub const INVALID_TRIGGER_DELETION: &str = "InvalidTriggerDeletion";
/// Event of a MachineClass or a Secret: its deletion waits because other objects still use it.
/// Ours; Go MCM only logs it.
pub const STILL_IN_USE: &str = "StillInUse";
/// `ReplicaFailure` and `Progressing`, and an Event: the spec is invalid and is not applied. Ours;
/// Go MCM only logs it.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// `ReplicaFailure` and `Progressing`, and an Event: the selector is empty and would select every
/// object. Go MCM has the Event of a MachineDeployment.
pub const SELECTING_ALL: &str = "SelectingAll";
/// Event of a MachineDeployment: the MachineDeployment was rolled back.
pub const DEPLOYMENT_ROLLBACK: &str = "DeploymentRollback";
/// Event of a MachineDeployment: the revision for the rollback does not exist.
pub const DEPLOYMENT_ROLLBACK_REVISION_NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
/// Event of a MachineDeployment: the revision for the rollback has the same template.
pub const DEPLOYMENT_ROLLBACK_TEMPLATE_UNCHANGED: &str = "DeploymentRollbackTemplateUnchanged";
