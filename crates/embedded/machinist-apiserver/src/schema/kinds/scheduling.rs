//! PriorityClasses, and the priorities that they give to Pods.

use serde_json::{Value, json};

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::key::Key;
use crate::values::meta::IMMUTABLE;
use crate::values::object::{child_map, meta_str};
use crate::values::status::{ApiError, ApiResult, FieldErrors, Target};

pub(crate) const COLLECTION: &str = "priorityclasses";

/// The classes of every cluster: name, value and description.
pub(crate) const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// Prefix of the names of system classes.
const SYSTEM_PREFIX: &str = "system-";
/// Highest value of a class that is not a system class.
const HIGHEST_OF_USERS: i64 = 1_000_000_000;

pub(crate) struct PriorityClasses;

impl Rules for PriorityClasses {
    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        crate::values::object::set_meta(object, "generation", Some(json!(1)));
        admit_default(object, context)
    }

    fn on_update(&self, new: &mut Value, _old: &Value, _part: Part, context: &Context<'_>) -> ApiResult<()> {
        admit_default(new, context)
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        let value = object["value"].as_i64().unwrap_or_default();
        if let Some(old) = old {
            if object["value"] != old["value"] {
                errors.forbidden("value", "may not be changed in an update.");
            }
            if object["preemptionPolicy"] != old["preemptionPolicy"] {
                errors.invalid("preemptionPolicy", object["preemptionPolicy"].clone(), IMMUTABLE);
            }
            return;
        }
        let name = meta_str(object, "name");
        if name.starts_with(SYSTEM_PREFIX) {
            validate_system_class(name, value, object["globalDefault"] == true, errors);
        } else if HIGHEST_OF_USERS < value {
            let why = format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}");
            errors.forbidden("value", why);
        }
        let policy = object["preemptionPolicy"].as_str().unwrap_or_default();
        if !matches!(policy, "PreemptLowerPriority" | "Never") {
            errors.not_supported(
                "preemptionPolicy",
                json!(policy),
                &["PreemptLowerPriority", "Never"].map(str::to_owned),
            );
        }
    }
}

fn validate_system_class(name: &str, value: i64, is_default: bool, errors: &mut FieldErrors) {
    let why = match SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name) {
        None => format!("{name} is not a known system priority class"),
        Some((_, known, _)) if *known != value => format!("value of {name} PriorityClass must be {known}"),
        Some(_) if is_default => format!("globalDefault of {name} PriorityClass must be false"),
        Some(_) => return,
    };
    let why = format!(
        "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
    );
    errors.forbidden("metadata.name", why);
}

/// Rejects a second default class.
fn admit_default(object: &Value, context: &Context<'_>) -> ApiResult<()> {
    if object["globalDefault"] != true {
        return Ok(());
    }
    match default_class(context) {
        Some(held) if meta_str(&held, "name") != meta_str(object, "name") => {
            let name = meta_str(object, "name");
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                meta_str(&held, "name")
            );
            Err(ApiError::forbidden(&Target { group: "scheduling.k8s.io", resource: COLLECTION, name }, &why))
        }
        Some(_) | None => Ok(()),
    }
}

fn default_class(context: &Context<'_>) -> Option<Value> {
    let all = context.store.slice(COLLECTION, "", None, None).ok()?;
    let defaults = all.items.into_iter().map(|(_, class)| class.value().clone());
    defaults.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
}

/// The Priority admission: sets a Pod's priority from its class.
pub(crate) fn admit_priority(pod: &mut Value, context: &Context<'_>) -> ApiResult<()> {
    let pod_name = meta_str(pod, "name").to_owned();
    let forbid = |why: String| {
        Err(ApiError::forbidden(&Target { group: "", resource: "pods", name: &pod_name }, &why))
    };
    let named = pod.pointer("/spec/priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let class = match named.as_str() {
        "" => default_class(context),
        name => match context.store.get(COLLECTION, &Key::new("", name)) {
            Some(class) => Some(class.value().clone()),
            None => return forbid(format!("no PriorityClass with name {name} was found")),
        },
    };
    let value = class.as_ref().map_or(json!(0), |class| class["value"].clone());
    let policy =
        class.as_ref().map_or(json!("PreemptLowerPriority"), |class| class["preemptionPolicy"].clone());
    let spec = child_map(pod, "spec");
    if let Some(given) = spec.get("priority").filter(|given| **given != value) {
        return forbid(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        ));
    }
    if let Some(given) = spec.get("preemptionPolicy").filter(|given| **given != policy) {
        return forbid(format!(
            "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            given.as_str().unwrap_or_default(),
            policy.as_str().unwrap_or_default()
        ));
    }
    if let Some(class) = class {
        spec.insert("priorityClassName".into(), json!(meta_str(&class, "name")));
    }
    spec.insert("priority".into(), value);
    spec.insert("preemptionPolicy".into(), policy);
    Ok(())
}
