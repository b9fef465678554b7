//! A webhook that does not answer: the program cannot know whether its writes took effect, and
//! reads the objects.

use anyhow::{Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::balancer::{FINALIZER, service};
use crate::nodes::{TYPE, id_of, label_of};
use crate::permissions::reads;
use crate::world::{USER, World};

const NAME: &str = "silent.machinist.dev";

/// All writes of the program to Nodes and Services fail, until the webhook is removed.
pub(crate) async fn unanswered_writes_are_read_and_repeated(world: &mut World) -> Result<()> {
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(world.user.clone());
    let before = [reads(world, "nodes")?, reads(world, "services")?];
    webhooks.create(&PostParams::default(), &webhook()?).await?;

    let id = id_of(&world.node("worker-1").await?)?;
    let resize = |server: &mut machinist_standin_hcloud::HcloudServer| server.server_type = "cx42".to_owned();
    world.standin.change_server(id, resize).map_err(anyhow::Error::msg)?;
    world.services().create(&PostParams::default(), &service("unsure", &[82])?).await?;
    world
        .until("a Node and a Service are read", async |w| {
            Ok(reads(w, "nodes")? > before[0] && reads(w, "services")? > before[1])
        })
        .await?;
    let node = world.node("worker-1").await?;
    ensure!(label_of(&node, TYPE) != Some("cx42"), "the webhook let the program write");

    webhooks.delete(NAME, &DeleteParams::default()).await?;
    world
        .until("the label has the new type, and the Service its finalizer", async |w| {
            let service = w.services().get("unsure").await?;
            let is_protected = service.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER);
            Ok(is_protected && label_of(&w.node("worker-1").await?, TYPE) == Some("cx42"))
        })
        .await?;
    world.services().delete("unsure", &DeleteParams::default()).await?;
    world
        .until("Service and load balancer are gone", async |w| {
            let is_gone = w.services().get_opt("unsure").await?.is_none();
            Ok(is_gone && w.standin.dump().load_balancers.is_empty())
        })
        .await
}

/// Fails each write of the program to Nodes and Services, because nothing listens on its port. The
/// API server answers the write with the code 500, as it does for a webhook that hangs.
fn webhook() -> Result<ValidatingWebhookConfiguration> {
    let resources = ["nodes", "nodes/status", "services", "services/status"];
    Ok(serde_json::from_value(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": NAME,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": resources,
            }],
            "matchConditions": [{
                "name": "the-program", "expression": format!("request.userInfo.username == '{USER}'"),
            }],
        }],
    }))?)
}
