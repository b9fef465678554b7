//! Facts of the kinds of Cluster API: Cluster and Machine, and the kinds of our providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinist_api::capi::{
    Cluster, CoreVersion, DockerCluster, DockerClusterSpec, DockerClusterStatus, DockerMachine,
    DockerMachineSpec, DockerMachineStatus, Endpoint, FailureDomain, MailStatus, MailgunCluster,
    MailgunMachine, OnUncertain, Reference, constants,
};
use machinist_instance::InstanceKey;

use crate::facts::{EARLIER_CALLS_SINCE, RawVersion, Version, recorded_wait};

/// Default repository and tag of the image of a load balancer, as upstream.
const BALANCER_REPOSITORY: &str = "kindest";
const BALANCER_TAG: &str = "v20230606-42a2262b";

/// Longest Message-Id that contains namespace and name. A longer one is shortened.
pub(crate) const MAX_MESSAGE_ID_LEN: usize = 200;

/// Facts that the objects of all kinds have.
#[derive(Debug, Clone)]
pub struct ObjectFacts {
    /// Version of the object.
    pub version: Version,
    /// The resourceVersion for the guard of a status write, which has several writers.
    pub resource_version: RawVersion,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Creation timestamp, truncated to seconds.
    pub created: Timestamp,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// All finalizers, raw, in order; absent if there are none.
    pub finalizers: Option<Vec<String>>,
    /// Annotations, raw. Guards distinguish absent from empty.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Names of the owners in the group of the core kinds, by kind.
    owners: Vec<(String, String)>,
}

impl ObjectFacts {
    fn parse(metadata: &ObjectMeta) -> Self {
        let owners = metadata.owner_references.iter().flatten();
        // The version of an owner may differ from the served one, so only the group counts.
        let owners = owners.filter(|owner| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            group == Some(machinist_api::capi::CORE_GROUP)
        });
        Self {
            version: Version::of(metadata),
            resource_version: RawVersion::of(metadata),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            finalizers: metadata.finalizers.clone(),
            annotations: metadata.annotations.clone(),
            labels: metadata.labels.clone().unwrap_or_default(),
            owners: owners.map(|owner| (owner.kind.clone(), owner.name.clone())).collect(),
        }
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether the object has a finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().flatten().any(|finalizer| finalizer == name)
    }

    /// Returns the name of the first owner of that core kind.
    pub fn owner(&self, kind: &str) -> Option<&str> {
        self.owners.iter().find(|(owner, _)| owner == kind).map(|(_, name)| name.as_str())
    }

    /// Returns the name of the Cluster in the label, unless empty.
    pub fn cluster_label(&self) -> Option<&str> {
        self.labels.get(constants::CLUSTER_NAME_LABEL).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether the object itself is paused.
    pub fn is_paused(&self) -> bool {
        self.annotation(constants::PAUSED_ANNOTATION).is_some()
    }

    /// Returns the unique part of the recorded key. A key that was copied from another object does
    /// not count: the annotation also contains namespace and name of its object.
    pub fn recorded_key(&self) -> Option<&str> {
        self.own_annotation(constants::KEY_ANNOTATION)
    }

    /// Returns the recorded id of the container. Like the key, an id that was copied from another
    /// object does not count: it would give the copy the container of the original.
    pub fn recorded_container(&self) -> Option<&str> {
        self.own_annotation(constants::CONTAINER_ID_ANNOTATION)
    }

    /// Since when no process creates anything for the object, as the first process recorded that
    /// had to wait for the calls of earlier ones.
    pub fn no_creation_since(&self) -> Option<Timestamp> {
        recorded_wait(self.own_annotation(EARLIER_CALLS_SINCE)?, self.deleting_since)
    }

    /// Returns the last part of an annotation that begins with namespace and name of this object.
    fn own_annotation(&self, key: &str) -> Option<&str> {
        let (object, last) = self.annotation(key)?.rsplit_once('/')?;
        let is_own = object == format!("{}/{}", self.namespace, self.name);
        Some(last).filter(|last| is_own && !last.is_empty())
    }

    /// Returns the key to record for an object without one.
    pub fn new_key(&self) -> String {
        self.bound(&self.uid)
    }

    /// Returns the value of an annotation that counts only on this object, also after a move.
    pub fn bound(&self, value: &str) -> String {
        format!("{}/{}/{value}", self.namespace, self.name)
    }

    /// Returns the key of the instance or load balancer of this object.
    pub fn key(&self) -> InstanceKey {
        InstanceKey::new(self.recorded_key().unwrap_or(&self.uid))
    }
}

