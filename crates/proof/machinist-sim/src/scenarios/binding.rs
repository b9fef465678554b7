//! A scheduler that binds pods while Nodes are being closed.

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, ResourceExt};

use super::drain::{evictions, no_force};
use super::heal::first_running;
use super::life::{settled, start_with};
use crate::world::{Outcome, Trouble, User, View, World, ensure};

/// The name of the pod.
const POD: &str = "late";

/// A pod is bound to a Node when the machine controller has looked at it for the last time and has not closed it yet: it has to
/// be evicted all the same before the instance is deleted.
pub async fn bound_before_the_cordon(world: &dyn World) -> Outcome {
    let user = start_with(world, 1).await?;
    let view = world.look().await?;
    let machine = first_running(&view)?;
    let (victim, node) = (machine.name().to_owned(), machine.node_label().to_owned());
    world.begin("the user deletes a Machine, and a pod is bound to its Node before that is closed");
    let deletion = async {
        user.delete_machine(&victim).await?;
        let gone = |view: &View| match (view.machine(&victim), view.pod(POD)) {
            (None, None) => settled(view, 1),
            (Some(_), _) => Err(format!("{victim} is still there")),
            (None, Some(_)) => Err("the pod is still there".to_owned()),
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

/// What the scheduler came to.
#[derive(PartialEq)]
enum Bound {
    /// The pod was bound to an open Node.
    InTime,
    /// The Node was closed first.
    TooLate,
}

/// Binds a pod as soon as the Node is said to be going, unless it is closed by then, as a scheduler would. Real requests cross each
/// other, so the pod and the cordon are put in order by the server's own numbers.
async fn bind_before_the_cordon(world: &dyn World, user: User<'_>, name: &str) -> Result<Bound, Trouble> {
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

/// Where an object's last change stands among all changes of the cluster.
fn number(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}
