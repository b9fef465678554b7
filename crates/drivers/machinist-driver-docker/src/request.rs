//! Builds the engine's requests for containers. Pure.

use std::collections::BTreeMap;

use machinist_instance::{Error, InstanceSpec, NodeName};
use serde_json::{Map, Value, json};

use crate::engine::call::Call;
use crate::label::{self, Labels};
use crate::options::{DockerOptions, Privileges};
use crate::spec::invalid;
use crate::spec::{ImageMode, IpFamily, Mount, ProviderSpec, Role};

/// Everything that a container with systemd, containerd and a kubelet needs, except
/// `SYS_RESOURCE`, which some hosts cannot give away.
const CAPABILITIES: &[&str] = &[
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// The port of the API server in a container of the control plane.
pub(crate) const API_SERVER: &str = "6443/tcp";

/// Signal with which systemd shuts down.
const STOP_SYSTEMD: &str = "SIGRTMIN+3";

const NANOSECONDS: f64 = 1e9;

pub(crate) fn inspect(name_or_id: &str) -> Call {
    Call::get("/containers/-/json", name_or_id)
}

/// Lists containers in any state that have all labels. An empty value matches every value.
pub(crate) fn list(labels: &[(&str, &str)]) -> Call {
    let filters: Vec<String> = labels
        .iter()
        .map(|(name, value)| if value.is_empty() { (*name).to_owned() } else { format!("{name}={value}") })
        .collect();
    let call = Call::list("/containers/json").with("all", "true");
    if filters.is_empty() { call } else { call.with("filters", &json!({ "label": filters }).to_string()) }
}

/// Starts a container. Starting a running one succeeds.
pub(crate) fn start(id: &str) -> Call {
    Call::act("/containers/-/start", id)
}

/// Removes a container with its anonymous volumes. Only an id is safe here: a name may belong to
/// another container by now.
pub(crate) fn remove(id: &str) -> Call {
    Call::delete("/containers/-", id).with("force", "true").with("v", "true")
}

/// Removes a container unless it runs.
pub(crate) fn remove_unless_running(id: &str) -> Call {
    Call::delete("/containers/-", id).with("v", "true")
}

/// Creates a container of that name.
pub(crate) fn create(name: &str, body: Value) -> Call {
    Call::create("/containers/create", body).with("name", name)
}

/// The network of an instance.
pub(crate) fn network<'a>(spec: &'a ProviderSpec, options: &'a DockerOptions) -> &'a str {
    spec.network.as_deref().unwrap_or(&options.network)
}

/// How much of the host an instance may use.
pub(crate) fn privileges(spec: &ProviderSpec, options: &DockerOptions) -> Privileges {
    spec.privileges.unwrap_or(options.privileges)
}

/// The version of the host's control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cgroups {
    V1,
    V2,
}

/// The body of the request that creates an instance. It has no user data, because every process
/// that may use the engine can read it.
///
/// # Errors
/// `InvalidSpec` if a mount or the privileges are not permitted.
pub(crate) fn container(
    spec: &InstanceSpec,
    provider_spec: &ProviderSpec,
    options: &DockerOptions,
    cgroups: Cgroups,
) -> Result<Value, Error> {
    check_mounts(&provider_spec.extra_mounts, options)?;
    if options.privileges < privileges(provider_spec, options) {
        let expected = format!("{} or less, as this controller is configured", options.privileges);
        return Err(invalid("providerSpec.privileges", &expected));
    }
    let network = network(provider_spec, options);
    let mut body = json!({
        "Hostname": spec.name.as_str(),
        "Image": provider_spec.image,
        // The console of systemd. Its end explains why a container does not run.
        "Tty": true,
        "Labels": labels(spec, provider_spec),
        "Env": environment(provider_spec),
        "Volumes": {"/var": {}},
        "StopSignal": STOP_SYSTEMD,
        "HostConfig": host_config(provider_spec, options, network, cgroups),
        "NetworkingConfig": {"EndpointsConfig": {network: {}}},
    });
    if provider_spec.role == Role::ControlPlane {
        body["ExposedPorts"] = json!({API_SERVER: {}});
    }
    Ok(body)
}

