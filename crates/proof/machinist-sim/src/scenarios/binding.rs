//! A scenario with a scheduler that binds a pod while the Node is being cordoned.

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, ResourceExt};

use super::drain::{evictions, no_force};
use super::heal::first_running;
use super::life::{settled, start_with};
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, User, ensure};

const POD: &str = "late";

/// A pod is bound to a Node after the machine controller's last list of the pods and before the
/// cordon. It must be evicted before the instance is deleted.
pub async fn bound_before_the_cordon(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 1).await?;
    let view = world.look().await?;
    let machine = first_running(&view)?;
    let (victim, node) = (machine.name().to_owned(), machine.node_label().to_owned());
    world.begin("the user deletes a Machine, and a pod is bound to its Node before that is closed");
    let deletion = async {
        user.delete_machine(&victim).await?;
        let gone = |view: &MachineView| match (view.machine(&victim), view.pod(POD)) {
            (None, None) => settled(view, 1),
            (Some(_), _) => Err(format!("{victim} still exists")),
            (None, Some(_)) => Err("the pod still exists".to_owned()),
        };
        world.until("the Machine to be replaced, and the pod to leave", gone).await
    };
    let (bound, deleted) = tokio::join!(bind_before_the_cordon(world, user, &node), deletion);
    deleted?;
    if bound? == Bound::InTime {
        let evicted = evictions(world).any(|answer| answer.about.name == POD && answer.code < 300);
        ensure(evicted, || "the pod was not evicted".to_owned())?;
    }
    no_force(world)
}

/// The result of the binding.
#[derive(PartialEq)]
enum Bound {
    /// The pod was bound before the cordon.
    InTime,
    /// The Node was cordoned first.
    TooLate,
}

/// Binds a pod as soon as the Node has the condition Terminating, unless the Node is cordoned by
/// then, as a scheduler would. Real requests may overtake each other, so the server's revisions
/// decide whether the pod or the cordon came first.
async fn bind_before_the_cordon(
    world: &dyn MachineWorld,
    user: User<'_>,
    name: &str,
) -> Result<Bound, ScenarioError> {
    let nodes: Api<Node> = Api::all(world.target());
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(nodes.watch(&params, "0").await?);
    let mut bound = None;
    while let Some(event) = events.try_next().await? {
        let node = match event {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => node,
            WatchEvent::Deleted(_) => return Ok(Bound::TooLate),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
        };
        let is_closed = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        if is_closed {
            let in_time = bound.is_some_and(|bound| bound < number(&node));
            return Ok(if in_time { Bound::InTime } else { Bound::TooLate });
        }
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if bound.is_none() && conditions.into_iter().any(|condition| condition.type_ == "Terminating") {
            bound = Some(number(&user.create_pod(POD, "a", name).await?));
        }
    }
    Ok(Bound::TooLate)
}

/// The revision of an object's last change.
fn number(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}
