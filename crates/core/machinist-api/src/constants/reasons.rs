//! Reasons of conditions and Events.

/// Node condition `Terminating`: fewer Machines are wanted.
pub const SCALE_DOWN: &str = "ScaleDown";
/// Node condition `Terminating`: the Machine failed.
pub const UNHEALTHY: &str = "Unhealthy";

/// Node condition `InPlaceUpdate`: may be picked.
pub const CANDIDATE_FOR_UPDATE: &str = "CandidateForUpdate";
/// Node condition `InPlaceUpdate`: picked, to be drained.
pub const SELECTED_FOR_UPDATE: &str = "SelectedForUpdate";
/// Node condition `InPlaceUpdate`: drained.
pub const DRAIN_SUCCESSFUL: &str = "DrainSuccessful";
/// Node condition `InPlaceUpdate`: the node agent may start.
pub const READY_FOR_UPDATE: &str = "ReadyForUpdate";
/// Node condition `InPlaceUpdate`: done.
pub const UPDATE_SUCCESSFUL: &str = "UpdateSuccessful";
/// Node condition `InPlaceUpdate`: failed.
pub const UPDATE_FAILED: &str = "UpdateFailed";

/// Node condition `Preserved`: by the controller.
pub const PRESERVED_BY_MCM: &str = "Preserved by MCM.";
/// Node condition `Preserved`: by the user.
pub const PRESERVED_BY_USER: &str = "Preserved by user.";
/// Node condition `Preserved`: over.
pub const PRESERVATION_STOPPED: &str = "Preservation stopped.";

/// `Progressing`: the new set grew or old ones shrank.
pub const MACHINE_SET_UPDATED: &str = "MachineSetUpdated";
/// `Progressing`, and an Event: the new set could not be made.
pub const MACHINE_SET_CREATE_ERROR: &str = "MachineSetCreateError";
/// `Progressing`: a new set was made.
pub const NEW_MACHINE_SET_CREATED: &str = "NewMachineSetCreated";
/// `Progressing`: a set with the new template was there already.
pub const FOUND_NEW_MACHINE_SET: &str = "FoundNewMachineSet";
/// `Progressing`: the rollout is done.
pub const NEW_MACHINE_SET_AVAILABLE: &str = "NewMachineSetAvailable";
/// `Progressing`: the rollout stood still for too long.
pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// `Progressing`: paused.
pub const DEPLOYMENT_PAUSED: &str = "DeploymentPaused";
/// `Progressing`: no longer paused.
pub const DEPLOYMENT_RESUMED: &str = "DeploymentResumed";

/// `Available`: enough Machines are available.
pub const MINIMUM_REPLICAS_AVAILABLE: &str = "MinimumReplicasAvailable";
/// `Available`: too few Machines are available.
pub const MINIMUM_REPLICAS_UNAVAILABLE: &str = "MinimumReplicasUnavailable";

/// `Frozen`: a set has far more Machines than it wants.
pub const OVERSHOOTING_REPLICA_COUNT: &str = "OverShootingReplicaCount";
/// `Frozen`: follows the deployment.
pub const MACHINE_DEPLOYMENT_STATE_SYNC: &str = "MachineDeploymentStateSync";
/// Why a freeze ended: the surplus is gone.
pub const UNDERSHOOTING_REPLICA_COUNT: &str = "UnderShootingReplicaCount";
/// Why a freeze ended: somebody said so.
pub const UNFREEZE_ANNOTATION: &str = "UnfreezeAnnotation";

/// `ReplicaFailure`, and an Event of a MachineSet: a Machine could not be made.
pub const FAILED_CREATE: &str = "FailedCreate";
/// `ReplicaFailure`, and an Event of a MachineSet: a Machine could not be deleted.
pub const FAILED_DELETE: &str = "FailedDelete";
/// Event of a MachineSet: a Machine was made.
pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
/// Event of a MachineSet: a Machine was deleted.
pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
/// Event of a MachineSet: frozen.
pub const FROZE_MACHINE_SET: &str = "FrozeMachineSet";
/// Event of a MachineSet: no longer frozen.
pub const UNFROZE_MACHINE_SET: &str = "UnfrozeMachineSet";

/// Event of a MachineDeployment: a set was scaled.
pub const SCALING_MACHINE_SET: &str = "ScalingMachineSet";
/// Event of whatever the API server refuses a change of. Ours; Go MCM only logs it.
pub const CHANGE_REFUSED: &str = "ChangeRefused";
/// Event of a MachineDeployment: an annotation names a Machine to delete that is none of its own. Ours; Go MCM only logs it.
pub const CHOSEN_MACHINE_UNKNOWN: &str = "ChosenMachineUnknown";
/// Event of a MachineDeployment: an entry of the annotation that names Machines to delete cannot be read. Ours.
pub const INVALID_TRIGGER_DELETION: &str = "InvalidTriggerDeletion";
/// Event of a MachineClass or a Secret that is being deleted and kept for those that use it. Ours; Go MCM only logs it.
pub const STILL_IN_USE: &str = "StillInUse";
/// `ReplicaFailure` and `Progressing`, and an Event: the spec cannot be acted upon. Ours; Go MCM only logs it.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// The same for a selector that is empty and would select everything; Go MCM has the Event of a MachineDeployment.
pub const SELECTING_ALL: &str = "SelectingAll";
/// Event of a MachineDeployment: rolled back.
pub const DEPLOYMENT_ROLLBACK: &str = "DeploymentRollback";
/// Event of a MachineDeployment: there is no such revision.
pub const DEPLOYMENT_ROLLBACK_REVISION_NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
/// Event of a MachineDeployment: the revision has the same template.
pub const DEPLOYMENT_ROLLBACK_TEMPLATE_UNCHANGED: &str = "DeploymentRollbackTemplateUnchanged";
