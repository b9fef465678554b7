//! The network of containers, which the driver creates if it does not exist.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::ErrorKind;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::addresses::{Range, hash};
use crate::engine::Engine;
use crate::engine::call::Call;
use crate::engine::failure::Failure;
use crate::label;
use crate::label::Labels;
use crate::spec::IpFamily;

/// Networks that every engine has. They are never created.
const BUILT_IN: &[&str] = &["bridge", "host", "none", "default"];

/// The end of the name of a network that shows a free subnet. It exists for a moment.
const PROBE: &str = "-subnet";

/// Number of times that a refused creation waits for the network of another creation.
const LOOKS_AFTER_OVERLAP: u32 = 4;
/// Number of times that the engine chooses a subnet, if other networks take its choice.
const CHOICES_OF_A_SUBNET: u32 = 5;
/// Wait between two of these looks.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A network, as the engine shows it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Network {
    id: String,
    #[serde(default)]
    name: String,
    /// RFC 3339.
    #[serde(default)]
    created: String,
    #[serde(default)]
    labels: Option<Labels>,
}

/// Creates the network unless it exists. Another process may do this at the same time.
pub(crate) async fn ensure(
    engine: &Engine,
    name: &str,
    family: IpFamily,
    subnet: Option<&str>,
) -> Result<(), Failure> {
    if BUILT_IN.contains(&name) {
        return Ok(());
    }
    if exists(engine, name).await? {
        return Ok(());
    }
    let _creation = engine.network_creation.lock().await;
    if exists(engine, name).await? {
        return Ok(());
    }
    let mut choices = CHOICES_OF_A_SUBNET;
    let created = loop {
        let wanted = match subnet.and_then(Range::parse) {
            Some(subnet) => Some(subnet),
            None => free_subnet(engine, name).await?,
        };
        let mut created = create(engine, body(name, family, wanted, Addresses::Fixed)).await;
        if created.as_ref().is_err_and(is_invalid) {
            // The engine does not support ranges.
            created = create(engine, body(name, family, subnet.and(wanted), Addresses::Dynamic)).await;
        }
        choices -= 1;
        // Another network may have got the subnet since the engine chose it.
        let is_taken = subnet.is_none() && created.as_ref().is_err_and(is_overlap);
        if choices == 0 || !is_taken || appears(engine, name).await? {
            break created;
        }
    };
    match created {
        Ok(()) => {}
        Err(failure) if failure.is_conflict() => return Ok(()),
        // Another creation of the same subnet was faster.
        Err(failure) if is_overlap(&failure) && appears(engine, name).await? => return Ok(()),
        Err(failure) => return Err(failure),
    }
    let filters = json!({ "name": [name] }).to_string();
    let found: Vec<Network> = engine.json(Call::list("/networks").with("filters", &filters)).await?;
    for id in duplicates(found, name) {
        match engine.call(Call::delete("/networks/-", &id)).await {
            Ok(_) => {}
            // Another process has deleted the network, or a container uses it.
            Err(failure) if failure.is_answered() => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Which addresses the containers of a network have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Addresses {
    /// The engine deals out a part of each subnet; containers ask for the others.
    Fixed,
    /// The engine deals out every address.
    Dynamic,
}

async fn create(engine: &Engine, body: Value) -> Result<(), Failure> {
    engine.call(Call::create("/networks/create", body)).await.map(drop)
}

/// The name of the network that shows a free subnet for another network.
pub(crate) fn probe_of(name: &str) -> String {
    format!("{name}{PROBE}")
}

/// Whether the engine refuses the settings of the network, and not its name or its subnet.
fn is_invalid(failure: &Failure) -> bool {
    is_refused(failure) && !failure.is_conflict() && !is_overlap(failure)
}

/// Whether the engine will refuse the same request again.
fn is_refused(failure: &Failure) -> bool {
    failure.status.is_some_and(|status| status.is_client_error())
}

/// Returns a subnet that nothing on the host uses, as the engine chooses it: only a network with a
/// subnet of its own has fixed addresses. The engine shows its choice in a network that is deleted
/// again. `None` if the engine refuses that network; then the addresses are dynamic.
async fn free_subnet(engine: &Engine, name: &str) -> Result<Option<Range>, Failure> {
    let probe = probe_of(name);
    let mut body = body(&probe, IpFamily::Ipv4, None, Addresses::Dynamic);
    body["Labels"][label::SUBNET_PROBE] = json!("true");
    match create(engine, body).await {
        Ok(()) => {}
        // An earlier process may have ended before it deleted the network. A network of a user with
        // that name stays.
        Err(failure) if failure.is_conflict() => match is_probe(engine, &probe).await? {
            Some(true) => {}
            Some(false) => return Ok(None),
            None => return Err(another_chooses()),
        },
        Err(failure) if is_refused(&failure) => return Ok(None),
        Err(failure) => return Err(failure),
    }
    let chosen = subnets(engine, &probe).await?;
    if chosen.is_empty() && is_probe(engine, &probe).await?.is_none() {
        return Err(another_chooses());
    }
    match engine.call(Call::delete("/networks/-", &probe)).await {
        Ok(_) => {}
        Err(failure) if failure.is_absence() => {}
        Err(failure) => return Err(failure),
    }
    Ok(chosen.into_iter().map(|subnet| subnet.subnet).find(|subnet| subnet.start.is_ipv4()))
}

/// Whether this driver created the network of that name only to see a subnet. Absent if there is no
/// such network.
pub(crate) async fn is_probe(engine: &Engine, name: &str) -> Result<Option<bool>, Failure> {
    let found: Option<Network> = engine.find(Call::get("/networks/-", name)).await?;
    let is_ours = |network: Network| {
        network.labels.is_some_and(|labels| label::get(&labels, label::SUBNET_PROBE).is_some())
    };
    Ok(found.map(is_ours))
}

/// The error while another process chooses the subnet of the same network. The next try succeeds.
fn another_chooses() -> Failure {
    Failure::new(ErrorKind::Unavailable, "another process chooses the subnet of the network".to_owned())
}

/// The name of the running container that has an address of the network.
pub(crate) async fn holder(engine: &Engine, name: &str, address: IpAddr) -> Result<Option<String>, Failure> {
    let found: Option<Members> = engine.find(Call::get("/networks/-", name)).await?;
    let members = found.and_then(|network| network.containers).unwrap_or_default();
    let mut members = members.into_values();
    Ok(members.find(|member| member.has(address)).map(|member| member.name))
}

/// Whether a subnet of the network has the address. An engine that shows no subnet does not know.
pub(crate) async fn covers(engine: &Engine, name: &str, address: IpAddr) -> Result<bool, Failure> {
    let subnets = subnets(engine, name).await?;
    Ok(subnets.is_empty() || subnets.iter().any(|subnet| subnet.subnet.has(address)))
}

/// The subnets of a network; none if the engine shows none.
pub(crate) async fn subnets(engine: &Engine, name: &str) -> Result<Vec<Subnet>, Failure> {
    if BUILT_IN.contains(&name) {
        return Ok(Vec::new());
    }
    let found: Option<Subnets> = engine.find(Call::get("/networks/-", name)).await?;
    let shown = found.and_then(|network| network.ipam?.config).unwrap_or_default();
    Ok(shown.iter().filter_map(Subnet::parse).collect())
}

/// A subnet of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub(crate) subnet: Range,
    /// The part that the engine deals out; absent if it may deal out every address.
    pub(crate) ip_range: Option<Range>,
    pub(crate) gateway: Option<IpAddr>,
}

impl Subnet {
    fn parse(shown: &ShownSubnet) -> Option<Self> {
        let gateway = shown.gateway.split('/').next().and_then(|text| text.parse().ok());
        Some(Self { subnet: Range::parse(&shown.subnet)?, ip_range: Range::parse(&shown.ip_range), gateway })
    }
}

/// The subnets of a network, as the engine shows it.
#[derive(Debug, Deserialize)]
struct Subnets {
    #[serde(rename = "IPAM", default)]
    ipam: Option<Ipam>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Ipam {
    #[serde(default)]
    config: Option<Vec<ShownSubnet>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct ShownSubnet {
    /// For example `172.18.0.0/16`.
    subnet: String,
    #[serde(rename = "IPRange")]
    ip_range: String,
    gateway: String,
}

/// The running containers of a network, as the engine shows it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Members {
    #[serde(default)]
    containers: Option<BTreeMap<String, Member>>,
}

#[derive(Debug, Deserialize)]
struct Member {
    #[serde(rename = "Name", default)]
    name: String,
    /// With the length of the prefix, for example `172.18.0.2/16`.
    #[serde(rename = "IPv4Address", default)]
    ipv4_address: String,
    #[serde(rename = "IPv6Address", default)]
    ipv6_address: String,
}

impl Member {
    fn has(&self, address: IpAddr) -> bool {
        let mut shown = [&self.ipv4_address, &self.ipv6_address].into_iter();
        shown.any(|shown| shown.split('/').next().and_then(|ip| ip.parse().ok()) == Some(address))
    }
}

/// Whether another network has the subnet, or is about to get it.
fn is_overlap(failure: &Failure) -> bool {
    failure.is_answered() && failure.error.message.contains("overlaps with other one")
}

/// Whether the network exists, or appears soon. The engine reserves a subnet some time before it
/// shows the network.
async fn appears(engine: &Engine, name: &str) -> Result<bool, Failure> {
    for _ in 0..LOOKS_AFTER_OVERLAP {
        if exists(engine, name).await? {
            return Ok(true);
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
    exists(engine, name).await
}

async fn exists(engine: &Engine, name: &str) -> Result<bool, Failure> {
    let found: Option<IgnoredAny> = engine.find(Call::get("/networks/-", name)).await?;
    Ok(found.is_some())
}

/// The ids of the networks to delete: of several with that name, the oldest stays. All processes
/// choose the same one. Networks of other programs stay, too.
fn duplicates(found: Vec<Network>, name: &str) -> Vec<String> {
    // The engine also lists networks whose name contains the text.
    let mut named: Vec<Network> = found.into_iter().filter(|network| network.name == name).collect();
    let created = |network: &Network| network.created.parse::<Timestamp>().unwrap_or(Timestamp::MAX);
    named.sort_by_cached_key(|network| (created(network), network.id.clone()));
    let is_ours = |network: &Network| {
        let label = network.labels.as_ref().and_then(|labels| label::get(labels, label::CREATED_BY));
        label == Some(label::US)
    };
    named.into_iter().skip(1).filter(is_ours).map(|network| network.id).collect()
}

fn body(name: &str, family: IpFamily, subnet: Option<Range>, addresses: Addresses) -> Value {
    let mut body = json!({
        "Name": name,
        // Without this, an old engine creates two networks of one name.
        "CheckDuplicate": true,
        "Driver": "bridge",
        "EnableIPv6": family.has_ipv6(),
        "Options": {"com.docker.network.bridge.enable_ip_masquerade": "true"},
        "Labels": {label::CREATED_BY: label::US},
    });
    let ipv6 = family.has_ipv6().then(|| private_ipv6_subnet(name));
    let subnets = subnet.into_iter().chain(ipv6).map(|subnet| {
        let range = subnet.dealt_out().filter(|_| addresses == Addresses::Fixed);
        match range {
            Some(range) => json!({ "Subnet": subnet.to_string(), "IPRange": range.to_string() }),
            None => json!({ "Subnet": subnet.to_string() }),
        }
    });
    let subnets: Vec<Value> = subnets.collect();
    if !subnets.is_empty() {
        body["IPAM"] = json!({ "Driver": "default", "Config": subnets });
    }
    body
}

/// A private IPv6 subnet that depends only on the name of the network, because old engines choose
/// none.
fn private_ipv6_subnet(name: &str) -> Range {
    let [a, b, c, d, e, f, g, _] = hash(name).to_be_bytes();
    let start = Ipv6Addr::from([0xfd, a, b, c, d, e, f, g, 0, 0, 0, 0, 0, 0, 0, 0]);
    Range { start: start.into(), bits: 64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_several_networks_stays() {
        let network = |id: &str, name: &str, second: u32, is_ours: bool| -> Network {
            let labels = if is_ours { json!({label::CREATED_BY: label::US}) } else { Value::Null };
            let created = format!("2026-01-02T03:04:{second:02}.5Z");
            let network = json!({"Id": id, "Name": name, "Created": created, "Labels": labels});
            serde_json::from_value(network).expect("a network")
        };
        let found = vec![
            network("c", "kind", 9, true),
            network("b", "kind", 5, true),
            network("a", "kind", 7, true),
            network("d", "kind", 8, false),
            network("e", "kind-2", 9, true),
        ];
        assert_eq!(duplicates(found, "kind"), ["a", "c"]);
        assert_eq!(duplicates(vec![network("a", "kind", 5, true)], "kind"), [""; 0]);
    }

    #[test]
    fn the_holder_of_an_address_is_found() {
        let member = |ipv4: &str, ipv6: &str| -> Member {
            let member = json!({"Name": "c-w", "IPv4Address": ipv4, "IPv6Address": ipv6});
            serde_json::from_value(member).expect("a member")
        };
        let is = |member: Member, address: &str| member.has(address.parse().expect("an address"));
        assert!(is(member("172.18.0.2/16", ""), "172.18.0.2"));
        assert!(is(member("172.18.0.2/16", "fd00::2/64"), "fd00::2"));
        assert!(!is(member("172.18.0.21/16", ""), "172.18.0.2"));
        assert!(!is(member("", ""), "172.18.0.2"));
    }

    #[test]
    fn a_subnet_and_its_range_are_requested() {
        let subnet = Range::parse("172.20.0.0/16");
        let requested =
            |family, subnet, addresses| body("kind", family, subnet, addresses)["IPAM"]["Config"].clone();
        assert_eq!(body("kind", IpFamily::Ipv4, None, Addresses::Fixed).get("IPAM"), None);
        let range = json!([{"Subnet": "172.20.0.0/16", "IPRange": "172.20.0.0/17"}]);
        assert_eq!(requested(IpFamily::Ipv4, subnet, Addresses::Fixed), range);
        let dynamic = json!([{"Subnet": "172.20.0.0/16"}]);
        assert_eq!(requested(IpFamily::Ipv4, subnet, Addresses::Dynamic), dynamic);
        let dual = body("kind", IpFamily::Dual, None, Addresses::Fixed);
        assert_eq!(dual["EnableIPv6"], true);
        let shown = |field: &str| dual["IPAM"]["Config"][0][field].as_str().unwrap_or_default().to_owned();
        assert!(shown("Subnet").starts_with("fd") && shown("Subnet").ends_with("::/64"), "{dual}");
        assert!(shown("IPRange").ends_with("::/112"), "{dual}");
        assert_ne!(private_ipv6_subnet("a"), private_ipv6_subnet("b"));
    }
}
