//! The Services that users want, and the requests by which they get them.
//!
//! After a restore of the cluster, the users repeat the requests that the backup does not contain.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use machinist_apiserver::Server;
use serde_json::{Value, json};

use crate::sight::SERVICES;
use crate::sight::SeenObject;
use crate::stage::client;
use crate::world::{NAMESPACE, Outcome, ScenarioError};

/// The Services that users want. Clones share the same wishes.
#[derive(Clone)]
pub struct Services {
    server: Server,
    /// The annotations of each wanted Service, by its name.
    wanted: Arc<Mutex<BTreeMap<String, Value>>>,
    repeats: Repeats,
}

/// Whether users repeat their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// Each request is made once, and must succeed.
    Never,
    /// A restore or another actor may undo a request, which is then repeated.
    WhenUndone,
}

impl Services {
    /// No Services.
    pub fn new(server: Server, repeats: Repeats) -> Self {
        Self { server, wanted: Arc::default(), repeats }
    }

    /// Creates a Service of type LoadBalancer with one port.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create(&self, name: &str, annotations: Value) -> Outcome {
        self.lock().insert(name.to_owned(), annotations.clone());
        match self.post(name, annotations).await {
            // It was brought back, and its deletion is being repeated.
            Err(kube::Error::Api(status)) if status.is_already_exists() && self.is_repeated() => Ok(()),
            created => Ok(created?),
        }
    }

    /// Deletes a Service.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn delete(&self, name: &str) -> Outcome {
        self.lock().remove(name);
        match self.api().delete(name, &DeleteParams::default()).await {
            // It was lost, and its creation was not repeated yet.
            Err(kube::Error::Api(status)) if status.is_not_found() && self.is_repeated() => Ok(()),
            deleted => deleted.map(|_| ()).map_err(ScenarioError::from),
        }
    }

    /// Creates a Service again that another actor has removed, if users want it.
    pub(super) async fn create_again(&self, name: &str) {
        let annotations = self.lock().get(name).cloned();
        if let Some(annotations) = annotations {
            // The user of the scenario may have created it in this instant.
            let _ = self.post(name, annotations).await;
        }
    }

    /// Repeats lost requests forever.
    pub async fn repeat(self) {
        const LOOK_EVERY: Duration = Duration::from_secs(5);
        loop {
            let existing = self.server.snapshot(SERVICES);
            let existing: Vec<SeenObject<'_>> =
                existing.iter().map(|service| SeenObject(service.value())).collect();
            let wanted = self.lock().clone();
            for (name, annotations) in &wanted {
                if !existing.iter().any(|service| service.name() == name) {
                    // The user of the scenario may have created it in this instant.
                    let _ = self.post(name, annotations.clone()).await;
                }
            }
            let unwanted = existing.iter().filter(|service| !wanted.contains_key(service.name()));
            for service in unwanted.filter(|service| !service.is_deleting()) {
                // The user of the scenario may have deleted it in this instant.
                let _ = self.api().delete(service.name(), &DeleteParams::default()).await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn is_repeated(&self) -> bool {
        self.repeats == Repeats::WhenUndone
    }

    async fn post(&self, name: &str, annotations: Value) -> Result<(), kube::Error> {
        let mut metadata = json!({"name": name});
        if annotations.as_object().is_some_and(|annotations| !annotations.is_empty()) {
            metadata["annotations"] = annotations;
        }
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}], "selector": {"app": name}},
        });
        let service = serde_json::from_value(service).map_err(kube::Error::SerdeError)?;
        self.api().create(&PostParams::default(), &service).await?;
        Ok(())
    }

    fn api(&self) -> Api<Service> {
        Api::namespaced(client(&self.server, "user"), NAMESPACE)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
