//! The scenarios: requests of users, and events in the engine.

use std::fmt;
use std::time::Duration;

use serde_json::json;

use super::process::ProviderKind;
use super::realm::{MachineRole, ProviderWorld};
use super::view::ProviderView;
use crate::world::{Outcome, Played, ScenarioError, ensure};

/// A scenario with its name.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: &'static str,
    /// The function that plays the scenario.
    pub play: for<'c> fn(&'c ProviderWorld) -> Played<'c>,
    /// The kind of infrastructure that the provider of the world serves.
    pub kind: ProviderKind,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn docker(name: &'static str, play: for<'c> fn(&'c ProviderWorld) -> Played<'c>) -> Scenario {
    Scenario { name, play, kind: ProviderKind::Docker }
}

const fn mail(name: &'static str, play: for<'c> fn(&'c ProviderWorld) -> Played<'c>) -> Scenario {
    Scenario { name, play, kind: ProviderKind::Mail }
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    docker("docker-create", |r| Box::pin(docker_create(r))),
    docker("docker-scale", |r| Box::pin(docker_scale(r))),
    docker("docker-delete-machines", |r| Box::pin(docker_delete_machines(r))),
    docker("docker-delete-cluster", |r| Box::pin(docker_delete_cluster(r))),
    docker("docker-roll", |r| Box::pin(docker_roll(r))),
    docker("docker-flap", |r| Box::pin(docker_flap(r))),
    docker("docker-foreign", |r| Box::pin(docker_foreign(r))),
    docker("docker-lost", |r| Box::pin(docker_lost(r))),
    mail("mail-create", |r| Box::pin(mail_create(r))),
    mail("mail-later", |r| Box::pin(mail_later(r))),
    mail("mail-flap", |r| Box::pin(mail_flap(r))),
    mail("mail-rejected", |r| Box::pin(mail_rejected(r))),
];

/// The scenarios with a crash at every call.
pub const SWEPT: [&str; 3] = ["docker-create", "docker-delete-cluster", "mail-create"];

/// Name of the Cluster.
const CLUSTER: &str = "c";
/// A time in which a program that judges too early would act.
const LONG: Duration = Duration::from_secs(400);

/// The Machines of a Cluster.
struct Machines {
    control_plane: Vec<String>,
    workers: Vec<String>,
}

impl Machines {
    fn new(control_plane: u64, workers: u64) -> Self {
        let names =
            |role: &str, count| (0..count).map(|number| format!("{CLUSTER}-{role}-{number}")).collect();
        Self { control_plane: names("cp", control_plane), workers: names("w", workers) }
    }

    /// Draws the sizes from the seed.
    fn drawn(realm: &ProviderWorld) -> Self {
        let mut workload = realm.workload();
        Self::new(workload.pick(&[1, 1, 3]).unwrap_or(1), 1 + workload.below(3))
    }

    fn all(&self) -> Vec<String> {
        [self.control_plane.clone(), self.workers.clone()].concat()
    }
}

/// Creates a Cluster with Machines, without waiting.
async fn order(realm: &ProviderWorld, machines: &Machines) -> Outcome {
    realm.create_cluster(CLUSTER).await?;
    for name in &machines.control_plane {
        realm.create_machine(CLUSTER, name, MachineRole::ControlPlane).await?;
    }
    for name in &machines.workers {
        realm.create_machine(CLUSTER, name, MachineRole::Worker).await?;
    }
    Ok(())
}

/// Creates a Cluster with Machines, and waits for them.
async fn start(realm: &ProviderWorld, machines: &Machines) -> Result<ProviderView, ScenarioError> {
    order(realm, machines).await?;
    ready(realm, &machines.all()).await
}

async fn ready(realm: &ProviderWorld, names: &[String]) -> Result<ProviderView, ScenarioError> {
    realm.until("the machines to be ready", |view| view.are_ready(names)).await
}

async fn gone(realm: &ProviderWorld, names: &[String]) -> Result<ProviderView, ScenarioError> {
    realm.until("the machines to be deleted", |view| view.are_gone(names)).await
}

/// A user creates a Cluster with a control plane and workers.
async fn docker_create(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::drawn(realm);
    realm.stage().begin("the user creates a Cluster");
    start(realm, &machines).await?;
    Ok(())
}

/// A user adds workers and removes others.
async fn docker_scale(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::new(1, 2);
    let mut workload = realm.workload();
    start(realm, &machines).await?;
    realm.stage().begin("the user adds workers, and removes one");
    let added: Vec<String> =
        (0..1 + workload.below(3)).map(|number| format!("{CLUSTER}-new-{number}")).collect();
    for name in &added {
        realm.create_machine(CLUSTER, name, MachineRole::Worker).await?;
        realm.stage().pass(workload.within(Duration::ZERO..Duration::from_secs(20))).await?;
    }
    realm.delete("Machine", &machines.workers[0]).await?;
    ready(realm, &added).await?;
    gone(realm, &machines.workers[..1]).await?;
    Ok(())
}

/// A user deletes a machine of the control plane and a worker. The others stay.
async fn docker_delete_machines(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::new(3, 2);
    let before = start(realm, &machines).await?;
    realm.stage().begin("the user deletes two machines");
    let (deleted, kept): (Vec<String>, Vec<String>) =
        machines.all().into_iter().partition(|name| name.ends_with("-0"));
    for name in &deleted {
        realm.delete("Machine", name).await?;
    }
    let after = gone(realm, &deleted).await?;
    for name in &kept {
        let same = before.containers.get(name) == after.containers.get(name);
        ensure(same, || format!("container {name} was replaced"))?;
    }
    Ok(())
}

/// A user deletes a Cluster.
async fn docker_delete_cluster(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::drawn(realm);
    start(realm, &machines).await?;
    // Long enough that the creation cannot have further effects.
    realm.stage().pass(LONG).await?;
    realm.stage().begin("the user deletes the Cluster");
    realm.delete("Cluster", CLUSTER).await?;
    realm.until("the Cluster to be deleted", ProviderView::is_empty).await?;
    Ok(())
}

/// A new template: each Machine is replaced, the control plane first.
async fn docker_roll(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::drawn(realm);
    start(realm, &machines).await?;
    realm.stage().begin("the user changes the template");
    let control_plane = machines.control_plane.iter().map(|name| (name, MachineRole::ControlPlane));
    let workers = machines.workers.iter().map(|name| (name, MachineRole::Worker));
    for (old, role) in control_plane.chain(workers) {
        let new = vec![format!("{old}-new")];
        realm.create_machine(CLUSTER, &new[0], role).await?;
        ready(realm, &new).await?;
        realm.delete("Machine", old).await?;
        gone(realm, std::slice::from_ref(old)).await?;
    }
    Ok(())
}

/// A user creates a worker, and deletes it while it is being created; three times, with one name.
async fn docker_flap(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::new(1, 0);
    let mut workload = realm.workload();
    start(realm, &machines).await?;
    realm.stage().begin("the user creates a worker, and deletes it at once");
    let names = vec![format!("{CLUSTER}-w-0")];
    for _ in 0..3 {
        realm.create_machine(CLUSTER, &names[0], MachineRole::Worker).await?;
        // Often before the first call has ended.
        let soon = workload.pick(&[Duration::from_secs(2), Duration::from_secs(12)]).unwrap_or(LONG);
        realm.stage().pass(workload.within(Duration::ZERO..soon)).await?;
        realm.delete("Machine", &names[0]).await?;
        gone(realm, &names).await?;
    }
    Ok(())
}

/// Containers of other owners have the names of machines. A person removes one of them.
async fn docker_foreign(realm: &ProviderWorld) -> Outcome {
    const POSTGRES: &str = "postgres";
    let machines = Machines::new(1, 2);
    realm.run_foreign_container(POSTGRES);
    realm.run_foreign_container(&machines.workers[0]);
    realm.stage().begin("the user creates a Cluster while other containers exist");
    order(realm, &machines).await?;
    ready(realm, &[&machines.control_plane[..], &machines.workers[1..]].concat()).await?;
    realm.stage().pass(LONG).await?;
    realm.remove_container(&machines.workers[0]);
    let after = ready(realm, &machines.all()).await?;
    ensure(after.containers.contains_key(POSTGRES), || "a container of another owner was deleted".to_owned())
}

/// A container is removed behind the back of all programs. A person deletes its Machine.
async fn docker_lost(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::new(1, 2);
    start(realm, &machines).await?;
    realm.stage().begin("a container is removed");
    let lost = &machines.workers[..1];
    realm.remove_container(&lost[0]);
    let reported = |view: &ProviderView| {
        let machine = view.machine(&lost[0]).and_then(|machine| view.said(machine));
        match machine {
            Some(said) if said.needs_person => Ok(()),
            said => Err(format!("{said:?}")),
        }
    };
    realm.until("why to name the lost container", reported).await?;
    let new = vec![format!("{CLUSTER}-new-0")];
    realm.create_machine(CLUSTER, &new[0], MachineRole::Worker).await?;
    realm.delete("Machine", &lost[0]).await?;
    gone(realm, lost).await?;
    ready(realm, &new).await?;
    Ok(())
}

/// A user asks for a cluster and machines.
async fn mail_create(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::drawn(realm);
    realm.stage().begin("the user asks for a cluster and machines");
    start(realm, &machines).await?;
    Ok(())
}

/// A user asks for machines, one after the other.
async fn mail_later(realm: &ProviderWorld) -> Outcome {
    let mut workload = realm.workload();
    let machines = Machines::new(1, 0);
    start(realm, &machines).await?;
    realm.stage().begin("the user asks for machines");
    let names: Vec<String> =
        (0..2 + workload.below(4)).map(|number| format!("{CLUSTER}-w-{number}")).collect();
    for name in &names {
        realm.create_machine(CLUSTER, name, MachineRole::Worker).await?;
        realm.stage().pass(workload.within(Duration::ZERO..Duration::from_secs(120))).await?;
    }
    ready(realm, &names).await?;
    Ok(())
}

/// A user asks for a machine, and deletes the request while its mail is being sent; with one name.
async fn mail_flap(realm: &ProviderWorld) -> Outcome {
    let mut workload = realm.workload();
    let machines = Machines::new(1, 0);
    start(realm, &machines).await?;
    realm.stage().begin("the user asks for a machine, and deletes the request at once");
    let names = vec![format!("{CLUSTER}-w-0")];
    for _ in 0..3 {
        realm.create_machine(CLUSTER, &names[0], MachineRole::Worker).await?;
        realm.stage().pass(workload.within(Duration::ZERO..Duration::from_secs(8))).await?;
        realm.delete("Machine", &names[0]).await?;
        gone(realm, &names).await?;
    }
    realm.create_machine(CLUSTER, &names[0], MachineRole::Worker).await?;
    ready(realm, &names).await?;
    Ok(())
}

/// A request names a recipient without a domain. The user corrects it.
async fn mail_rejected(realm: &ProviderWorld) -> Outcome {
    let machines = Machines::new(1, 1);
    start(realm, &machines).await?;
    realm.stage().begin("the user asks for a machine, with a wrong recipient");
    let names = vec![format!("{CLUSTER}-w-1")];
    realm.create_machine(CLUSTER, &names[0], MachineRole::Worker).await?;
    let recipients = |text: &str| json!({"spec": {"recipients": [text]}});
    realm.user().merge("MailgunMachine", &names[0], recipients("no-address")).await?;
    realm.stage().pass(LONG).await?;
    realm.user().merge("MailgunMachine", &names[0], recipients("human@example.com")).await?;
    ready(realm, &names).await?;
    Ok(())
}
