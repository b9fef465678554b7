//! The user data of the control plane container. Pure.
//!
//! A container has one life: the driver runs the user data once, at the first start. The address of
//! the control plane is the name of its container, which stays the same if the engine restarts it
//! with another IP address.

use machinist_apiserver::CertificateAuthority;
use machinist_instance::UserData;
use serde_json::json;

use super::identity::API_SERVER_PORT;

/// Pod network of the cluster.
const POD_NETWORK: &str = "10.244.0.0/16";
/// Configuration of kubeadm. The driver adds what a container needs to a file of this name.
const CONFIGURATION: &str = "/run/kubeadm/kubeadm.yaml";
/// Word in the configuration, until the container replaces it by the version of its kubeadm.
/// Without a version, kubeadm asks the Internet for the newest one.
const VERSION: &str = "KUBERNETES_VERSION";

/// Waits until kubeadm could begin. containerd answers before it can create containers, and then a
/// preflight check fails. The ignored checks fail in every container.
const WAIT: &str = r#"for attempt in $(seq 10); do
    kubeadm init phase preflight --config /run/kubeadm/kubeadm.yaml \
        --ignore-preflight-errors=SystemVerification,Swap,FileContent--proc-sys-net-bridge-bridge-nf-call-iptables \
        >/dev/null 2>&1 && break
    sleep 1
done
"#;

/// Installs what an image of kind has besides kubeadm: its pod network, kube-proxy and CoreDNS.
/// Other images bring a pod network of their own, or none.
const ADD_ONS: &str = r#"export KUBECONFIG=/etc/kubernetes/admin.conf
if [ -f /kind/manifests/default-cni.yaml ]; then
    sed "s@{{ *.PodSubnet *}}@POD_NETWORK@" /kind/manifests/default-cni.yaml | kubectl apply -f - || exit 1
    kubeadm init phase addon all --config /run/kubeadm/kubeadm.yaml || exit 1
fi
if [ -f /kind/manifests/default-storage.yaml ]; then
    kubectl apply -f /kind/manifests/default-storage.yaml || exit 1
fi
"#;

/// Returns the cloud-config of the control plane container with this name.
pub(super) fn of_control_plane(name: &str, authority: &CertificateAuthority) -> UserData {
    let file = |path: &str, permissions: &str, content: &str| json!({"path": path, "permissions": permissions, "owner": "root:root", "content": content});
    let config = json!({
        "write_files": [
            file("/etc/kubernetes/pki/ca.crt", "0644", authority.certificate_pem()),
            file("/etc/kubernetes/pki/ca.key", "0600", authority.key_pem()),
            file(CONFIGURATION, "0640", &configuration(name)),
        ],
        "runcmd": [
            format!("sed -i \"s/{VERSION}/$(kubeadm version -o short)/\" {CONFIGURATION}"),
            WAIT.to_owned(),
            format!("kubeadm init --config {CONFIGURATION}"),
            ADD_ONS.replace("POD_NETWORK", POD_NETWORK),
        ],
    });
    UserData::new(format!("#cloud-config\n{config:#}\n"))
}

/// The configuration of kubeadm. Images are in the node image, so none is pulled. etcd does not
/// sync: a cluster in containers is for trials, and its disk is shared.
fn configuration(name: &str) -> String {
    format!(
        r#"apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  imagePullPolicy: Never
  kubeletExtraArgs:
  - name: provider-id
    value: docker:////{name}
skipPhases:
- addon/coredns
- addon/kube-proxy
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: {name}
kubernetesVersion: {VERSION}
controlPlaneEndpoint: {name}:{API_SERVER_PORT}
apiServer:
  certSANs:
  - localhost
  - 127.0.0.1
  - "::1"
etcd:
  local:
    extraArgs:
    - name: unsafe-no-fsync
      value: "true"
networking:
  podSubnet: {POD_NETWORK}
"#
    )
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_control_plane_gets_its_ca_and_a_stable_address() {
        let authority = CertificateAuthority::generate(Timestamp::UNIX_EPOCH).expect("a CA");
        let data = of_control_plane("machinist-1-control-plane", &authority);
        let text = String::from_utf8(data.expose().to_vec()).expect("text");
        let (first, rest) = text.split_once('\n').expect("two lines");
        assert_eq!(first, "#cloud-config");
        let config: Value = serde_json::from_str(rest).expect("JSON");
        assert_eq!(config["write_files"][0]["content"], authority.certificate_pem());
        assert_eq!(config["write_files"][1]["permissions"], "0600");
        let kubeadm = config["write_files"][2]["content"].as_str().expect("text");
        for part in [
            "controlPlaneEndpoint: machinist-1-control-plane:6443",
            "value: docker:////machinist-1-control-plane",
            "imagePullPolicy: Never",
        ] {
            assert!(kubeadm.contains(part), "expected {part:?} in {kubeadm}");
        }
        assert_eq!(config["runcmd"][2], "kubeadm init --config /run/kubeadm/kubeadm.yaml");
    }
}