/// Planner facts of a Cluster.
#[derive(Debug, Clone)]
pub struct ClusterFacts {
    /// Name, version, labels and the like.
    pub object: ObjectFacts,
    /// Whether the objects of the Cluster are paused.
    pub is_paused: bool,
    /// Reference to the infrastructure; absent if it names nothing.
    pub infrastructure: Option<Reference>,
    /// Whether the Cluster has a control plane object.
    pub has_control_plane: bool,
    /// Whether the infrastructure is complete.
    pub infrastructure_provisioned: bool,
    /// Whether the control plane serves its API.
    pub control_plane_initialized: bool,
    /// Since when the control plane serves its API, if it is known.
    pub control_plane_initialized_at: Option<Timestamp>,
    /// Whether the address of the API servers is known.
    pub has_endpoint: bool,
}

impl ClusterFacts {
    /// Reads a Cluster.
    pub fn parse<V: CoreVersion>(cluster: &Cluster<V>) -> Self {
        let spec = &cluster.spec;
        Self {
            object: ObjectFacts::parse(&cluster.metadata),
            is_paused: spec.paused.unwrap_or_default(),
            infrastructure: spec.infrastructure_ref.clone().filter(Reference::is_defined),
            has_control_plane: spec.control_plane_ref.as_ref().is_some_and(Reference::is_defined),
            infrastructure_provisioned: cluster.status.infrastructure_provisioned(),
            control_plane_initialized: cluster.status.control_plane_initialized(),
            control_plane_initialized_at: cluster.status.control_plane_initialized_at(),
            has_endpoint: spec.control_plane_endpoint.as_ref().is_some_and(Endpoint::is_valid),
        }
    }
}

/// Planner facts of a Machine of Cluster API.
#[derive(Debug, Clone)]
pub struct CoreMachineFacts {
    /// Name, version, labels and the like.
    pub object: ObjectFacts,
    /// `spec.clusterName`, unless empty.
    pub cluster: Option<String>,
    /// `spec.version`, unless empty.
    pub kubernetes: Option<String>,
    /// Name of the Secret with the bootstrap data.
    pub bootstrap_secret: Option<String>,
    /// Reference to the infrastructure.
    pub infrastructure: Option<Reference>,
    /// `spec.failureDomain`, unless empty.
    pub failure_domain: Option<String>,
    /// Name of the Node, once it is known.
    pub node: Option<String>,
    /// Whether the Machine belongs to the control plane.
    pub is_control_plane: bool,
}

impl CoreMachineFacts {
    /// Reads a Machine.
    pub fn parse<V: CoreVersion>(machine: &machinist_api::capi::Machine<V>) -> Self {
        let (spec, object) = (&machine.spec, ObjectFacts::parse(&machine.metadata));
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Self {
            cluster: set(&spec.cluster_name),
            kubernetes: set(&spec.version),
            bootstrap_secret: spec.bootstrap.as_ref().and_then(|bootstrap| set(&bootstrap.data_secret_name)),
            infrastructure: spec.infrastructure_ref.clone().filter(Reference::is_defined),
            failure_domain: set(&spec.failure_domain),
            node: machine.status.node_ref.as_ref().and_then(|node| set(&node.name)),
            is_control_plane: object.labels.contains_key(constants::CONTROL_PLANE_LABEL),
            object,
        }
    }
}

/// Planner facts of a DockerCluster.
#[derive(Debug, Clone)]
pub struct DockerClusterFacts {
    /// Name, version, labels and the like.
    pub object: ObjectFacts,
    /// The spec as it was read.
    pub spec: DockerClusterSpec,
    /// The status as it was read; absent if there is none.
    pub status: Option<DockerClusterStatus>,
    /// The failure domains of the spec, sorted by name.
    pub failure_domains: Vec<FailureDomain>,
}

impl DockerClusterFacts {
    /// Reads a DockerCluster.
    pub fn parse(cluster: &DockerCluster) -> Self {
        Self {
            object: ObjectFacts::parse(&cluster.metadata),
            failure_domains: FailureDomain::list(cluster.spec.failure_domains.as_ref()),
            spec: cluster.spec.clone(),
            status: cluster.status.clone(),
        }
    }

