//! The network of containers, which the driver creates if it does not exist.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::engine::call::Call;
use crate::engine::failure::Failure;
use crate::label::Labels;
use crate::{IpFamily, label};

/// Networks that every engine has. They are never created.
const BUILT_IN: &[&str] = &["bridge", "host", "none", "default"];

/// Number of times that a refused creation waits for the network of another creation.
const LOOKS_AFTER_OVERLAP: u32 = 4;
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
    match engine.call(Call::create("/networks/create", body(name, family, subnet))).await {
        Ok(_) => {}
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

/// The name of the running container that has an address of the network.
pub(crate) async fn holder(engine: &Engine, name: &str, address: IpAddr) -> Result<Option<String>, Failure> {
    let found: Option<Members> = engine.find(Call::get("/networks/-", name)).await?;
    let members = found.and_then(|network| network.containers).unwrap_or_default();
    let mut members = members.into_values();
    Ok(members.find(|member| member.has(address)).map(|member| member.name))
}

/// Whether a subnet of the network has the address. An engine that shows no subnet does not know.
pub(crate) async fn covers(engine: &Engine, name: &str, address: IpAddr) -> Result<bool, Failure> {
    let found: Option<Subnets> = engine.find(Call::get("/networks/-", name)).await?;
    let subnets = found.and_then(|network| network.ipam?.config).unwrap_or_default();
    Ok(subnets.is_empty() || subnets.iter().any(|subnet| subnet.has(address)))
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
    config: Option<Vec<Subnet>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Subnet {
    /// For example `172.18.0.0/16`.
    #[serde(default)]
    subnet: String,
}

impl Subnet {
    fn has(&self, address: IpAddr) -> bool {
        let Some((start, bits)) = self.subnet.split_once('/') else { return false };
        let (Ok(start), Ok(bits)) = (start.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
        let same =
            |a: u128, b: u128, length: u32| bits <= length && (bits == 0 || (a ^ b) >> (length - bits) == 0);
        match (start, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
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
        shown.any(|shown| shown.split('/').next().and_then(|it| it.parse().ok()) == Some(address))
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

fn body(name: &str, family: IpFamily, subnet: Option<&str>) -> Value {
    let mut body = json!({
        "Name": name,
        // Without this, an old engine creates two networks of one name.
        "CheckDuplicate": true,
        "Driver": "bridge",
        "EnableIPv6": family.has_ipv6(),
        "Options": {"com.docker.network.bridge.enable_ip_masquerade": "true"},
        "Labels": {label::CREATED_BY: label::US},
    });
    let mut subnets: Vec<Value> = subnet.map(|subnet| json!({ "Subnet": subnet })).into_iter().collect();
    if family.has_ipv6() {
        subnets.push(json!({ "Subnet": private_ipv6_subnet(name) }));
    }
    if !subnets.is_empty() {
        body["IPAM"] = json!({ "Driver": "default", "Config": subnets });
    }
    body
}

/// A private IPv6 subnet that depends only on the name of the network, because old engines choose
/// none.
fn private_ipv6_subnet(name: &str) -> String {
    // FNV-1a: the same number in every process and release.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, d, e, f, g, _] = hash.to_be_bytes();
    format!("fd{a:02x}:{b:02x}{c:02x}:{d:02x}{e:02x}:{f:02x}{g:02x}::/64")
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
    fn a_subnet_has_its_addresses() {
        for (subnet, address, expected) in [
            ("172.18.0.0/16", "172.18.9.9", true),
            ("172.18.0.0/16", "172.19.0.1", false),
            ("172.18.0.0/16", "fd00::1", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("10.0.0.4/32", "10.0.0.5", false),
            ("fd00::/64", "fd00::2", true),
            ("::/0", "fd00::2", true),
            ("10.0.0.0/99", "10.0.0.1", false),
            ("", "10.0.0.1", false),
        ] {
            let network = Subnet { subnet: subnet.to_owned() };
            assert_eq!(network.has(address.parse().expect("an address")), expected, "{subnet} {address}");
        }
    }

    #[test]
    fn a_subnet_is_requested_only_if_needed() {
        assert_eq!(body("kind", IpFamily::Ipv4, None).get("IPAM"), None);
        let with_subnet = body("kind", IpFamily::Ipv4, Some("172.20.0.0/16"));
        assert_eq!(with_subnet["IPAM"]["Config"], json!([{"Subnet": "172.20.0.0/16"}]));
        let dual = body("kind", IpFamily::Dual, None);
        assert_eq!(dual["EnableIPv6"], true);
        let subnet = dual["IPAM"]["Config"][0]["Subnet"].as_str().unwrap_or_default().to_owned();
        assert!(subnet.starts_with("fd") && subnet.ends_with("::/64"), "{subnet}");
        assert_ne!(private_ipv6_subnet("a"), private_ipv6_subnet("b"));
    }
}
