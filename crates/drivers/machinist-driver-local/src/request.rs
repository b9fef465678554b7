//! Builds the objects of an instance and the changes of them. Pure functions.
//!
//! The specs of pod and Service equal the specs of Gardener's provider, so that it can take over
//! again: it applies its own spec, and most fields of a pod cannot be changed.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, ExecAction, HostPathVolumeSource,
    ObjectFieldSelector, Pod, PodSpec, Probe, Secret, SecretVolumeSource, SecurityContext, Service,
    ServicePort, ServiceSpec, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use machinist_instance::{Error, ErrorKind, InstanceKey, InstanceSpec};
use machinist_kube::GuardedPatch;

use crate::label::{self, CLUSTER, KEY, Map};
use crate::name;
use crate::spec::{self, ProviderSpec};

/// The entry of the Secret with the user data. The image of the machine reads it as a file.
const USER_DATA: &str = "userdata";
/// The field manager of all writes.
const FIELD_MANAGER: &str = "machinist";

/// Annotations with the address pools of Calico.
const IPV4_POOLS: &str = "cni.projectcalico.org/ipv4pools";
const IPV6_POOLS: &str = "cni.projectcalico.org/ipv6pools";

/// The check whether the kubelet inside of the pod has registered its Node.
const IS_NODE_REGISTERED: &str =
    "/usr/bin/kubectl --kubeconfig /var/lib/kubelet/kubeconfig-real get no $NODE_NAME";

/// Everything that is needed to create an instance.
pub(crate) struct Creation {
    pub(crate) key: InstanceKey,
    pub(crate) cluster: String,
    /// The name of the Machine.
    pub(crate) machine: String,
    class: ProviderSpec,
    tags: Map,
    user_data: Vec<u8>,
}

impl Creation {
    /// Checks everything that needs no API server.
    ///
    /// # Errors
    /// `InvalidSpec`, with the field, the expected and the found value.
    pub(crate) fn of(spec: &InstanceSpec, namespace: &str, default: &str) -> Result<Self, Error> {
        let class = ProviderSpec::parse(&spec.provider_spec)?;
        let of_class = class.namespace.as_deref().unwrap_or(default);
        if of_class != namespace {
            return Err(spec::of_another_namespace(namespace, of_class));
        }
        label::check_value("the key of the instance", spec.key.as_str())?;
        label::check_value("--cluster-name", &spec.cluster)?;
        Ok(Self {
            key: spec.key.clone(),
            cluster: spec.cluster.clone(),
            machine: checked_name(spec.name.as_str())?,
            class,
            tags: spec.tags.clone(),
            user_data: spec.user_data.expose().to_vec(),
        })
    }

    /// The name of the pod and of the Service.
    pub(crate) fn pod_name(&self) -> String {
        name::of_machine(&self.machine)
    }

    /// The labels of each object.
    fn labels(&self) -> Map {
        let ours = [(KEY, self.key.as_str()), (CLUSTER, &self.cluster)];
        let ours = ours.map(|(name, value)| (name.to_owned(), value.to_owned()));
        label::of_machine(&self.machine).into_iter().chain(ours).collect()
    }

