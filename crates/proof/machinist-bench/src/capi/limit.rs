//! The limit of the engine: the calls of all machines, without a provider.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use machinist_driver::{Bootstrap, Driver as _};
use machinist_instance::{
    BootstrapData, BootstrapFormat, BootstrapState, InstanceKey, InstanceRef, InstanceSpec, NodeName,
    Readiness, UserData,
};
use machinist_standin_docker::{Engine, Speed};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Number of looks at a container after which it counts as broken.
const LOOKS: usize = 10;

/// The measurement.
pub(super) struct Direct {
    /// Time of all machines.
    pub(super) took: Duration,
    /// Calls of all machines.
    pub(super) calls: u64,
}

/// Creates and bootstraps all containers at the same time, as fast as the engine does it. Each
/// machine is a task, as in the provider: one task for all would start the calls of a machine later
/// while it answers for others.
pub(super) async fn measure(machines: u32) -> Result<Direct> {
    let engine = Engine::with_speed("direct", Speed::WORKSTATION);
    let began = Instant::now();
    let mut all: JoinSet<Result<()>> =
        (0..machines).map(|number| provision(engine.clone(), number)).collect();
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    let took = began.elapsed();
    let calls = u64::try_from(engine.state().calls)?;
    Ok(Direct { took, calls })
}

/// Sends the calls of one machine, in the order of the provider.
async fn provision(engine: Engine, number: u32) -> Result<()> {
    let instance = engine.instances().ensure(&spec(number)?).await?;
    let which = InstanceRef {
        id: Some(instance.id),
        key: instance.key,
        name: Some(instance.name),
        native_id: instance.native_id,
        cluster: None,
        ..InstanceRef::default()
    };
    let bootstrap = engine.bootstrap().context("the engine bootstraps containers")?;
    until_started(bootstrap, &which).await?;
    // The provider looks first, because another process may have started the bootstrap.
    bootstrap.progress(&which).await?;
    let data = BootstrapData {
        format: BootstrapFormat::CloudConfig,
        value: UserData::new(*b"#cloud-config\n"),
        timeout: Duration::from_secs(300),
    };
    bootstrap.start(&which, &data).await?;
    until_bootstrapped(bootstrap, &which).await
}

async fn until_started(bootstrap: &dyn Bootstrap, which: &InstanceRef) -> Result<()> {
    for _ in 0..LOOKS {
        match bootstrap.readiness(which).await? {
            Readiness::Ready => return Ok(()),
            Readiness::Booting(_) => {}
        }
    }
    bail!("{which} does not start")
}

async fn until_bootstrapped(bootstrap: &dyn Bootstrap, which: &InstanceRef) -> Result<()> {
    for _ in 0..LOOKS {
        match bootstrap.progress(which).await?.state {
            BootstrapState::Succeeded => return Ok(()),
            BootstrapState::NotStarted | BootstrapState::Running { .. } => {}
            BootstrapState::Failed(failure) => bail!("the bootstrap of {which} failed: {}", failure.cause),
        }
    }
    bail!("the bootstrap of {which} does not end")
}

fn spec(number: u32) -> Result<InstanceSpec> {
    let name = super::core::name_of(number);
    Ok(InstanceSpec {
        key: InstanceKey::new(&name),
        name: NodeName::new(name).context("the name of a Node")?,
        cluster: super::core::CLUSTER.to_owned(),
        provider_spec: json!({"image": "kindest/node:v1.33.0", "role": "worker"}),
        user_data: UserData::default(),
        tags: BTreeMap::new(),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    })
}
