//! The wanted state of one balancer. Pure.

use std::collections::{BTreeMap, BTreeSet};

use machinist_instance::{
    BalancerKey, BalancerNote, BalancerSpec, BalancerTarget, Error, NameClaim, RecordedId, TransportProtocol,
};

use super::service::WantedService;
use super::settings::{PREFIX, Settings};
use crate::model::{LoadBalancer, TargetKind};
use crate::options::BalancerDefaults;
use crate::{go_syntax, id};

/// The type of a new balancer if no option names one.
pub(crate) const DEFAULT_TYPE: &str = "lb11";

/// The wanted state of one balancer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) key: BalancerKey,
    /// The id of the balancer, if the caller knows it.
    pub(crate) id: Option<i64>,
    pub(crate) name: String,
    /// The name of a new balancer, which depends on the key only. If the answer to a creation is
    /// lost, the next creation has the same name, even if a user has changed the wanted name
    /// meanwhile. The cloud accepts a name once, so no second balancer is created.
    pub(crate) first_name: String,
    pub(crate) claim: NameClaim,
    /// Whether an existing balancer keeps the name that it has.
    pub(crate) keeps_name: bool,
    pub(crate) settings: Settings,
    /// The network to which the balancer is attached. `None` leaves the networks unchanged.
    pub(crate) network: Option<i64>,
    pub(crate) services: Vec<WantedService>,
    pub(crate) targets: Vec<WantedTarget>,
    /// Whether all targets with an IP address stay: the cluster has servers of Hetzner Robot, or
    /// may have some that the caller does not know yet. The driver cannot assign their addresses,
    /// so it could not add these targets again.
    pub(crate) keeps_ip_targets: bool,
    pub(crate) notes: Vec<BalancerNote>,
}

/// A server behind the balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WantedTarget {
    pub(crate) server: i64,
    /// The name of the Node, for messages.
    pub(crate) node: String,
}

impl Wanted {
    /// The wanted state of a spec, whose options were parsed before. The certificates are ids.
    ///
    /// # Errors
    /// `InvalidSpec` if an option needs the network and the account has none.
    pub(crate) fn new(
        spec: &BalancerSpec,
        settings: Settings,
        network: Option<i64>,
        certificates: Option<&[i64]>,
    ) -> Result<Self, Error> {
        let needs_network =
            [(settings.use_private_ip, "use-private-ip"), (settings.private_ipv4.is_some(), "private-ipv4")];
        if let (None, Some((_, name))) = (network, needs_network.iter().find(|(is_set, _)| *is_set)) {
            let text = format!("{PREFIX}{name}: expected a network in HCLOUD_NETWORK");
            return Err(Error::by_driver(text));
        }
        let mut notes = notes_about(&settings);
        let services = services(spec, &settings, certificates, &mut notes);
        let targets = targets(&spec.targets, &mut notes);
        notes.extend(spec.claim.held_by.as_ref().map(|holder| BalancerNote {
            reason: BalancerNote::NAME_TAKEN,
            message: format!("the load balancer keeps its name, because {holder} has the wanted one"),
        }));
        Ok(Self {
            key: spec.key.clone(),
            id: known_id(spec),
            name: settings.name.clone().unwrap_or_else(|| spec.name.clone()),
            first_name: spec.name.clone(),
            claim: spec.claim.clone(),
            keeps_name: spec.claim.held_by.is_some(),
            settings,
            network,
            services,
            targets,
            keeps_ip_targets: spec.targets.iter().any(|target| id::is_robot(&target.instance)),
            notes,
        })
    }
}