    /// Returns the options of the load balancer for the driver.
    pub fn balancer_options(&self, cluster: &str) -> BTreeMap<String, String> {
        let mut options = BTreeMap::from([("cluster".to_owned(), cluster.to_owned())]);
        let balancer = self.spec.load_balancer.clone().unwrap_or_default();
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (repository, tag) = (set(&balancer.image_repository), set(&balancer.image_tag));
        let image = match (repository, tag) {
            (None, None) => set(&self.spec.loadbalancer_image),
            (repository, tag) => Some(format!(
                "{}/haproxy:{}",
                repository.as_deref().unwrap_or(BALANCER_REPOSITORY),
                tag.as_deref().unwrap_or(BALANCER_TAG)
            )),
        };
        options.extend(image.map(|image| ("image".to_owned(), image)));
        // A load balancer that is created again gets its address and its port back: they are in
        // certificates and kubeconfigs.
        let endpoint = self.spec.control_plane_endpoint.clone().unwrap_or_default();
        if endpoint.host.parse::<std::net::IpAddr>().is_ok() {
            options.insert("ip".to_owned(), endpoint.host.clone());
        }
        let shown = self.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        if let (Some(port), Some(host_port)) =
            (endpoint.port(), shown.and_then(|balancer| balancer.host_port))
        {
            options.insert(format!("host-port.{port}"), host_port.to_string());
        }
        options
    }

    /// Returns the name of the ConfigMap with a template of the configuration of the load balancer.
    pub fn balancer_template(&self) -> Option<&str> {
        let reference = self.spec.load_balancer.as_ref()?.custom_haproxy_config_template_ref.as_ref()?;
        reference.name.as_deref().filter(|name| !name.is_empty())
    }

    /// Whether another program manages the infrastructure.
    pub fn is_managed_externally(&self) -> bool {
        self.object.annotation(constants::MANAGED_BY_ANNOTATION).is_some()
    }

    /// Whether the load balancer has the machine with that name, according to the status.
    pub fn balances(&self, machine: &str) -> bool {
        let balancer = self.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        balancer.is_some_and(|balancer| balancer.backends.iter().any(|backend| backend == machine))
    }
}

/// Planner facts of a DockerMachine.
#[derive(Debug, Clone)]
pub struct DockerMachineFacts {
    /// Name, version, labels and the like.
    pub object: ObjectFacts,
    /// The spec as it was read.
    pub spec: DockerMachineSpec,
    /// The status as it was read; absent if there is none.
    pub status: Option<DockerMachineStatus>,
}

impl DockerMachineFacts {
    /// Reads a DockerMachine.
    pub fn parse(machine: &DockerMachine) -> Self {
        Self {
            object: ObjectFacts::parse(&machine.metadata),
            spec: machine.spec.clone(),
            status: machine.status.clone(),
        }
    }

    /// Returns the recorded provider id, unless empty.
    pub fn provider_id(&self) -> Option<&str> {
        self.spec.provider_id.as_deref().filter(|id| !id.is_empty())
    }
}

/// The facts of a request by mail, for a cluster or a machine.
#[derive(Debug, Clone)]
pub struct MailRequestFacts {
    /// Name, version, labels and the like.
    pub object: ObjectFacts,
    /// Priority of the request.
    pub priority: String,
    /// Text of the request.
    pub request: String,
    /// Mail address of the person who asks.
    pub requester: String,
    /// Mail addresses of the recipients; empty for the recipient of the process.
    pub recipients: Vec<String>,
    /// Recorded Message-Id, raw. Guards distinguish absent from empty.
    pub message_id: Option<String>,
    /// Handling of a mail whose outcome is unknown.
    pub on_uncertain: OnUncertain,
    /// The status as it was read; absent if there is none.
    pub status: Option<MailStatus>,
}