fn host_config(spec: &ProviderSpec, options: &DockerOptions, network: &str, cgroups: Cgroups) -> Value {
    let mut config = Map::new();
    let mut set = |name: &str, value: Value| {
        config.insert(name.to_owned(), value);
    };
    set("NetworkMode", json!(network));
    set("Init", json!(false));
    set("Tmpfs", json!({"/tmp": "", "/run": ""}));
    // The engine does not restart it after `docker stop`, because a user wants that stop.
    set("RestartPolicy", json!({"Name": "unless-stopped"}));
    let mut binds: Vec<String> = spec.extra_mounts.iter().map(bind).collect();
    match privileges(spec, options) {
        Privileges::Full => {
            set("Privileged", json!(true));
            set("SecurityOpt", json!(["seccomp=unconfined", "apparmor=unconfined"]));
            set("CgroupnsMode", json!("private"));
            binds.push("/lib/modules:/lib/modules:ro".to_owned());
        }
        Privileges::Capabilities => {
            set("CapAdd", json!(CAPABILITIES));
            // The kubelet writes sysctls, so no path of the system is masked.
            set("SecurityOpt", json!(["seccomp=unconfined", "apparmor=unconfined"]));
            set("MaskedPaths", json!([]));
            set("ReadonlyPaths", json!([]));
            set("CgroupnsMode", json!("private"));
            set("Devices", json!([device("/dev/kmsg")]));
            binds.push("/lib/modules:/lib/modules:ro".to_owned());
            match cgroups {
                Cgroups::V1 => binds.push("/sys/fs/cgroup:/sys/fs/cgroup:rw".to_owned()),
                // The folder of the host would be the root of all containers.
                Cgroups::V2 => {}
            }
        }
        Privileges::None => {}
    }
    set("Binds", json!(binds));
    let resources = spec.resources;
    if let Some(cpus) = resources.cpus {
        set("NanoCpus", json!((cpus * NANOSECONDS) as i64));
    }
    if let Some(memory) = resources.memory {
        set("Memory", json!(memory));
    }
    // The network of the host has the settings of the host.
    if network != "host" {
        set("Sysctls", json!(sysctls(spec.ip_family)));
    }
    if spec.role == Role::ControlPlane {
        let port = spec.api_server_port.map(|port| port.to_string()).unwrap_or_default();
        set("PortBindings", json!({API_SERVER: [{"HostIp": loopback(spec.ip_family), "HostPort": port}]}));
    }
    Value::Object(config)
}

/// Kernel settings of the container's network. A node forwards the packets of its pods, and kubeadm
/// checks that. Without the setting, a container has the value of the host at boot.
fn sysctls(family: IpFamily) -> BTreeMap<&'static str, &'static str> {
    let mut sysctls = BTreeMap::from([("net.ipv4.ip_forward", "1")]);
    if family.has_ipv6() {
        sysctls.extend([("net.ipv6.conf.all.disable_ipv6", "0"), ("net.ipv6.conf.all.forwarding", "1")]);
    }
    sysctls
}

fn loopback(family: IpFamily) -> &'static str {
    match family {
        IpFamily::Ipv4 | IpFamily::Dual => "127.0.0.1",
        IpFamily::Ipv6 => "::1",
    }
}

fn device(path: &str) -> Value {
    json!({"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"})
}

fn bind(mount: &Mount) -> String {
    let mode = if mount.read_only { "ro" } else { "rw" };
    format!("{}:{}:{mode}", mount.host_path, mount.container_path)
}