impl Wanted {
    /// The wanted state of a balancer whose targets follow the Nodes while an option is invalid:
    /// all settings stay as the balancer shows them.
    pub(crate) fn following(
        spec: &BalancerSpec,
        defaults: &BalancerDefaults,
        shown: &LoadBalancer,
    ) -> Result<Self, Error> {
        let mut settings = Settings::parse(&BTreeMap::new(), &BalancerDefaults::default(), &spec.key)?;
        let network = shown.private_net.first().map(|net| net.network);
        let servers = || shown.targets.iter().filter(|target| target.kind == TargetKind::Server);
        let option = spec.options.get("use-private-ip").and_then(|text| go_syntax::boolean(text.trim()));
        let private = servers().filter(|target| target.use_private_ip).count();
        let is_private = match servers().count() {
            // A balancer that was detached has no target with a private address.
            0 => option.unwrap_or(defaults.use_private_ip),
            all => all < 2 * private,
        };
        settings.use_private_ip = is_private && network.is_some();
        Ok(Self {
            key: spec.key.clone(),
            id: Some(shown.id),
            name: shown.name.clone(),
            first_name: spec.name.clone(),
            claim: spec.claim.clone(),
            keeps_name: true,
            settings,
            network,
            services: Vec::new(),
            targets: targets(&spec.targets, &mut Vec::new()),
            keeps_ip_targets: spec.targets.iter().any(|target| id::is_robot(&target.instance)),
            notes: Vec::new(),
        })
    }
}

/// The id that the caller knows. A text that is not an id is ignored.
fn known_id(spec: &BalancerSpec) -> Option<i64> {
    spec.id.as_ref()?.parse().ok()
}

fn notes_about(settings: &Settings) -> Vec<BalancerNote> {
    let unknown = settings.unknown.iter().map(|name| BalancerNote {
        reason: "UnknownAnnotation",
        message: format!("annotation {PREFIX}{name} is unknown and has no effect"),
    });
    unknown.collect()
}

/// The services of all TCP listeners. The cloud has no other transport protocol.
fn services(
    spec: &BalancerSpec,
    settings: &Settings,
    certificates: Option<&[i64]>,
    notes: &mut Vec<BalancerNote>,
) -> Vec<WantedService> {
    let mut services = Vec::new();
    for listener in &spec.listeners {
        match listener.protocol {
            TransportProtocol::Tcp => services.push(WantedService::new(listener, settings, certificates)),
            TransportProtocol::Udp | TransportProtocol::Sctp => notes.push(BalancerNote {
                reason: "UnsupportedProtocolConfigured",
                message: format!(
                    "port {} is skipped: load balancers of this cloud support TCP, not {}",
                    listener.port, listener.protocol
                ),
            }),
        }
    }
    services
}

/// The servers of all targets, each once and in the order of their ids.
fn targets(targets: &[BalancerTarget], notes: &mut Vec<BalancerNote>) -> Vec<WantedTarget> {
    let mut wanted = BTreeSet::new();
    let (mut foreign, mut malformed) = (Vec::new(), Vec::new());
    // The cloud has no weights, so a draining target leaves the balancer.
    let in_service = targets.iter().filter(|target| target.weight != BalancerTarget::DRAINING_WEIGHT);
    for target in in_service {
        match id::parse(target.instance.as_str()) {
            RecordedId::Ours(id) => {
                let server = id::server(&id).expect("the id was just parsed");
                wanted.insert(WantedTarget { server, node: target.node.clone() });
            }
            RecordedId::NotOurs { .. } | RecordedId::Unset => foreign.push(target.node.as_str()),
            RecordedId::Malformed { expected } => {
                malformed.push(BalancerNote {
                    reason: "MalformedProviderID",
                    message: format!(
                        "Node {} is skipped: provider id {} has another form than {expected}",
                        target.node, target.instance
                    ),
                });
            }
        }
    }
    notes.extend(note_about_foreign(&foreign).into_iter().chain(malformed));
    let mut targets: Vec<WantedTarget> = wanted.into_iter().collect();
    targets.dedup_by_key(|target| target.server);
    targets
}

/// One note about all Nodes of other clouds: a mixed cluster may have hundreds.
fn note_about_foreign(nodes: &[&str]) -> Option<BalancerNote> {
    let named = nodes.get(..MAX_NAMED).unwrap_or(nodes).join(", ");
    let more = match nodes.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!nodes.is_empty()).then(|| BalancerNote {
        reason: "UnknownProviderIDPrefix",
        message: format!("Nodes of other clouds are not added to the load balancer: {named}{more}"),
    })
}

/// Number of Nodes that a note names.
const MAX_NAMED: usize = 5;

