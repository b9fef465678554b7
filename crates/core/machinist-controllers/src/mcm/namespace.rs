//! The UID of the namespace that this process serves. Each instance gets it as a tag, and only
//! instances with that tag can be collected as orphans. Each Node gets it as an annotation, and
//! only Nodes without another UID are released when their Machine is gone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use machinist_runtime::Stop;

use super::contract::Runtime;
use super::key::Key;

/// Reads the UID, if this process looks for orphans and has not read it.
pub(super) async fn know(runtime: &Arc<Runtime>) -> Result<(), Stop> {
    let is_known = runtime.lock().seen.memory.namespace_uid.is_some();
    if is_known || runtime.tools.machine().orphans.is_none() { Ok(()) } else { read(runtime).await }
}

/// Reads the UID. A role without that right, or an API server without namespaces, is an answer,
/// too: then no orphan is collected.
pub(super) async fn read(runtime: &Arc<Runtime>) -> Result<(), Stop> {
    let namespace = &runtime.options.namespace;
    let api: Api<Namespace> = Api::all(runtime.clients.control.clone());
    let uid = match api.get_metadata(namespace).await {
        Ok(found) => found.metadata.uid,
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {
            let known = runtime.lock().seen.memory.namespace_uid.clone();
            if known.is_none() {
                tracing::warn!(
                    %namespace,
                    error = status.message,
                    "The namespace cannot be read, so no orphaned instance is deleted"
                );
            }
            // A role that changes does not change the namespace: new instances keep their tag.
            known.flatten().filter(|_| status.code == 403)
        }
        Err(error) => return Err(Stop::Unanswered(error.to_string())),
    };
    let waiting: Vec<Key> = {
        let mut world = runtime.lock();
        let is_news = world.seen.memory.namespace_uid.as_ref() != Some(&uid);
        world.seen.memory.namespace_uid = Some(uid);
        let tokens = world.seen.tokens.iter().filter(|_| is_news);
        let tokens = tokens.map(|(_, token)| Key::Token(token.facts.facts.id.clone()));
        let nodes = world.seen.nodes.iter().filter(|(_, node)| is_news && node.facts.mark().is_some());
        tokens.chain(nodes.map(|(key, _)| Key::Node(key.name.clone()))).collect()
    };
    waiting.into_iter().for_each(|key| runtime.queue.wake(key));
    Ok(())
}