impl MailRequestFacts {
    /// Returns the recorded Message-Id, unless empty.
    pub fn recorded_id(&self) -> Option<&str> {
        self.message_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns when the mail was sent, as recorded on this object. The value of an earlier version,
    /// or of a user, does not name its object: it counts if the Message-Id names this object.
    pub fn sent_at(&self) -> Option<&str> {
        let text = self.object.annotation(constants::SENT_AT_ANNOTATION)?;
        let unbound = || Some(text).filter(|text| !text.contains('/') && self.has_own_id());
        self.bound_text(constants::SENT_AT_ANNOTATION).or_else(unbound)
    }

    /// Returns the text of the intent and whether it names this object. Without the name, it counts
    /// as the intent of this object if the Message-Id names this object.
    pub(crate) fn intent(&self) -> Option<(&str, bool)> {
        let own = self.bound_text(constants::SEND_INTENT_ANNOTATION).map(|own| (own, true));
        own.or_else(|| Some((self.object.annotation(constants::SEND_INTENT_ANNOTATION)?, self.has_own_id())))
    }

    /// Whether the Message-Id belongs to another object, so that this object is a copy.
    pub fn is_copy(&self) -> bool {
        let marks = [constants::SENT_AT_ANNOTATION, constants::SEND_INTENT_ANNOTATION];
        let has_own_mark = marks.iter().any(|mark| self.bound_text(mark).is_some());
        self.recorded_id().is_some() && !has_own_mark && !self.has_own_id()
    }

    /// Returns the text of an annotation that begins with namespace and name of this object.
    fn bound_text(&self, key: &str) -> Option<&str> {
        self.object.annotation(key)?.strip_prefix(&self.object.bound(""))
    }

    /// Whether the Message-Id contains namespace and name of this object. A shortened one does not
    /// contain them, and counts if it would be too long with them.
    fn has_own_id(&self) -> bool {
        let Some(id) = self.recorded_id() else { return false };
        let after_kind = id.strip_prefix("machinist.").and_then(|rest| rest.split_once('.'));
        let Some((_, rest)) = after_kind else { return false };
        let object = &self.object;
        let names = format!("{}.{}.", object.namespace, object.name);
        // The UID belongs to the object before a move. No UID has a dot, but a name may.
        let after_uid = |rest: &str| {
            let purpose = rest.split_once('.').map(|(_, rest)| rest.split('@').next().unwrap_or(rest));
            purpose.is_some_and(|purpose| !purpose.is_empty() && !purpose.contains('.'))
        };
        match rest.strip_prefix(&names) {
            Some(rest) => after_uid(rest),
            None => MAX_MESSAGE_ID_LEN < id.len() + names.len() && after_uid(rest),
        }
    }
}

/// Planner facts of a MailgunCluster.
#[derive(Debug, Clone)]
pub struct MailgunClusterFacts {
    /// The request.
    pub mail: Arc<MailRequestFacts>,
    /// Whether the cluster counts as provided once the mail is sent.
    pub assumes_fulfilment: bool,
    /// Whether the address of the API servers is known.
    pub has_endpoint: bool,
}

impl MailgunClusterFacts {
    /// Reads a MailgunCluster.
    pub fn parse(cluster: &MailgunCluster) -> Self {
        let spec = &cluster.spec;
        let mail = MailRequestFacts {
            object: ObjectFacts::parse(&cluster.metadata),
            priority: spec.priority.clone(),
            request: spec.request.clone(),
            requester: spec.requester.clone(),
            recipients: spec.recipients.clone(),
            message_id: spec.message_id.clone(),
            on_uncertain: spec.on_uncertain.clone().unwrap_or(OnUncertain::Verify),
            status: cluster.status.clone(),
        };
        Self {
            mail: Arc::new(mail),
            assumes_fulfilment: spec.fulfilment.as_deref() == Some("Assume"),
            has_endpoint: spec.control_plane_endpoint.as_ref().is_some_and(Endpoint::is_valid),
        }
    }
}

/// Planner facts of a MailgunMachine.
#[derive(Debug, Clone)]
pub struct MailgunMachineFacts {
    /// The request.
    pub mail: Arc<MailRequestFacts>,
    /// Whether a person has filled in the provider id.
    pub has_provider_id: bool,
}

impl MailgunMachineFacts {
    /// Reads a MailgunMachine.
    pub fn parse(machine: &MailgunMachine) -> Self {
        let spec = &machine.spec;
        let mail = MailRequestFacts {
            object: ObjectFacts::parse(&machine.metadata),
            priority: spec.priority.clone(),
            request: spec.request.clone(),
            requester: spec.requester.clone(),
            recipients: spec.recipients.clone(),
            message_id: spec.message_id.clone(),
            on_uncertain: spec.on_uncertain.clone().unwrap_or(OnUncertain::Verify),
            status: machine.status.clone(),
        };
        Self {
            mail: Arc::new(mail),
            has_provider_id: spec.provider_id.as_ref().is_some_and(|id| !id.is_empty()),
        }
    }
}

/// Implements `Hash` by the version of the object, as for the other facts.
macro_rules! hash_by_object {
    ($($facts:ty: $($path:ident).+;)*) => {
        $(impl std::hash::Hash for $facts {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                std::hash::Hash::hash(&self.$($path).+.version, state);
            }
        })*
    };
}

hash_by_object! {
    ClusterFacts: object;
    CoreMachineFacts: object;
    DockerClusterFacts: object;
    DockerMachineFacts: object;
    MailRequestFacts: object;
    MailgunClusterFacts: mail.object;
    MailgunMachineFacts: mail.object;
}
