//! Changes that kubeadm needs in a container: kubelet flags, connection tracking, and preflight
//! checks. Pure.
//!
//! Only the documents that change are written again, as JSON, which is valid YAML. The values of
//! users win over the defaults of this module.

use machinist_instance::Error;
use serde_json::{Map, Value, json};

use crate::archive::{Content, Entry};
use crate::spec::ImageMode;

/// The preflight checks that fail in every container.
const IGNORED_CHECKS: &str =
    "SystemVerification,Swap,FileContent--proc-sys-net-bridge-bridge-nf-call-iptables";
const IGNORE_FLAG: &str = "--ignore-preflight-errors";
const CRI_SOCKET: &str = "unix:///var/run/containerd/containerd.sock";

/// Written before kubeadm starts. The first file is known from Cluster API's own provider.
const STARTED: &str = "mkdir -p /run/cluster-api && echo started >/run/cluster-api/capd.bootstrap.started\n\
                       : >/var/lib/machinist/bootstrap/kubeadm-started\n";

/// Files in which bootstrap providers write the configuration of kubeadm.
const CONFIG_FILES: &[&str] =
    &["run/kubeadm/kubeadm.yaml", "run/kubeadm/kubeadm-join-config.yaml", "etc/kubeadm.yml"];

/// The settings on which the changes depend.
#[derive(Debug, Clone, Copy)]
pub(super) struct KubeadmSettings {
    image_mode: ImageMode,
}

impl KubeadmSettings {
    pub(super) fn new(image_mode: ImageMode) -> Self {
        Self { image_mode }
    }

    /// The flags of the kubelet, unless the user set them.
    fn kubelet_flags(self) -> Vec<(&'static str, &'static str)> {
        let mut flags = vec![
            // The disk of the host is shared, so its usage says nothing about this node.
            ("image-gc-high-threshold", "100"),
            ("eviction-hard", "nodefs.available<0%,nodefs.inodesFree<0%,imagefs.available<0%"),
            ("fail-swap-on", "false"),
        ];
        match self.image_mode {
            ImageMode::Kind => flags.extend([
                ("cgroup-root", "/kubelet"),
                ("runtime-cgroups", "/system.slice/containerd.service"),
            ]),
            ImageMode::Plain => {}
        }
        flags
    }
}

/// Changes the file if it is a configuration of kubeadm. A file that is not YAML stays: kubeadm
/// itself then reports the error.
pub(super) fn adapt_file(entry: &mut Entry, settings: KubeadmSettings) {
    if !CONFIG_FILES.contains(&entry.path.as_str()) {
        return;
    }
    let Content::File(content) = &mut entry.content else { return };
    let Ok(text) = std::str::from_utf8(content) else { return };
    *content = adapt_documents(text, settings).into_bytes();
}

/// Whether the configuration ignores all preflight errors. Then a list of ignored errors would be
/// refused.
pub(super) fn ignores_all_errors(entry: &Entry) -> bool {
    if !CONFIG_FILES.contains(&entry.path.as_str()) {
        return false;
    }
    let Content::File(content) = &entry.content else { return false };
    let Ok(text) = std::str::from_utf8(content) else { return false };
    documents(text).iter().filter_map(|document| parse(document).ok()).any(|document| {
        let ignored = document.pointer("/nodeRegistration/ignorePreflightErrors").and_then(Value::as_array);
        ignored.is_some_and(|all| {
            all.iter().any(|check| check.as_str().is_some_and(|name| name.eq_ignore_ascii_case("all")))
        })
    })
}

fn adapt_documents(text: &str, settings: KubeadmSettings) -> String {
    let mut adapted: Vec<String> = Vec::new();
    let (mut has_cluster, mut has_proxy) = (false, false);
    for document in documents(text) {
        let Ok(mut parsed) = parse(document) else {
            adapted.push(document.to_owned());
            continue;
        };
        let kind = parsed.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind.as_str() {
            "InitConfiguration" | "JoinConfiguration" => {
                register(&mut parsed, settings);
                adapted.push(format!("{parsed:#}\n"));
            }
            "KubeProxyConfiguration" => {
                has_proxy = true;
                set_default(&mut parsed, &["conntrack", "maxPerCore"], json!(0));
                adapted.push(format!("{parsed:#}\n"));
            }
            other => {
                has_cluster |= other == "ClusterConfiguration";
                adapted.push(document.to_owned());
            }
        }
    }
    // Its sysctl is read-only in a container.
    if has_cluster && !has_proxy {
        let proxy = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "conntrack": {"maxPerCore": 0},
        });
        adapted.push(format!("{proxy:#}\n"));
    }
    let mut text = String::new();
    for document in adapted {
        text.push_str("---\n");
        text.push_str(&document);
        if !document.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

/// The documents of a file. A line `---` separates them; empty documents are left out.
fn documents(text: &str) -> Vec<&str> {
    let mut documents = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" {
            documents.push(&text[start..at]);
            start = at + line.len();
        }
        at += line.len();
    }
    documents.push(&text[start..]);
    documents.into_iter().filter(|document| !document.trim().is_empty()).collect()
}

