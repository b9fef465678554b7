//! Facts of a Service.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use fnv::FnvHasher;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServicePort, ServiceSpec};
use machinist_instance::{BalancerKey, TransportProtocol};

use super::balancer_record::BalancerRecord;
use crate::ccm::names;
use crate::facts::Version;

/// Planner facts of a Service.
#[derive(Debug, Clone)]
pub struct ServiceFacts {
    /// Version of the object.
    pub version: Version,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// UID, which is the key of the balancer.
    pub uid: String,
    /// Creation timestamp, truncated to seconds.
    pub created: Timestamp,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// All finalizers, raw, in order; absent if there are none.
    pub finalizers: Option<Vec<String>>,
    /// Whether the Service has the finalizer [`names::BALANCER_FINALIZER`]. The finalizer is the
    /// intent; without it no balancer is created.
    pub has_finalizer: bool,
    /// Whether `spec.type` is LoadBalancer.
    pub is_load_balancer: bool,
    /// `spec.loadBalancerClass`, unless empty.
    pub class: Option<String>,
    /// The ports, in order.
    pub ports: Vec<ServicePortFacts>,
    /// Annotations, without the annotations of Kubernetes itself and the two below. They contain
    /// the options of the balancer.
    pub annotations: BTreeMap<String, String>,
    /// Whether the Service has any annotation. Guards distinguish an absent map from an empty one.
    pub has_annotations: bool,
    /// The annotation [`names::EARLIER_CALLS_SINCE`], raw.
    pub earlier_calls_since: Option<String>,
    /// Fingerprint of the fields of the spec that a balancer may depend on, beyond ports and
    /// annotations.
    pub spec_fingerprint: u64,
    /// The annotation [`names::BALANCER_RECORD`], raw.
    pub balancer_record: Option<String>,
    /// `status.loadBalancer.ingress`, raw. Guards distinguish absent from empty.
    pub ingress: Option<Vec<LoadBalancerIngress>>,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServicePortFacts {
    /// Name of the port; empty if the Service has only one.
    pub name: String,
    /// Protocol; absent if this program does not know it.
    pub protocol: Option<TransportProtocol>,
    /// Port of the Service, from 1 to 65535.
    pub port: u16,
    /// Port of the Nodes; absent if none is allocated.
    pub node_port: Option<u16>,
}

impl ServiceFacts {
    /// Reads a Service.
    pub fn parse(service: &Service) -> Self {
        let metadata = &service.metadata;
        let spec = service.spec.clone().unwrap_or_default();
        let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let annotations = metadata.annotations.iter().flatten();
        let is_ours = |key: &str| [names::EARLIER_CALLS_SINCE, names::BALANCER_RECORD].contains(&key);
        let annotations = annotations.filter(|(key, _)| !names::is_of_kubernetes(key) && !is_ours(key));
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        let finalizers = metadata.finalizers.clone();
        Self {
            version: Version::of(metadata),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            has_finalizer: finalizers.iter().flatten().any(|name| name == names::BALANCER_FINALIZER),
            finalizers,
            is_load_balancer: spec.type_.as_deref() == Some("LoadBalancer"),
            class: spec.load_balancer_class.clone().filter(|class| !class.is_empty()),
            ports: spec.ports.iter().flatten().filter_map(ServicePortFacts::of).collect(),
            annotations: annotations.map(|(key, value)| (key.clone(), value.clone())).collect(),
            has_annotations: metadata.annotations.is_some(),
            earlier_calls_since: annotation(names::EARLIER_CALLS_SINCE),
            balancer_record: annotation(names::BALANCER_RECORD),
            spec_fingerprint: fingerprint(&spec),
            ingress: balancer.and_then(|balancer| balancer.ingress.clone()),
        }
    }

    /// The key of the Service's balancer.
    pub fn key(&self) -> BalancerKey {
        BalancerKey::new(self.uid.clone())
    }

    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The load balancer that the Service records.
    pub fn recorded_balancer(&self) -> Option<BalancerRecord<'_>> {
        BalancerRecord::parse(self.balancer_record.as_deref()?, &self.uid)
    }

    /// Since when no process creates the balancer, as the first process recorded that had to wait
    /// for the calls of earlier ones. A time before the deletion belongs to an earlier state of the
    /// Service.
    pub fn no_creation_since(&self) -> Option<Timestamp> {
        let recorded: Timestamp = self.earlier_calls_since.as_ref()?.parse().ok()?;
        Some(self.deleting_since.map_or(recorded, |deleting| recorded.max(deleting)))
    }

    /// The entries of `status.loadBalancer.ingress`.
    pub fn ingress(&self) -> &[LoadBalancerIngress] {
        self.ingress.as_deref().unwrap_or_default()
    }
}

impl ServicePortFacts {
    /// Reads a port. A number outside of 1 to 65535 never passes the validation of an API server.
    fn of(port: &ServicePort) -> Option<Self> {
        let protocol = match port.protocol.as_deref() {
            None | Some("" | "TCP") => Some(TransportProtocol::Tcp),
            Some("UDP") => Some(TransportProtocol::Udp),
            Some("SCTP") => Some(TransportProtocol::Sctp),
            Some(_) => None,
        };
        let number = |port: i32| u16::try_from(port).ok().filter(|port| 0 < *port);
        Some(Self {
            name: port.name.clone().unwrap_or_default(),
            protocol,
            port: number(port.port)?,
            node_port: port.node_port.and_then(number),
        })
    }
}

/// Returns the fingerprint of the fields whose change leads to another `ensure`: fields of the
/// spec that Kubernetes' own controller compares.
fn fingerprint(spec: &ServiceSpec) -> u64 {
    let mut hash = FnvHasher::default();
    (&spec.type_, &spec.load_balancer_class, &spec.load_balancer_source_ranges).hash(&mut hash);
    for port in spec.ports.iter().flatten() {
        let target = port.target_port.as_ref().map(|target| format!("{target:?}"));
        (&port.name, &port.protocol, port.port, port.node_port, target, &port.app_protocol).hash(&mut hash);
    }
    spec.ports.as_ref().map(Vec::len).hash(&mut hash);
    let affinity = spec.session_affinity_config.as_ref();
    let timeout = affinity.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    (&spec.session_affinity, affinity.is_some(), timeout, &spec.load_balancer_ip).hash(&mut hash);
    (&spec.external_ips, &spec.external_traffic_policy, spec.health_check_node_port).hash(&mut hash);
    spec.ip_families.as_ref().map_or(0, Vec::len).hash(&mut hash);
    hash.finish()
}
