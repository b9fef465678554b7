//! Roles and bindings: their validation, and the rule that users may grant only permissions that
//! they have.

use serde_json::{Value, json};

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::meta::{NameRule, name_problems, qualified_name_problem};
use crate::values::status::{ApiResult, FieldErrors};

/// The API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles, of a namespace or of the cluster.
pub(crate) struct Roles {
    pub(crate) resource: &'static str,
}

impl Rules for Roles {
    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_role(self.resource, object)
    }

    fn on_update(&self, new: &mut Value, old: &Value, _part: Part, context: &Context<'_>) -> ApiResult<()> {
        if only_collects(new, old) { Ok(()) } else { context.admission.admit_role(self.resource, new) }
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        let namespaced = self.resource == "roles";
        let rules = object.get("rules").and_then(Value::as_array).into_iter().flatten();
        for (index, rule) in rules.enumerate() {
            validate_rule(rule, &format!("rules[{index}]"), namespaced, errors);
        }
        if let Some(aggregation) = object.get("aggregationRule") {
            validate_aggregation(aggregation, errors);
        }
    }
}

/// Whether a write changes only permissions of the garbage collector lives by.
fn only_collects(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata {
            for field in ["ownerReferences", "finalizers", "resourceVersion", "managedFields", "generation"] {
                metadata.remove(field);
            }
        }
        object
    };
    without(new) == without(old)
}

fn is_empty(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn validate_rule(rule: &Value, place: &str, namespaced: bool, errors: &mut FieldErrors) {
    if is_empty(rule, "verbs") {
        errors.required(format!("{place}.verbs"), "verbs must contain at least one value");
    }
    if !is_empty(rule, "nonResourceURLs") {
        let paths = || rule["nonResourceURLs"].clone();
        let field = format!("{place}.nonResourceURLs");
        if namespaced {
            errors.invalid(field, paths(), "namespaced rules cannot apply to non-resource URLs");
        } else if ["apiGroups", "resources", "resourceNames"].iter().any(|key| !is_empty(rule, key)) {
            errors.invalid(
                field,
                paths(),
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        return;
    }
    if is_empty(rule, "apiGroups") {
        errors.required(format!("{place}.apiGroups"), "resource rules must supply at least one api group");
    }
    if is_empty(rule, "resources") {
        errors.required(format!("{place}.resources"), "resource rules must supply at least one resource");
    }
}

fn validate_aggregation(aggregation: &Value, errors: &mut FieldErrors) {
    let place = "aggregationRule.clusterRoleSelectors";
    if is_empty(aggregation, "clusterRoleSelectors") {
        errors.required(place, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    let selectors = aggregation.get("clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten();
    for (index, selector) in selectors.enumerate() {
        let place = format!("{place}[{index}]");
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        let mut is_valid = true;
        for label in labels.into_iter().flat_map(|labels| labels.keys()) {
            if let Some(problem) = qualified_name_problem(label) {
                errors.invalid(format!("{place}.matchLabels"), json!(label), problem);
                is_valid = false;
            }
        }
        if !is_valid {
            errors.invalid(place, Value::Null, "invalid label selector.");
        }
    }
}

/// Bindings, of a namespace or of the cluster.
pub(crate) struct Bindings {
    pub(crate) resource: &'static str,
}

impl Rules for Bindings {
    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_binding(self.resource, object)
    }

    fn on_update(&self, new: &mut Value, old: &Value, _part: Part, context: &Context<'_>) -> ApiResult<()> {
        if only_collects(new, old) { Ok(()) } else { context.admission.admit_binding(self.resource, new) }
    }

    fn make_stored(&self, object: &mut Value) {
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
                say_group(subject);
            }
        }
        if let Some(role) = object.get_mut("roleRef") {
            say_group(role);
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        if let Some(old) = old
            && old.get("roleRef") != object.get("roleRef")
        {
            errors.push_shown(
                crate::values::status::FieldErrorKind::Invalid,
                "roleRef",
                Some(shown_role(&object["roleRef"])),
                "cannot change roleRef",
            );
        }
        let kinds: &[&str] =
            if self.resource == "rolebindings" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        validate_role_ref(&object["roleRef"], kinds, errors);
        let subjects = object.get("subjects").and_then(Value::as_array).into_iter().flatten();
        for (index, subject) in subjects.enumerate() {
            self.validate_subject(subject, &format!("subjects[{index}]"), errors);
        }
    }
}

fn say_group(reference: &mut Value) {
    let says = reference.get("apiGroup").and_then(Value::as_str).is_some_and(|group| !group.is_empty());
    if !says && reference.is_object() {
        reference["apiGroup"] = json!(GROUP);
    }
}

/// Formats a reference with the names and order of its internal type, as errors show it.
fn shown_role(role: &Value) -> String {
    let text = |key: &str| json!(role.get(key).and_then(Value::as_str).unwrap_or_default());
    format!("{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}", text("apiGroup"), text("kind"), text("name"))
}

fn validate_role_ref(role: &Value, kinds: &[&str], errors: &mut FieldErrors) {
    let text = |key: &str| role.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("apiGroup") != GROUP {
        errors.not_supported("roleRef.apiGroup", json!(text("apiGroup")), &[GROUP.to_owned()]);
    }
    if !kinds.contains(&text("kind")) {
        let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        errors.not_supported("roleRef.kind", json!(text("kind")), &kinds);
    }
    if text("name").is_empty() {
        errors.required("roleRef.name", "");
    } else if let Some(problem) = path_segment_problem(text("name")) {
        errors.invalid("roleRef.name", json!(text("name")), problem);
    }
}

fn path_segment_problem(name: &str) -> Option<String> {
    name_problems(name, NameRule::PathSegment).into_iter().next()
}

impl Bindings {
    fn validate_subject(&self, subject: &Value, place: &str, errors: &mut FieldErrors) {
        let text = |key: &str| subject.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("name").is_empty() {
            errors.required(format!("{place}.name"), "");
        }
        match text("kind") {
            "ServiceAccount" => {
                if !text("name").is_empty() {
                    for problem in name_problems(text("name"), NameRule::Subdomain) {
                        errors.invalid(format!("{place}.name"), json!(text("name")), problem);
                    }
                }
                if !text("apiGroup").is_empty() {
                    let field = format!("{place}.apiGroup");
                    errors.not_supported(field, json!(text("apiGroup")), &[String::new()]);
                }
                if self.resource == "clusterrolebindings" && text("namespace").is_empty() {
                    errors.required(format!("{place}.namespace"), "");
                }
            }
            "User" | "Group" => {
                if text("apiGroup") != GROUP {
                    let field = format!("{place}.apiGroup");
                    errors.not_supported(field, json!(text("apiGroup")), &[GROUP.to_owned()]);
                }
            }
            other => {
                let kinds = ["ServiceAccount", "User", "Group"].map(str::to_owned);
                errors.not_supported(format!("{place}.kind"), json!(other), &kinds);
            }
        }
    }
}