#[cfg(test)]
pub(crate) mod tests {
    use machinist_instance::{Listener, ProviderId};

    use super::*;

    pub(crate) fn spec(targets: &[&str], options: &[(&str, &str)]) -> BalancerSpec {
        let listener = |protocol, port| Listener { protocol, port, target_port: 30000 + port };
        let target = |id: &&str| BalancerTarget {
            node: format!("node of {id}"),
            instance: ProviderId::parse(id).expect("not empty"),
            weight: BalancerTarget::FULL_WEIGHT,
        };
        BalancerSpec {
            key: BalancerKey::new("uid-1"),
            claim: Default::default(),
            id: None,
            native_id: None,
            name: "a1".to_owned(),
            listeners: vec![
                listener(TransportProtocol::Tcp, 80),
                listener(TransportProtocol::Udp, 53),
                listener(TransportProtocol::Sctp, 54),
            ],
            targets: targets.iter().map(target).collect(),
            options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    pub(crate) fn wanted(spec: &BalancerSpec, network: Option<i64>) -> Result<Wanted, Error> {
        let settings = Settings::parse(&spec.options, &BalancerDefaults::default(), &spec.key)?;
        Wanted::new(spec, settings, network, None)
    }

    fn reasons(wanted: &Wanted) -> Vec<&'static str> {
        wanted.notes.iter().map(|note| note.reason).collect()
    }

    #[test]
    fn unusable_ports_and_targets_become_notes() {
        let ids = ["hcloud://7", "hcloud://3", "aws:///z/i-1", "hcloud://x", "hcloud://7"];
        let wanted = wanted(&spec(&ids, &[("type", "lb11")]), None).expect("valid");
        assert_eq!(wanted.services.iter().map(|service| service.listen_port).collect::<Vec<_>>(), [80]);
        assert_eq!(wanted.targets.iter().map(|target| target.server).collect::<Vec<_>>(), [3, 7]);
        let expected = [
            "UnsupportedProtocolConfigured",
            "UnsupportedProtocolConfigured",
            "UnknownProviderIDPrefix",
            "MalformedProviderID",
        ];
        assert_eq!(reasons(&wanted), expected);
        assert!(!wanted.keeps_ip_targets);
    }

    #[test]
    fn robot_targets_are_skipped_and_remembered() {
        let wanted = wanted(&spec(&["hrobot://1"], &[("type", "lb11")]), None).expect("valid");
        assert!(wanted.targets.is_empty() && wanted.keeps_ip_targets);
    }

    #[test]
    fn many_nodes_of_other_clouds_are_one_note() {
        let ids: Vec<String> = (1..=7).map(|number| format!("hrobot://{number}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let wanted = wanted(&spec(&ids, &[("type", "lb11")]), None).expect("valid");
        let notes: Vec<_> =
            wanted.notes.iter().filter(|note| note.reason == "UnknownProviderIDPrefix").collect();
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.message.ends_with("node of hrobot://5 and 2 more"), "{}", note.message);
    }

    #[test]
    fn the_name_is_the_annotation_or_that_of_the_spec() {
        assert_eq!(wanted(&spec(&[], &[]), None).expect("valid").name, "a1");
        assert_eq!(wanted(&spec(&[], &[("name", "edge")]), None).expect("valid").name, "edge");
    }

    #[test]
    fn options_of_the_network_need_a_network() {
        for option in [("use-private-ip", "true"), ("private-ipv4", "10.0.0.9")] {
            let spec = spec(&[], &[option]);
            let error = wanted(&spec, None).expect_err(option.0);
            assert!(error.message.contains(option.0) && error.message.contains("HCLOUD_NETWORK"), "{error}");
            assert!(wanted(&spec, Some(1)).is_ok());
        }
    }

    #[test]
    fn unknown_annotations_are_noted_and_defaults_are_not() {
        let wanted = wanted(&spec(&[], &[("nmae", "x")]), None).expect("valid");
        let reasons = reasons(&wanted);
        assert_eq!(
            reasons.iter().filter(|reason| reason.contains("LoadBalancerType")).count(),
            0,
            "{reasons:?}"
        );
        assert_eq!(reasons[0], "UnknownAnnotation");
    }
}
