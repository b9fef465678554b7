//! The lane of `deploy/ccm`: the kustomize manifests and the Helm chart of the cloud controller
//! manager describe the same installation, and the real server accepts both.
//!
//! kubectl and helm render the objects. The server answers a dry run with all its defaults, so the
//! comparison is one of meaning: RBAC rules, arguments, probes, volumes and all other fields.

mod objects;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::control_plane::{Cluster, ControlPlane};
use crate::go_programs::HELM;
use crate::workspace::{output_of, root};
use objects::{Objects, differences};

const FOLDER: &str = "deploy/ccm";
const NAMESPACE: &str = "kube-system";

/// Folders of kustomize, and the values with which the chart means the same.
const PAIRS: [(&str, &[&str]); 3] = [
    ("base", &[]),
    ("overlays/network", &["networking.enabled=true"]),
    ("overlays/network-machines", &["networking.enabled=true", "machines.enabled=true"]),
];

/// Further installations that the server must accept, and a part of what they create.
const VARIANTS: [(&[&str], &str); 4] = [
    (&["replicaCount=2"], "PodDisruptionBudget kube-system/machinist-cloud-controller-manager"),
    (&["kind=DaemonSet"], "DaemonSet kube-system/machinist-cloud-controller-manager"),
    (&["monitoring.podMonitor.enabled=true"], "PodMonitor kube-system/machinist-cloud-controller-manager"),
    (&["nameOverride=other"], "ClusterRole /machinist:other"),
];

/// Values that the chart rejects, and a part of the message.
const REJECTED: [(&[&str], &str); 7] = [
    (&["robot.enabled=true"], "robot.enabled: dedicated servers (Robot) are not supported"),
    (&["replicaCount=two"], "'/replicaCount': got string, want integer"),
    (&["replicas=2"], "additional properties 'replicas' not allowed"),
    (&["args.cluster-cidr=10.0.0.0/16"], "args.cluster-cidr: the chart sets this flag"),
    (
        &["env.HCLOUD_TOKEN.value=a", "env.HCLOUD_TOKEN_FILE.value=b"],
        "env: expected HCLOUD_TOKEN or HCLOUD_TOKEN_FILE, found both",
    ),
    (&["replicaCount=2", "args.leader-elect=false"], "args.leader-elect: several pods must not work"),
    (&["image.repository=x/hcloud-cloud-controller-manager"], "image.repository: expected an image with"),
];

/// Enough of the kind PodMonitor for a server to accept one.
const POD_MONITORS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: PodMonitor, plural: podmonitors}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

pub(super) fn check(control_plane: &mut ControlPlane) -> Result<()> {
    let lane = Lane { cluster: control_plane.target(), helm: HELM.provide()?, folder: tempfile::tempdir()? };
    lane.install_pod_monitors()?;
    lane.lint()?;
    for (folder, values) in PAIRS {
        lane.compare(folder, values)?;
    }
    for (values, wanted) in VARIANTS {
        let objects = lane.chart(values, None)?;
        ensure!(objects.contains_key(wanted), "with {values:?} the chart does not create {wanted}");
    }
    lane.all_values_are_accepted()?;
    for (values, message) in REJECTED {
        lane.chart_rejects(values, message)?;
    }
    for example in ["secret.example.yaml", "network-policy.example.yaml"] {
        lane.objects_in(&root().join(FOLDER).join(example)).with_context(|| example.to_owned())?;
    }
    println!(
        "the chart accepts {} further sets of values, and rejects {}",
        VARIANTS.len() + 1,
        REJECTED.len()
    );
    Ok(())
}

struct Lane<'a> {
    cluster: &'a Cluster,
    helm: PathBuf,
    /// For rendered manifests.
    folder: tempfile::TempDir,
}