fn parse(document: &str) -> Result<Value, Error> {
    let options = serde_saphyr::options! { with_snippet: false };
    let parsed: Result<Value, _> = serde_saphyr::from_str_with_options(document, options);
    parsed.ok().filter(Value::is_object).ok_or_else(|| super::wrong("a YAML document"))
}

/// Sets the defaults of `nodeRegistration`.
fn register(document: &mut Value, settings: KubeadmSettings) {
    let is_list_of_flags =
        document.get("apiVersion").and_then(Value::as_str).is_none_or(|version| !uses_maps(version));
    if document.pointer("/nodeRegistration/criSocket").and_then(Value::as_str) == Some("") {
        document["nodeRegistration"]["criSocket"] = Value::Null;
    }
    set_default(document, &["nodeRegistration", "criSocket"], json!(CRI_SOCKET));
    let empty = if is_list_of_flags { json!([]) } else { json!({}) };
    set_default(document, &["nodeRegistration", "kubeletExtraArgs"], empty);
    let flags = &mut document["nodeRegistration"]["kubeletExtraArgs"];
    for (name, value) in settings.kubelet_flags() {
        match flags {
            Value::Array(list) => {
                let has_flag = list.iter().any(|flag| flag.get("name").and_then(Value::as_str) == Some(name));
                if !has_flag {
                    list.push(json!({"name": name, "value": value}));
                }
            }
            Value::Object(map) => {
                map.entry(name).or_insert_with(|| json!(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Whether this version of kubeadm's API writes flags as a map.
fn uses_maps(version: &str) -> bool {
    matches!(version, "kubeadm.k8s.io/v1beta1" | "kubeadm.k8s.io/v1beta2" | "kubeadm.k8s.io/v1beta3")
}

/// Sets a member unless it exists. Missing objects on the way are created.
fn set_default(document: &mut Value, path: &[&str], value: Value) {
    let Some((name, rest)) = path.split_first() else { return };
    let Value::Object(members) = document else { return };
    let member = members.entry(*name).or_insert(Value::Null);
    if rest.is_empty() {
        if member.is_null() {
            *member = value;
        }
        return;
    }
    if member.is_null() {
        *member = Value::Object(Map::new());
    }
    set_default(member, rest, value);
}

/// Adds the ignored preflight checks to the first `kubeadm init` or `kubeadm join`, and the marker
/// that kubeadm was started.
pub(super) fn adapt_command(command: &str, ignores_all: bool) -> String {
    let Some(at) = after_kubeadm(command) else { return command.to_owned() };
    let (before, after) = command.split_at(at);
    if ignores_all || command.contains(IGNORE_FLAG) {
        return insert_marker(command);
    }
    insert_marker(&format!("{before} {IGNORE_FLAG}={IGNORED_CHECKS}{after}"))
}

/// Puts the marker before the script, but behind its first line if that names an interpreter.
fn insert_marker(script: &str) -> String {
    match script.split_once('\n') {
        Some((first, rest)) if first.starts_with("#!") => format!("{first}\n{STARTED}{rest}"),
        _ => format!("{STARTED}{script}"),
    }
}

/// The place after the first `kubeadm init` or `kubeadm join`. A single phase of these commands
/// does not know the flag.
fn after_kubeadm(command: &str) -> Option<usize> {
    let ends = ["kubeadm init", "kubeadm join"].into_iter().filter_map(|words| {
        let is_end = |at: &usize| {
            let rest = &command[at + words.len()..];
            let is_word = rest.chars().next().is_none_or(|next| next.is_whitespace() || next == ';');
            is_word && rest.split_whitespace().next() != Some("phase")
        };
        command.match_indices(words).map(|(at, _)| at).find(is_end).map(|at| at + words.len())
    });
    ends.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: KubeadmSettings = KubeadmSettings { image_mode: ImageMode::Kind };
    const PLAIN: KubeadmSettings = KubeadmSettings { image_mode: ImageMode::Plain };

    fn adapted(text: &str, settings: KubeadmSettings) -> Vec<Value> {
        let mut entry = Entry::file("run/kubeadm/kubeadm.yaml", 0o640, text);
        adapt_file(&mut entry, settings);
        let Content::File(content) = entry.content else { panic!("a file") };
        let text = String::from_utf8(content).expect("text");
        documents(&text).iter().map(|document| parse(document).expect("YAML")).collect()
    }

    #[test]
    fn a_list_of_flags_gets_only_the_missing_ones() {
        let text = "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nfuture: {a: 1}\n\
                    nodeRegistration:\n  kubeletExtraArgs:\n  - {name: eviction-hard, value: mine}\n";
        let [document] = adapted(text, KIND).try_into().expect("one document");
        assert_eq!(document["future"], json!({"a": 1}));
        assert_eq!(
            document["nodeRegistration"],
            json!({
                "criSocket": "unix:///var/run/containerd/containerd.sock",
                "kubeletExtraArgs": [
                    {"name": "eviction-hard", "value": "mine"},
                    {"name": "image-gc-high-threshold", "value": "100"},
                    {"name": "fail-swap-on", "value": "false"},
                    {"name": "cgroup-root", "value": "/kubelet"},
                    {"name": "runtime-cgroups", "value": "/system.slice/containerd.service"},
                ],
            })
        );
    }

    #[test]
    fn a_map_of_flags_keeps_the_values_of_the_user() {
        let text = "apiVersion: kubeadm.k8s.io/v1beta3\nkind: InitConfiguration\nnodeRegistration:\n  criSocket: mine\n  \
                    kubeletExtraArgs: {fail-swap-on: 'true', v: '9'}\n";
        let [document] = adapted(text, PLAIN).try_into().expect("one document");
        assert_eq!(document["nodeRegistration"]["criSocket"], "mine");
        assert_eq!(
            document["nodeRegistration"]["kubeletExtraArgs"],
            json!({
                "eviction-hard": "nodefs.available<0%,nodefs.inodesFree<0%,imagefs.available<0%",
                "fail-swap-on": "true", "image-gc-high-threshold": "100", "v": "9",
            })
        );
        let empty = adapted("apiVersion: kubeadm.k8s.io/v1beta3\nkind: InitConfiguration\n", PLAIN);
        assert!(empty[0]["nodeRegistration"]["kubeletExtraArgs"].is_object());
    }

    #[test]
    fn init_gets_a_proxy_configuration_once() {
        let cluster =
            "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: c1\n";
        let kinds = |text: &str| -> Vec<String> {
            adapted(text, KIND)
                .iter()
                .map(|document| document["kind"].as_str().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(kinds(cluster), ["ClusterConfiguration", "KubeProxyConfiguration"]);
        let own =
            format!("{cluster}---\nkind: KubeProxyConfiguration\nconntrack: {{maxPerCore: 5}}\nmode: ipvs\n");
        let documents = adapted(&own, KIND);
        assert_eq!(
            documents[1],
            json!({"kind": "KubeProxyConfiguration", "conntrack": {"maxPerCore": 5}, "mode": "ipvs"})
        );
    }

    #[test]
    fn other_files_and_documents_stay_as_they_are() {
        let mut other = Entry::file("etc/other", 0o644, "kind: InitConfiguration\n");
        adapt_file(&mut other, KIND);
        assert_eq!(other, Entry::file("etc/other", 0o644, "kind: InitConfiguration\n"));
        let text = "kind: ClusterConfiguration # a comment\nx: yes\n";
        assert!(adapt_documents(text, KIND).starts_with(&format!("---\n{text}---\n")));
    }

    #[test]
    fn the_first_kubeadm_command_ignores_checks() {
        let command = "kubeadm init --config /run/kubeadm/kubeadm.yaml  && echo success > /x";
        let adapted = adapt_command(command, false);
        let flag = format!("kubeadm init {IGNORE_FLAG}={IGNORED_CHECKS} --config");
        assert!(adapted.contains(&flag) && adapted.starts_with("mkdir -p /run/cluster-api"), "{adapted}");
        assert!(!adapt_command(command, true).contains(IGNORE_FLAG));
        let own = "kubeadm join --ignore-preflight-errors=all";
        assert_eq!(adapt_command(own, false).matches(IGNORE_FLAG).count(), 1);
        for other in ["echo hello", "kubeadm initialise", "kubeadm init phase certs all"] {
            assert_eq!(adapt_command(other, false), other);
        }
        assert!(adapt_command("#!/bin/bash\nkubeadm join x\n", true).starts_with("#!/bin/bash\nmkdir"));
    }

    #[test]
    fn a_configuration_that_ignores_all_errors_is_found() {
        let entry = |list: &str| {
            let text =
                format!("kind: JoinConfiguration\nnodeRegistration: {{ignorePreflightErrors: [{list}]}}\n");
            Entry::file("run/kubeadm/kubeadm-join-config.yaml", 0o640, text)
        };
        assert!(ignores_all_errors(&entry("All")));
        assert!(!ignores_all_errors(&entry("Swap")));
    }
}