    pub(crate) fn pod(&self) -> Pod {
        let pools = [(IPV4_POOLS, &self.class.ip_pool_v4), (IPV6_POOLS, &self.class.ip_pool_v6)];
        let pools = pools.into_iter().filter_map(|(name, pool)| Some((name, pool.as_deref()?)));
        let pools = pools.map(|(name, pool)| (name.to_owned(), serde_json::json!([pool]).to_string()));
        let annotations: Map = self.tags.clone().into_iter().chain(pools).collect();
        Pod {
            metadata: ObjectMeta {
                name: Some(self.pod_name()),
                labels: Some(self.labels()),
                annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                containers: vec![self.container()],
                // A machine uses the name servers of its host, not the name servers of the
                // cluster's pods.
                dns_policy: Some("Default".to_owned()),
                volumes: Some(volumes(&self.pod_name())),
                ..PodSpec::default()
            }),
            status: None,
        }
    }

    fn container(&self) -> Container {
        Container {
            name: "node".to_owned(),
            image: Some(self.class.image.clone()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            security_context: Some(SecurityContext { privileged: Some(true), ..SecurityContext::default() }),
            env: Some(vec![EnvVar {
                name: "NODE_NAME".to_owned(),
                value_from: Some(EnvVarSource {
                    field_ref: Some(ObjectFieldSelector {
                        field_path: "metadata.name".to_owned(),
                        ..ObjectFieldSelector::default()
                    }),
                    ..EnvVarSource::default()
                }),
                ..EnvVar::default()
            }]),
            volume_mounts: Some(mounts()),
            readiness_probe: Some(Probe {
                exec: Some(ExecAction {
                    command: Some(["sh", "-c", IS_NODE_REGISTERED].map(str::to_owned).into()),
                }),
                ..Probe::default()
            }),
            ports: Some(vec![ContainerPort {
                name: Some("vpn-shoot".to_owned()),
                container_port: 30123,
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            }]),
            ..Container::default()
        }
    }

    /// The headless Service with the name of the Node.
    pub(crate) fn service(&self, pod: &Pod) -> Service {
        Service {
            metadata: self.owned(self.pod_name(), pod),
            spec: Some(ServiceSpec {
                type_: Some("ClusterIP".to_owned()),
                cluster_ip: Some("None".to_owned()),
                selector: Some(label::of_machine(&self.machine)),
                publish_not_ready_addresses: Some(true),
                ports: Some(vec![ServicePort {
                    name: Some("ssh".to_owned()),
                    port: 22,
                    protocol: Some("TCP".to_owned()),
                    app_protocol: Some("ssh".to_owned()),
                    ..ServicePort::default()
                }]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }

    /// The Secret with the user data.
    pub(crate) fn secret(&self, pod: &Pod) -> Secret {
        let data = BTreeMap::from([(USER_DATA.to_owned(), ByteString(self.user_data.clone()))]);
        let metadata = self.owned(name::secret_of(&self.pod_name()), pod);
        Secret { metadata, type_: Some("Opaque".to_owned()), data: Some(data), ..Secret::default() }
    }

    /// Metadata of an object that the garbage collector deletes with the pod.
    fn owned(&self, name: String, pod: &Pod) -> ObjectMeta {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        ObjectMeta {
            name: Some(name),
            labels: Some(self.labels()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        }
    }

    /// Marks a pod that another program created as ours, if it still has no marks of ours.
    pub(crate) fn adoption(&self, pod: &Pod) -> GuardedPatch {
        let (labels, annotations) = (pod.metadata.labels.as_ref(), pod.metadata.annotations.as_ref());
        let patch = GuardedPatch::new(pod.metadata.uid.as_deref().unwrap_or_default())
            .set_label(labels, KEY, self.key.as_str())
            .set_label(labels, CLUSTER, &self.cluster);
        self.tags.iter().fold(patch, |patch, (name, value)| patch.set_annotation(annotations, name, value))
    }
}

/// Changes the key of an object, if it still has the labels that were read.
pub(crate) fn rekey(metadata: &ObjectMeta, to: &InstanceKey) -> GuardedPatch {
    let uid = metadata.uid.as_deref().unwrap_or_default();
    GuardedPatch::new(uid).set_label(metadata.labels.as_ref(), KEY, to.as_str())
}

/// Deletes exactly the object that was read. The comparison of its key counts only for that state,
/// so any change since then prevents the deletion.
pub(crate) fn deletion(metadata: &ObjectMeta) -> DeleteParams {
    let preconditions =
        Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Parameters of each POST.
pub(crate) fn creation() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// The Service is called like the pod, and Services have short names.
fn checked_name(machine: &str) -> Result<String, Error> {
    if name::is_label(machine) && machine.len() <= name::MAX_MACHINE_LEN {
        return Ok(machine.to_owned());
    }
    let text = format!(
        "metadata.name of the Machine: expected at most {} lower-case letters, digits and hyphens, because its \
         Service is called machine-NAME, got {machine:?}",
        name::MAX_MACHINE_LEN
    );
    Err(Error::new(ErrorKind::InvalidSpec, text))
}

fn mounts() -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: (name == "modules").then_some(true),
        ..VolumeMount::default()
    };
    vec![
        mount("userdata", "/etc/machine"),
        mount("containerd", "/var/lib/containerd"),
        mount("run", "/run"),
        mount("docker-socket", "/var/run/docker.sock"),
        mount("modules", "/lib/modules"),
    ]
}

fn volumes(pod: &str) -> Vec<Volume> {
    let volume = |name: &str| Volume { name: name.to_owned(), ..Volume::default() };
    let host = |path: &str, kind: Option<&str>| {
        Some(HostPathVolumeSource { path: path.to_owned(), type_: kind.map(str::to_owned) })
    };
    let empty = |medium: Option<&str>| {
        Some(EmptyDirVolumeSource { medium: medium.map(str::to_owned), ..EmptyDirVolumeSource::default() })
    };
    let secret = SecretVolumeSource {
        secret_name: Some(name::secret_of(pod)),
        // The machine executes the file.
        default_mode: Some(0o777),
        ..SecretVolumeSource::default()
    };
    vec![
        Volume { secret: Some(secret), ..volume("userdata") },
        Volume { empty_dir: empty(None), ..volume("containerd") },
        Volume { empty_dir: empty(Some("Memory")), ..volume("run") },
        Volume { host_path: host("/var/run/docker.sock", Some("Socket")), ..volume("docker-socket") },
        Volume { host_path: host("/lib/modules", None), ..volume("modules") },
    ]
}

#[cfg(test)]
mod tests {
    use machinist_instance::{NodeName, UserData};
    use serde_json::{Value, json};

    use super::*;

    fn spec(machine: &str, class: Value) -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey::new("uid-1"),
            name: NodeName::new(machine).expect("not empty"),
            cluster: "default".to_owned(),
            provider_spec: class,
            user_data: UserData::new(*b"#!/bin/sh"),
            tags: BTreeMap::from([("machinist.dev/namespace-uid".to_owned(), "n-1".to_owned())]),
            annotations: BTreeMap::new(),
            adopt_made_since: None,
            last_known_state: None,
        }
    }

    fn creation(class: Value) -> Creation {
        Creation::of(&spec("w-1", class), "pods", "pods").expect("valid")
    }

    fn made() -> Pod {
        let mut pod = creation(json!({"image": "i"})).pod();
        pod.metadata.uid = Some("pod-uid".to_owned());
        pod
    }

    #[test]
    fn the_pod_equals_that_of_go() {
        let pod = creation(json!({"image": "i", "ipPoolNameV4": "four", "ipPoolNameV6": "six"})).pod();
        let pod = serde_json::to_value(&pod).expect("JSON");
        assert_eq!(pod["metadata"]["name"], "machine-w-1");
        let labels = json!({
            "app": "machine", "machine": "w-1", "machine-provider": "local",
            "machinist.dev/key": "uid-1", "machinist.dev/cluster": "default",
        });
        assert_eq!(pod["metadata"]["labels"], labels);
        let annotations = json!({
            "cni.projectcalico.org/ipv4pools": "[\"four\"]", "cni.projectcalico.org/ipv6pools": "[\"six\"]",
            "machinist.dev/namespace-uid": "n-1",
        });
        assert_eq!(pod["metadata"]["annotations"], annotations);
        let spec = &pod["spec"];
        assert_eq!((&spec["dnsPolicy"], &spec["restartPolicy"]), (&json!("Default"), &Value::Null));
        let container = &spec["containers"][0];
        assert_eq!((&container["name"], &container["image"]), (&json!("node"), &json!("i")));
        assert_eq!(container["securityContext"], json!({"privileged": true}));
        assert_eq!(
            container["ports"],
            json!([{"containerPort": 30123, "name": "vpn-shoot", "protocol": "TCP"}])
        );
        let mounts = container["volumeMounts"].as_array().expect("a list").iter();
        let mounts: Vec<_> = mounts.map(|mount| mount["mountPath"].as_str().expect("text")).collect();
        let expected =
            ["/etc/machine", "/var/lib/containerd", "/run", "/var/run/docker.sock", "/lib/modules"];
        assert_eq!(mounts, expected);
        assert_eq!(
            spec["volumes"],
            json!([
                {"name": "userdata", "secret": {"secretName": "machine-w-1-userdata", "defaultMode": 511}},
                {"name": "containerd", "emptyDir": {}},
                {"name": "run", "emptyDir": {"medium": "Memory"}},
                {"name": "docker-socket", "hostPath": {"path": "/var/run/docker.sock", "type": "Socket"}},
                {"name": "modules", "hostPath": {"path": "/lib/modules"}},
            ])
        );
    }

    #[test]
    fn the_pod_owns_service_and_secret() {
        let creation = creation(json!({"image": "i"}));
        let (service, secret) = (creation.service(&made()), creation.secret(&made()));
        assert_eq!(service.metadata.name.as_deref(), Some("machine-w-1"));
        assert_eq!(secret.metadata.name.as_deref(), Some("machine-w-1-userdata"));
        for metadata in [&service.metadata, &secret.metadata] {
            let owners = metadata.owner_references.as_ref().expect("an owner");
            assert_eq!((owners[0].uid.as_str(), owners[0].controller), ("pod-uid", Some(true)));
            assert_eq!(metadata.labels.as_ref().expect("labels")[KEY], "uid-1");
        }
        let spec = service.spec.expect("a spec");
        assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
        assert_eq!(
            spec.selector,
            Some(label::of_machine("w-1")),
            "Go's labels only, so that Go can apply it"
        );
        assert_eq!(secret.data.expect("data")[USER_DATA].0, b"#!/bin/sh");
    }

    #[test]
    fn everything_is_checked_before_a_request() {
        let refusal = |machine: &str, class: Value, namespace: &str| {
            let error = Creation::of(&spec(machine, class), namespace, "pods").err().expect("wrong");
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            error.message
        };
        let image = || json!({"image": "i"});
        assert!(refusal("w-1", json!({}), "pods").starts_with("providerSpec.image: expected"));
        let other = refusal("w-1", image(), "elsewhere");
        assert!(other.starts_with("providerSpec.namespace: expected \"elsewhere\""), "{other}");
        for name in ["a.b", &"n".repeat(56)] {
            let message = refusal(name, image(), "pods");
            assert!(message.starts_with("metadata.name of the Machine: expected at most 55"), "{message}");
        }
        assert!(Creation::of(&spec(&"n".repeat(55), image()), "pods", "pods").is_ok());
        let cluster = InstanceSpec { cluster: "a b".to_owned(), ..spec("w-1", image()) };
        let error = Creation::of(&cluster, "pods", "pods").err().expect("wrong");
        assert!(error.message.starts_with("--cluster-name: expected"), "{error}");
    }
}
