//! Finds the ids of the objects that a class of 23technologies' provider names: its image, its SSH
//! key and its network.
//!
//! The ids are remembered for a while, because all Machines of a class ask for the same ones.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use machinist_instance::{Error, ErrorKind};
use serde::Deserialize;
use tokio::time::Instant;

use crate::client::call::Call;
use crate::client::{ATTEMPT_WITHIN, Client};
use crate::gardener::GardenerClass;
use crate::model::Id;
use crate::request::{self, Resolved};

/// How long an id is remembered. A user may create another object of that name.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

/// The ids that an account has shown, by the question, and when.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<BTreeMap<String, (i64, Instant)>>);

/// An image or a server type.
#[derive(Debug, Clone, Deserialize)]
struct OfArchitecture {
    id: i64,
    #[serde(default)]
    architecture: Option<String>,
}

impl Names {
    /// Finds all ids of a class.
    ///
    /// # Errors
    /// `InvalidSpec` names the field whose object does not exist.
    pub(crate) async fn resolve(&self, client: &Client, class: &GardenerClass) -> Result<Resolved, Error> {
        let network = async {
            match &class.network {
                Some(name) => self.network(client, name).await.map(Some),
                None => Ok(None),
            }
        };
        let all = async { tokio::try_join!(self.image(client, class), self.ssh_key(client, class), network) };
        let slow = |_| Error::new(ErrorKind::Unavailable, "the names of the class were not resolved in time");
        let (image, ssh_key, network) = tokio::time::timeout(ATTEMPT_WITHIN, all).await.map_err(slow)??;
        Ok(Resolved { image, ssh_key, network })
    }

    /// Forgets everything: an object may have been replaced.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The image for the architecture of the server type.
    async fn image(&self, client: &Client, class: &GardenerClass) -> Result<i64, Error> {
        let GardenerClass { image, server_type, .. } = class;
        let find = async || {
            let found: Vec<OfArchitecture> = client.list(&request::images(image), "images").await?;
            if let [only] = found.as_slice() {
                return Ok(Some(only.id));
            }
            let types: Vec<OfArchitecture> =
                client.list(&request::server_types(server_type), "server_types").await?;
            let Some(wanted) = types.into_iter().next() else {
                return Err(missing("serverType", server_type));
            };
            let fits = |image: &&OfArchitecture| image.architecture == wanted.architecture;
            Ok(found.iter().find(fits).map(|image| image.id))
        };
        self.id(format!("image {image} for {server_type}"), "imageName", image, find).await
    }

    async fn ssh_key(&self, client: &Client, class: &GardenerClass) -> Result<i64, Error> {
        let fingerprint = &class.ssh_fingerprint;
        let find = async || first(client, &request::ssh_keys(fingerprint), "ssh_keys").await;
        self.id(format!("SSH key {fingerprint}"), "sshFingerprint", fingerprint, find).await
    }

    async fn network(&self, client: &Client, name: &str) -> Result<i64, Error> {
        let find = async || first(client, &request::networks(name), "networks").await;
        self.id(format!("network {name}"), "networkName", name, find).await
    }

    async fn id(
        &self,
        question: String,
        field: &str,
        named: &str,
        find: impl AsyncFnOnce() -> Result<Option<i64>, Error>,
    ) -> Result<i64, Error> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&question).copied();
        if let Some((id, since)) = known
            && since.elapsed() < REMEMBERED_FOR
        {
            return Ok(id);
        }
        let id = find().await?.ok_or_else(|| missing(field, named))?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(question, (id, Instant::now()));
        Ok(id)
    }
}

async fn first(client: &Client, call: &Call, sorts: &'static str) -> Result<Option<i64>, Error> {
    let found: Vec<Id> = client.list(call, sorts).await?;
    Ok(found.first().map(|object| object.id))
}

fn missing(field: &str, named: &str) -> Error {
    let text =
        format!("providerSpec.{field}: expected an object of the project, but {named:?} does not exist");
    Error::new(ErrorKind::InvalidSpec, text)
}