impl Lane<'_> {
    fn install_pod_monitors(&self) -> Result<()> {
        let file = self.folder.path().join("pod-monitors.yaml");
        fs::write(&file, POD_MONITORS)?;
        output_of(self.cluster.kubectl().args(["create", "--filename"]).arg(&file))?;
        let established = ["wait", "--for=condition=Established", "--timeout=60s"];
        output_of(self.cluster.kubectl().args(established).arg("--filename").arg(&file)).map(|_printed| ())
    }

    fn lint(&self) -> Result<()> {
        output_of(self.helm().args(["lint", "--strict"]).arg(chart())).map(|_printed| ())
    }

    fn compare(&self, folder: &str, values: &[&str]) -> Result<()> {
        let manifests = self.kustomize(folder).with_context(|| format!("{FOLDER}/{folder}"))?;
        ensure!(!manifests.is_empty(), "{FOLDER}/{folder} renders no object");
        let found = differences(&manifests, &self.chart(values, None)?);
        ensure!(found.is_empty(), "{FOLDER}/{folder} != the chart with {values:?}:\n{}", found.join("\n"));
        rules_are_narrow(&manifests)?;
        the_image_has_our_version(&manifests)?;
        println!("{folder}: {} objects, equal to the objects of the chart with {values:?}", manifests.len());
        Ok(())
    }

    fn all_values_are_accepted(&self) -> Result<()> {
        let file = chart().join("ci/all-values.yaml");
        let objects = self.chart(&[], Some(&file)).with_context(|| file.display().to_string())?;
        let arguments = objects.values().find_map(|object| {
            object.pointer("/spec/template/spec/containers/0/args").filter(|args| args.is_array())
        });
        let wanted =
            ["--allow-untagged-cloud", "--route-reconciliation-period=30s", "--cluster-cidr=10.0.0.0/16"];
        for argument in wanted {
            let has_it = arguments
                .and_then(Value::as_array)
                .is_some_and(|args| args.iter().any(|arg| arg.as_str() == Some(argument)));
            ensure!(has_it, "{}: the program does not get {argument}", file.display());
        }
        Ok(())
    }

    fn chart_rejects(&self, values: &[&str], message: &str) -> Result<()> {
        let Err(error) = self.template(values, None) else {
            anyhow::bail!("the chart accepts {values:?}");
        };
        let error = format!("{error:#}");
        ensure!(
            error.contains(message),
            "the chart rejects {values:?}, but does not say {message:?}: {error}"
        );
        Ok(())
    }

    fn kustomize(&self, folder: &str) -> Result<Objects> {
        let text = output_of(self.cluster.kubectl().arg("kustomize").arg(root().join(FOLDER).join(folder)))?;
        self.objects(&text)
    }

    fn chart(&self, values: &[&str], file: Option<&Path>) -> Result<Objects> {
        self.objects(&self.template(values, file)?).with_context(|| format!("the chart with {values:?}"))
    }

    fn template(&self, values: &[&str], file: Option<&Path>) -> Result<String> {
        let mut command = self.helm();
        command.args(["template", "ccm"]).arg(chart()).args(["--namespace", NAMESPACE]);
        for value in values {
            command.args(["--set", value]);
        }
        if let Some(file) = file {
            command.arg("--values").arg(file);
        }
        output_of(&mut command)
    }

    /// Returns helm with folders of its own: the user's configuration must not affect the result.
    fn helm(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.helm);
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.folder.path());
        }
        command
    }

    fn objects(&self, manifest: &str) -> Result<Objects> {
        let file = self.folder.path().join("rendered.yaml");
        fs::write(&file, manifest)?;
        self.objects_in(&file)
    }

    /// Returns the objects of a file as the server would store them.
    fn objects_in(&self, file: &Path) -> Result<Objects> {
        let arguments = ["create", "--dry-run=server", "--validate=strict", "--output=json", "--filename"];
        objects::parse(&output_of(self.cluster.kubectl().args(arguments).arg(file))?)
    }
}

fn chart() -> PathBuf {
    root().join(FOLDER).join("chart")
}

/// Checks that no rule allows more than named verbs of named resources, that none opens a Secret,
/// and that a rule for ConfigMaps names them.
fn rules_are_narrow(objects: &Objects) -> Result<()> {
    let rules = objects.iter().filter_map(|(title, object)| Some((title, object.get("rules")?.as_array()?)));
    for (title, rule) in rules.flat_map(|(title, rules)| rules.iter().map(move |rule| (title, rule))) {
        let names_objects = !entries(rule, "resourceNames").is_empty();
        for field in ["apiGroups", "resources", "verbs"] {
            for entry in entries(rule, field) {
                let is_too_wide =
                    entry == "*" || entry == "secrets" || (entry == "configmaps" && !names_objects);
                ensure!(!is_too_wide, "{title}: a rule has {entry:?} in {field}");
            }
        }
    }
    Ok(())
}

fn entries<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    let entries = rule.get(field).and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn the_image_has_our_version(objects: &Objects) -> Result<()> {
    let images =
        objects.values().filter_map(|object| object.pointer("/spec/template/spec/containers/0/image"));
    let wanted = format!("machinist:{}", env!("CARGO_PKG_VERSION"));
    for image in images {
        ensure!(image.as_str() == Some(&wanted), "the image is {image}; expected {wanted:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_for_all_secrets_or_config_maps_is_rejected() {
        let role = |resource: &str, names: &[&str]| {
            let rule = json!({"resources": [resource], "resourceNames": names, "verbs": ["get"]});
            let role = json!({"kind": "Role", "metadata": {"name": "a"}, "rules": [rule]});
            objects::parse(&role.to_string()).expect("an object")
        };
        assert!(rules_are_narrow(&role("nodes", &[])).is_ok());
        assert!(rules_are_narrow(&role("configmaps", &["b"])).is_ok());
        for (resource, names) in [("configmaps", &[][..]), ("secrets", &["b"][..]), ("*", &["b"][..])] {
            let error = rules_are_narrow(&role(resource, names)).expect_err("too wide").to_string();
            assert!(error.contains("Role /a") && error.contains(resource), "{error}");
        }
    }
}
