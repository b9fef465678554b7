//! The scenarios: requests of users, and events in the cloud.

use std::fmt;
use std::time::Duration;

use machinist_standin_hcloud::{Fault, FaultRule, HcloudLoadBalancer};

use super::cluster::ServiceWorld;
use super::machines::{Machines, create_workers};
use super::settled;
use super::view::ServiceView;
use crate::faults::LongKind;
use crate::sight::Item;
use crate::world::{Outcome, Played, ScenarioError, ensure};

/// A scenario with its name.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: &'static str,
    /// The function that plays the scenario.
    pub play: for<'c> fn(&'c ServiceWorld) -> Played<'c>,
    /// Whether Machines own Nodes.
    pub has_machines: bool,
    /// Whether Services choose the names of their load balancers.
    pub names_balancers: bool,
    /// The long faults that the scenario is about.
    pub is_about: &'static [LongKind],
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A scenario without Machines, in which Services choose the names of their load balancers.
const fn named(name: &'static str, play: for<'c> fn(&'c ServiceWorld) -> Played<'c>) -> Scenario {
    Scenario { names_balancers: true, ..alone(name, play) }
}

/// A scenario without Machines.
const fn alone(name: &'static str, play: for<'c> fn(&'c ServiceWorld) -> Played<'c>) -> Scenario {
    Scenario { name, play, has_machines: false, names_balancers: false, is_about: &[] }
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    alone("node-init", |c| Box::pin(node_init(c))),
    alone("node-delete", |c| Box::pin(node_delete(c))),
    alone("balancer-create", |c| Box::pin(balancer_create(c))),
    alone("balancer-delete", |c| Box::pin(balancer_delete(c))),
    alone("balancer-flap", |c| Box::pin(balancer_flap(c))),
    alone("ccm-init", |c| Box::pin(ccm_init(c))),
    alone("ip-reuse", |c| Box::pin(ip_reuse(c))),
    alone("unlisted-server", |c| Box::pin(unlisted_server(c))),
    alone("renamed-server", |c| Box::pin(renamed_server(c))),
    Scenario {
        name: "two-contracts",
        play: |c| Box::pin(two_contracts(c)),
        has_machines: true,
        names_balancers: false,
        is_about: &[],
    },
];

/// Scenarios about some of the long faults, or about rare requests. Only `cargo xtask sim` plays
/// them.
pub const FURTHER: &[Scenario] = &[
    Scenario {
        is_about: &[LongKind::ForeignMarks, LongKind::RefusedTargets, LongKind::CloudAway],
        ..alone("balancer-life", |c| Box::pin(balancer_life(c)))
    },
    Scenario {
        is_about: &[LongKind::Restarts, LongKind::FinalizersOff],
        ..alone("balancer-again", |c| Box::pin(balancer_again(c)))
    },
    Scenario { is_about: &[LongKind::SecondReplica], ..alone("nodes-leave", |c| Box::pin(nodes_leave(c))) },
    named("balancer-rivals", |c| Box::pin(balancer_rivals(c))),
];

/// The scenarios with a crash at every call.
pub const SWEPT: [&str; 4] = ["node-init", "node-delete", "balancer-create", "balancer-delete"];

/// A time in which a process that judges too early would delete a Node.
const LONG: Duration = Duration::from_secs(400);

/// Three servers boot, and their Nodes are initialised.
async fn node_init(cluster: &ServiceWorld) -> Outcome {
    cluster.begin("three servers boot");
    let ids = cluster.start_with(&["a", "b", "c"]).await?;
    for (name, id) in ["a", "b", "c"].into_iter().zip(ids) {
        cluster.until("the Node to be its server's", |view| view.is_of(name, id)).await?;
    }
    Ok(())
}

/// A server is deleted, and its Node with it. The others stay.
async fn node_delete(cluster: &ServiceWorld) -> Outcome {
    let ids = cluster.start_with(&["a", "b", "c"]).await?;
    let before = cluster.look();
    cluster.begin("the server of one Node is deleted");
    cluster.kill(ids[0])?;
    gone(cluster, "a").await?;
    let after = cluster.look();
    for name in ["b", "c"] {
        let uid = |view: &ServiceView| view.node(name).map(|node| node.uid().to_owned());
        ensure(uid(&before) == uid(&after), || format!("Node {name} was replaced"))?;
    }
    Ok(())
}

/// A user creates a Service with a load balancer.
async fn balancer_create(cluster: &ServiceWorld) -> Outcome {
    let _ = cluster.start_with(&["a", "b"]).await?;
    cluster.begin("the user creates a Service");
    cluster.create_service("web").await?;
    cluster.until("the load balancer", |view| view.has_balancer("web", 2)).await?;
    Ok(())
}

/// A user deletes a Service with a load balancer.
async fn balancer_delete(cluster: &ServiceWorld) -> Outcome {
    let _ = cluster.start_with(&["a", "b"]).await?;
    cluster.create_service("web").await?;
    cluster.until("the load balancer", |view| view.has_balancer("web", 2)).await?;
    // Long enough that the creation of the load balancer cannot have further effects.
    cluster.pass(LONG).await?;
    cluster.begin("the user deletes the Service");
    cluster.delete_service("web").await?;
    without_balancer(cluster).await
}

/// A user creates a Service, and deletes it while its load balancer is being created; twice.
async fn balancer_flap(cluster: &ServiceWorld) -> Outcome {
    let _ = cluster.start_with(&["a", "b"]).await?;
    cluster.begin("the user creates a Service, and deletes it at once");
    for wait in [Duration::from_millis(700), Duration::from_secs(3)] {
        cluster.create_service("web").await?;
        cluster.pass(wait).await?;
        cluster.delete_service("web").await?;
        without_balancer(cluster).await?;
    }
    Ok(())
}

/// Nodes join and leave behind a load balancer, and a user creates a second Service.
async fn balancer_life(cluster: &ServiceWorld) -> Outcome {
    const STEP: Duration = Duration::from_secs(100);
    let ids = cluster.start_with(&["a", "b"]).await?;
    cluster.create_service("web").await?;
    cluster.until("the load balancer", |view| view.has_balancer("web", 2)).await?;
    cluster.begin("Nodes join and leave behind a load balancer, and a second one is wanted");
    cluster.pass(STEP).await?;
    let _ = cluster.boot("c")?;
    cluster.pass(STEP).await?;
    cluster.create_service("late").await?;
    cluster.pass(STEP).await?;
    cluster.kill(ids[0])?;
    let _ = cluster.boot("d")?;
    let agree = |view: &ServiceView| match settled::judge(view).into_inner().first() {
        None => Ok(()),
        Some((_, what)) => Err(what.clone()),
    };
    cluster.until("the load balancers to have the Nodes", agree).await?;
    Ok(())
}

/// A user creates a Service, and deletes it soon, again and again.
async fn balancer_again(cluster: &ServiceWorld) -> Outcome {
    const TIMES: usize = 6;
    let _ = cluster.start_with(&["a", "b"]).await?;
    let mut workload = cluster.seed().stream("workload");
    cluster.begin("the user creates a Service, and deletes it soon, again and again");
    for _ in 0..TIMES {
        cluster.create_service("web").await?;
        let soon = workload.pick(&[Duration::from_secs(3), Duration::from_secs(40)]).unwrap_or(LONG);
        cluster.pass(workload.within(Duration::ZERO..soon)).await?;
        cluster.delete_service("web").await?;
        without_balancer(cluster).await?;
    }
    Ok(())
}

/// Servers are deleted, one after the other, and others take their place.
async fn nodes_leave(cluster: &ServiceWorld) -> Outcome {
    /// Together, more than one of the Nodes may be deleted soon after each other, but not too many.
    const PAUSE: std::ops::Range<Duration> = Duration::from_secs(30)..Duration::from_secs(600);
    let ids = cluster.start_with(&["a", "b", "c", "d", "e", "f"]).await?;
    let mut workload = cluster.seed().stream("workload");
    cluster.begin("servers are deleted, one after the other, and others take their place");
    for (id, (old, new)) in ids.iter().zip([("a", "g"), ("b", "h"), ("c", "i"), ("d", "j")]) {
        cluster.pass(workload.within(PAUSE)).await?;
        cluster.kill(*id)?;
        let new_id = cluster.boot(new)?;
        gone(cluster, old).await?;
        cluster.until("the new Node", |view| view.is_of(new, new_id)).await?;
    }
    for (name, id) in [("e", ids[4]), ("f", ids[5])] {
        cluster.until("the other Nodes to stay", |view| view.is_of(name, id)).await?;
    }
    Ok(())
}

/// Two Services choose one name for their load balancers. One of them gets it, and the other one
/// reports that. The user deletes the first one, and the second one gets its load balancer.
async fn balancer_rivals(cluster: &ServiceWorld) -> Outcome {
    let _ = cluster.start_with(&["a", "b"]).await?;
    let mut workload = cluster.seed().stream("workload");
    cluster.begin("the user creates two Services that choose one name");
    for name in ["web", "rival"] {
        cluster.create_service_named(name, "shared").await?;
        // Creation timestamps have whole seconds, and the older Service gets the name.
        let soon = workload.pick(&[Duration::from_secs(2), Duration::from_secs(20)]).unwrap_or(LONG);
        cluster.pass(workload.within(Duration::from_millis(1001)..soon)).await?;
    }
    let is_decided = |view: &ServiceView| -> Result<(String, String), String> {
        for (first, second) in [("web", "rival"), ("rival", "web")] {
            let reports = |service| view.said_of_service(service).is_some_and(|said| said.needs_person);
            if view.has_balancer(first, 2).is_ok() && view.service(second).is_some_and(reports) {
                return Ok((first.to_owned(), second.to_owned()));
            }
        }
        Err("no Service has the load balancer while the other one reports it".to_owned())
    };
    let decided = cluster.until("one Service to get the name", |view| is_decided(view).map(|_| ())).await?;
    let (first, second) = is_decided(&decided).map_err(ScenarioError)?;
    cluster.pass(LONG).await?;
    cluster.delete_service(&first).await?;
    cluster.until("the other Service to get it", |view| view.has_balancer(&second, 2)).await?;
    Ok(())
}

/// Nodes join in different orders, a server stops and starts, and a server dies.
async fn ccm_init(cluster: &ServiceWorld) -> Outcome {
    cluster.begin("three servers boot, and one kubelet registers before its server is known");
    let ids = cluster.start_with(&["a", "b", "c"]).await?;
    let late = cluster.create_server("late-server")?;
    // The host name becomes the name of the server only after a while: no server has the name of
    // the Node.
    cluster.kubelets().install(late, "d");
    cluster.pass(Duration::from_secs(45)).await?;
    let rename = |server: &mut machinist_standin_hcloud::HcloudServer| server.name = "d".to_owned();
    cluster.standin().change_server(late, rename).map_err(|error| ScenarioError(error.to_string()))?;
    cluster.until("the late Node", |view| view.is_of("d", late)).await?;
    cluster.standin().power_off(ids[1]).map_err(|error| ScenarioError(error.to_string()))?;
    cluster.pass(Duration::from_secs(120)).await?;
    cluster.standin().power_on(ids[1]).map_err(|error| ScenarioError(error.to_string()))?;
    cluster.until("the Node of the restarted server", |view| view.is_of("b", ids[1])).await?;
    cluster.kill(ids[0])?;
    gone(cluster, "a").await?;
    for (name, id) in [("b", ids[1]), ("c", ids[2]), ("d", late)] {
        cluster.until("the other Nodes to stay", |view| view.is_of(name, id)).await?;
    }
    Ok(())
}

/// A server dies, and a new one gets its name and its address. Another server gets a new address,
/// and a third one the old address of that.
async fn ip_reuse(cluster: &ServiceWorld) -> Outcome {
    let ids = cluster.start_with(&["a", "b", "c"]).await?;
    let address_of = |id: i64| cluster.standin().server(id).and_then(|server| server.ipv4);
    cluster.begin("a server dies, and its name and its address are used again");
    let (old_a, old_b) = (address_of(ids[0]), address_of(ids[1]));
    cluster.kill(ids[0])?;
    let new_a = cluster.boot("a")?;
    let give = |id: i64, ip: Option<machinist_standin_hcloud::PublicIp>| {
        let changed = cluster.standin().change_server(id, |server| server.ipv4 = ip);
        changed.map_err(|error| ScenarioError(error.to_string()))
    };
    give(new_a, old_a)?;
    // The spare server gives its own address to b, and takes b's.
    let spare = cluster.boot("spare")?;
    let free = address_of(spare);
    give(ids[1], free)?;
    give(spare, old_b)?;
    for (name, id) in [("a", new_a), ("b", ids[1]), ("c", ids[2]), ("spare", spare)] {
        cluster.until("each Node to be its server's", |view| view.is_of(name, id)).await?;
    }
    Ok(())
}

/// All lists lack a server whose kubelet is silent for a while.
async fn unlisted_server(cluster: &ServiceWorld) -> Outcome {
    let ids = cluster.start_with(&["a", "b", "c", "d"]).await?;
    cluster.begin("lists lack a server whose kubelet is silent");
    let omits = FaultRule::always("GET", "/v1/servers", Fault::Omit { id: ids[0] });
    let rule = cluster.standin().add_fault(omits);
    silence(cluster, "a", ids[0]).await?;
    cluster.standin().remove_fault(rule);
    Ok(())
}

/// A user renames a server, whose kubelet is then silent for a while.
async fn renamed_server(cluster: &ServiceWorld) -> Outcome {
    let ids = cluster.start_with(&["a", "b", "c", "d"]).await?;
    cluster.begin("the user renames a server, and its kubelet is silent");
    let rename = |server: &mut machinist_standin_hcloud::HcloudServer| server.name = "other".to_owned();
    cluster.standin().change_server(ids[0], rename).map_err(|error| ScenarioError(error.to_string()))?;
    silence(cluster, "a", ids[0]).await
}

/// The machine controller creates servers, and the cloud-controller-manager initialises their
/// Nodes. A server dies, and both replace it together: one new server, and no other Node is lost.
async fn two_contracts(cluster: &ServiceWorld) -> Outcome {
    cluster.kubelets().install_everywhere();
    let _machines = Machines::start(cluster);
    create_workers(cluster, 3).await?;
    let before = cluster.until("three workers", |view| workers_run(view, 3)).await?;
    cluster.begin("the server of a Machine is deleted in the cloud");
    let victim = before.machines.first().map(|machine| machine.seen().name().to_owned());
    let victim = victim.ok_or(ScenarioError::new("no Machine exists"))?;
    let server = before.cloud.servers.values().find(|server| server.name == victim).map(|server| server.id);
    cluster.kill(server.ok_or(ScenarioError::new("the Machine has no server"))?)?;
    gone(cluster, &victim).await?;
    let after = cluster.until("three workers again", |view| workers_run(view, 3)).await?;
    // Both could still act on the old facts.
    cluster.pass(LONG).await?;
    let ever = cluster.standin().servers_ever().len();
    ensure(ever == 4, || format!("{ever} servers were ever made, expected 4"))?;
    for node in before.nodes.iter().map(Item::seen).filter(|node| node.name() != victim) {
        let same = after.node(node.name()).is_some_and(|now| now.uid() == node.uid());
        ensure(same, || format!("Node {} was replaced", node.name()))?;
    }
    Ok(())
}

/// Whether that number of Machines runs, each with the Node of its own server.
fn workers_run(view: &ServiceView, replicas: usize) -> Result<(), String> {
    if view.machines.len() != replicas {
        return Err(format!("{} Machines", view.machines.len()));
    }
    for machine in view.machines.iter().map(Item::seen) {
        if machine.phase() != "Running" || machine.is_deleting() {
            return Err(format!("Machine {} is {}", machine.name(), machine.phase()));
        }
        let mut servers = view.cloud.servers.values();
        let server = servers.find(|server| server.provider_id() == machine.provider_id());
        let server = server.ok_or(format!("Machine {} has no server", machine.name()))?;
        view.is_of(machine.node_label(), server.id)?;
    }
    Ok(())
}

/// The kubelet of a server that exists is silent, and then continues. Its Node stays.
async fn silence(cluster: &ServiceWorld, name: &str, server: i64) -> Outcome {
    let uid = |view: &ServiceView| view.node(name).map(|node| node.uid().to_owned());
    let before = uid(&cluster.look());
    cluster.kubelets().set_stopped(server, true);
    cluster.pass(LONG).await?;
    cluster.kubelets().set_stopped(server, false);
    cluster.until("the Node to be ready again", |view| view.is_of(name, server)).await?;
    ensure(before == uid(&cluster.look()), || format!("Node {name} was replaced"))
}

async fn gone(cluster: &ServiceWorld, name: &str) -> Outcome {
    let is_gone = |view: &ServiceView| match view.node(name) {
        None => Ok(()),
        Some(_) => Err(format!("Node {name} exists")),
    };
    cluster.until("the Node of the deleted server to be deleted", is_gone).await?;
    Ok(())
}

async fn without_balancer(cluster: &ServiceWorld) -> Outcome {
    let is_so = |view: &ServiceView| {
        // Another Service may have one, or only a person deletes it.
        let is_left =
            |balancer: &&HcloudLoadBalancer| view.owner(balancer).is_none() && !view.is_orphan(balancer);
        match (view.service("web"), view.cloud.load_balancers.values().find(is_left)) {
            (None, None) => Ok(()),
            (service, left) => Err(format!(
                "the Service exists: {}, a load balancer is left: {}",
                service.is_some(),
                left.is_some()
            )),
        }
    };
    cluster.until("the Service and its load balancer to be deleted", is_so).await?;
    Ok(())
}