/// Checks that every mount is below a permitted folder.
fn check_mounts(mounts: &[Mount], options: &DockerOptions) -> Result<(), Error> {
    let permitted = &options.mounts_below;
    for (index, mount) in mounts.iter().enumerate() {
        let is_below = |folder: &String| {
            let folder = folder.trim_end_matches('/');
            mount.host_path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if !permitted.is_empty() && !permitted.iter().any(is_below) {
            let expected = format!("a path below {}", permitted.join(" or "));
            return Err(invalid(&format!("providerSpec.extraMounts[{index}].hostPath"), &expected));
        }
        if mount.host_path.contains(':') || mount.container_path.contains(':') {
            return Err(invalid(&format!("providerSpec.extraMounts[{index}]"), "paths without a colon"));
        }
    }
    Ok(())
}

/// The environment of the container. A proxy of this process is not passed on.
fn environment(spec: &ProviderSpec) -> Vec<String> {
    let mut env = BTreeMap::from([("container".to_owned(), "docker".to_owned())]);
    if spec.role == Role::ControlPlane {
        env.insert("KUBECONFIG".to_owned(), "/etc/kubernetes/admin.conf".to_owned());
    }
    env.extend(spec.env.clone());
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// The labels of an instance. The labels of this driver win over the user's.
fn labels(spec: &InstanceSpec, provider_spec: &ProviderSpec) -> Labels {
    let role = match provider_spec.role {
        Role::ControlPlane => "control-plane",
        Role::Worker => "worker",
    };
    let mode = match provider_spec.image_mode {
        ImageMode::Kind => "kind",
        ImageMode::Plain => "plain",
    };
    let cluster = provider_spec.cluster.as_ref().unwrap_or(&spec.cluster);
    let mut labels = provider_spec.labels.clone();
    labels.extend(spec.tags.clone());
    labels.extend(
        [
            (label::OWNER, spec.key.as_str()),
            (label::CLUSTER, spec.cluster.as_str()),
            (label::IMAGE_MODE, mode),
            (label::KIND_CLUSTER, cluster.as_str()),
            (label::KIND_ROLE, role),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    if let Some(domain) = &provider_spec.failure_domain {
        labels.insert(label::FAILURE_DOMAIN.to_owned(), domain.clone());
    }
    labels
}

/// The name under which the engine shows a container.
pub(crate) fn is_named(shown: &str, name: &NodeName) -> bool {
    shown.trim_start_matches('/') == name.as_str()
}

#[cfg(test)]
mod tests {
    use machinist_instance::{ErrorKind, InstanceKey, UserData};

    use super::*;

    fn spec(provider_spec: Value) -> (InstanceSpec, ProviderSpec) {
        let spec = InstanceSpec {
            key: InstanceKey::new("uid-1"),
            name: NodeName::new("c1-w-1").expect("not empty"),
            cluster: "default".to_owned(),
            provider_spec: provider_spec.clone(),
            user_data: UserData::new("token: canary"),
            tags: BTreeMap::from([
                ("team".to_owned(), "a".to_owned()),
                (label::OWNER.to_owned(), "forged".to_owned()),
            ]),
            annotations: BTreeMap::new(),
            adopt_made_since: None,
            last_known_state: None,
        };
        (spec, ProviderSpec::parse(&provider_spec).expect("valid"))
    }

    fn body(provider_spec: Value, options: &DockerOptions) -> Value {
        let (spec, provider_spec) = spec(provider_spec);
        container(&spec, &provider_spec, options, Cgroups::V1).expect("permitted")
    }

    #[test]
    fn a_worker_gets_its_labels_and_no_user_data() {
        let body =
            body(json!({"image": "i", "failureDomain": "fd1", "cluster": "c1"}), &DockerOptions::default());
        assert_eq!(
            body["Labels"],
            json!({
                "team": "a", "machinist.dev/owner-uid": "uid-1", "machinist.dev/cluster": "default",
                "machinist.dev/image-mode": "kind", "io.x-k8s.kind.cluster": "c1", "io.x-k8s.kind.role": "worker",
                "io.x-k8s.cluster.failureDomain": "fd1",
            })
        );
        assert_eq!(body["HostConfig"]["NetworkMode"], "kind");
        assert_eq!(body["HostConfig"]["Privileged"], true);
        assert_eq!(body["HostConfig"].get("PortBindings"), None);
        assert_eq!(body["HostConfig"]["Sysctls"], json!({"net.ipv4.ip_forward": "1"}));
        assert!(!body.to_string().contains("canary"));
    }

    #[test]
    fn a_control_plane_publishes_its_api_server() {
        let spec = json!({"image": "i", "role": "control-plane", "resources": {"cpus": 1.5}});
        let body = body(spec, &DockerOptions::default());
        let binding = json!([{"HostIp": "127.0.0.1", "HostPort": ""}]);
        assert_eq!(body["HostConfig"]["PortBindings"]["6443/tcp"], binding);
        assert_eq!(body["HostConfig"]["NanoCpus"], 1_500_000_000);
        assert_eq!(body["Env"], json!(["KUBECONFIG=/etc/kubernetes/admin.conf", "container=docker"]));
    }

    #[test]
    fn a_spec_may_ask_for_fewer_privileges_and_not_for_more() {
        let caps = body(json!({"image": "i", "privileges": "caps"}), &DockerOptions::default());
        assert_eq!(caps["HostConfig"].get("Privileged"), None);
        let binds = json!(["/lib/modules:/lib/modules:ro", "/sys/fs/cgroup:/sys/fs/cgroup:rw"]);
        assert_eq!(caps["HostConfig"]["Binds"], binds);
        assert!(
            caps["HostConfig"]["CapAdd"].as_array().is_some_and(|all| !all.contains(&json!("SYS_RESOURCE")))
        );
        let options = DockerOptions { privileges: Privileges::None, ..DockerOptions::default() };
        let none = body(json!({"image": "i"}), &options);
        assert_eq!((none["HostConfig"].get("CapAdd"), none["HostConfig"].get("SecurityOpt")), (None, None));
        let (spec, more) = spec(json!({"image": "i", "privileges": "caps"}));
        let error = container(&spec, &more, &options, Cgroups::V2).expect_err("more than permitted");
        assert!(error.message.starts_with("providerSpec.privileges: expected none or less"), "{error}");
    }

    #[test]
    fn mounts_are_limited_to_permitted_folders() {
        let options = DockerOptions { mounts_below: vec!["/srv/".to_owned()], ..DockerOptions::default() };
        let mounted = |path: &str| {
            let mount = json!([{"containerPath": "/c", "hostPath": path, "readOnly": true}]);
            let (spec, provider_spec) = spec(json!({"image": "i", "extraMounts": mount}));
            container(&spec, &provider_spec, &options, Cgroups::V2)
        };
        let body = mounted("/srv/data").expect("permitted");
        assert_eq!(body["HostConfig"]["Binds"][0], "/srv/data:/c:ro");
        assert!(mounted("/srv").is_ok());
        for path in ["/srv2", "/", "/var/run/docker.sock"] {
            let error = mounted(path).expect_err(path);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.contains("expected a path below /srv/"), "{error}");
        }
    }

    #[test]
    fn containers_are_listed_in_any_state() {
        let call = list(&[(label::OWNER, "uid-1")]);
        assert_eq!(
            call.path,
            "/containers/json?all=true&filters=%7B%22label%22%3A%5B%22machinist.dev%2Fowner-uid%3Duid-1%22%5D%7D"
        );
        assert_eq!(remove("4f53").path, "/containers/4f53?force=true&v=true");
        assert_eq!(remove_unless_running("4f53").path, "/containers/4f53?v=true");
    }
}
