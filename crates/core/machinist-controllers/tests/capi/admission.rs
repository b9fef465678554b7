//! Rules for changes of templates, and conversion between the versions of our kinds.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube_cel::cel::{Context, Program, Value as Cel, to_value};
use machinist_api::manifest::parse_manifest;
use serde_json::{Value, json};

use super::{GROUP, NAMESPACE, World};

/// The policy that protects DockerMachineTemplates.
const POLICY: &str = include_str!("../../../../../deploy/capi/machine-template-policy.yaml");

/// Returns the rule of the policy, and its message.
fn rule() -> (Program, String) {
    let objects = parse_manifest(POLICY).expect("a manifest");
    let policy = &objects.first().expect("the policy").body["spec"];
    assert_eq!(policy["failurePolicy"], "Fail");
    let resources = &policy["matchConstraints"]["resourceRules"][0];
    assert_eq!(resources["resources"], json!(["dockermachinetemplates"]));
    assert_eq!(resources["operations"], json!(["UPDATE"]));
    let validations = policy["validations"].as_array().expect("rules");
    assert_eq!(validations.len(), 1);
    let text = validations[0]["expression"].as_str().expect("a rule");
    let message = validations[0]["message"].as_str().unwrap_or_default().to_owned();
    (Program::compile(text).expect("the rule compiles"), message)
}

/// A dry run that the topology controller announces may change the spec, and nothing else.
#[test]
fn only_an_announced_dry_run_changes_a_template() {
    let (rule, message) = rule();
    assert!(message.contains("spec.template.spec is immutable"), "{message}");
    for dry_run in [None, Some(false), Some(true)] {
        for annotation in [None, Some("other"), Some("topology.cluster.x-k8s.io/dry-run")] {
            for (image, labels) in [("a", "x"), ("a", "y"), ("b", "x")] {
                let template = |image: &str, label: &str| {
                    json!({
                        "metadata": {"name": "t"},
                        "spec": {"template": {
                            "metadata": {"labels": {"l": label}}, "spec": {"customImage": image},
                        }},
                    })
                };
                let mut object = template(image, labels);
                if let Some(name) = annotation {
                    object["metadata"]["annotations"] = json!({name: ""});
                }
                let mut request = json!({"operation": "UPDATE"});
                if let Some(dry_run) = dry_run {
                    request["dryRun"] = json!(dry_run);
                }
                let mut scope = Context::default();
                for (name, value) in
                    [("object", &object), ("oldObject", &template("a", "x")), ("request", &request)]
                {
                    scope.add_variable_from_value(name, to_value(value).expect("a value"));
                }
                let is_announced = annotation.is_some_and(|name| name.starts_with("topology"));
                let expected = image == "a" || (dry_run == Some(true) && is_announced);
                let judged = rule.execute(&scope).expect("the rule is evaluated");
                let case = format!("dry run {dry_run:?}, {annotation:?}, image {image}, label {labels}");
                assert_eq!(judged, Cel::Bool(expected), "{case}");
            }
        }
    }
}

/// The template of a DockerCluster does not change; its labels and annotations do.
#[tokio::test]
async fn a_template_of_a_cluster_is_immutable() {
    let world = World::new().await;
    let spec = json!({"template": {"spec": {"loadBalancer": {"imageTag": "v1"}}}});
    world.create("DockerClusterTemplate", "t", spec).await;
    let api = world.api("DockerClusterTemplate");
    let patched = |patch: Value| {
        let api = api.clone();
        async move { api.patch("t", &PatchParams::default(), &Patch::Merge(patch)).await }
    };
    let change = json!({"spec": {"template": {"spec": {"loadBalancer": {"imageTag": "v2"}}}}});
    let refused = patched(change).await.expect_err("the change is rejected").to_string();
    assert!(refused.contains("create a new DockerClusterTemplate instead"), "{refused}");
    let note = json!({"metadata": {"annotations": {"note": "x"}}});
    patched(note).await.expect("the annotation is accepted");
}

/// A recorded id and a chosen image do not change.
#[tokio::test]
async fn a_recorded_id_is_immutable() {
    let world = World::new().await;
    world.create("DockerMachine", "m", json!({"customImage": "a"})).await;
    let api = world.api("DockerMachine");
    let patched = |spec: Value| {
        let (api, patch) = (api.clone(), json!({"spec": spec}));
        async move { api.patch("m", &PatchParams::default(), &Patch::Merge(patch)).await }
    };
    patched(json!({"providerID": "docker:////m"})).await.expect("the first id is accepted");
    for (spec, message) in [
        (json!({"providerID": "docker:////other"}), "spec.providerID cannot be changed"),
        (json!({"providerID": null}), "spec.providerID cannot be changed"),
        (json!({"customImage": "b"}), "spec.customImage cannot be changed"),
    ] {
        let refused = patched(spec).await.expect_err("the change is rejected").to_string();
        assert!(refused.contains(message), "{refused}");
    }
}

fn resource(version: &str, kind: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{GROUP}/{version}"),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

/// An object that is written in one version is the same in the others, except for its apiVersion.
#[tokio::test]
async fn an_object_is_equal_in_all_versions() {
    let world = World::new().await;
    let versions = ["v1alpha1", "v1beta1", "v1beta2"];
    let domains = [
        json!({"a": {"controlPlane": true, "attributes": {"k": "v"}}, "b": {}}),
        json!([{"name": "a", "controlPlane": true, "attributes": {"k": "v"}}, {"name": "b"}]),
    ];
    let machine = json!({
        "providerID": "docker:////m", "customImage": "i", "preLoadImages": ["a:1"], "bootstrapped": true,
        "bootstrapTimeout": "90s",
        "extraMounts": [{"containerPath": "/a", "hostPath": "/b", "readOnly": true}],
    });
    let mut cases = vec![("DockerMachine", machine)];
    for domains in domains {
        let spec = json!({
            "controlPlaneEndpoint": {"host": "172.18.0.2", "port": 0}, "failureDomains": domains,
            "loadBalancer": {"imageTag": "v1", "customHAProxyConfigTemplateRef": {"name": "lb"}},
            "loadbalancerImage": "example.com/lb:1",
        });
        cases.push(("DockerCluster", spec));
    }
    let mut number = 0;
    for (kind, spec) in cases {
        for written in versions {
            number += 1;
            let name = format!("x{number}");
            let api = |version: &str| -> Api<DynamicObject> {
                Api::namespaced_with(world.user.clone(), NAMESPACE, &resource(version, kind))
            };
            let object = json!({
                "apiVersion": format!("{GROUP}/{written}"), "kind": kind, "metadata": {"name": name},
                "spec": spec,
            });
            let object = serde_json::from_value(object).expect("an object");
            api(written).create(&PostParams::default(), &object).await.expect("accepted");
            for read in versions {
                let found = api(read).get(&name).await.expect("the object");
                let found = serde_json::to_value(found).expect("JSON");
                assert_eq!(found["apiVersion"], format!("{GROUP}/{read}"));
                assert_eq!(found["spec"], spec, "{kind}: written in {written}, read in {read}");
            }
        }
    }
}
