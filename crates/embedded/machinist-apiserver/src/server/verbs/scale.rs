//! The scale subresource: reads and sets the replicas of any kind that has them.

use serde_json::{Map, Value, json};

use crate::schema::body::Decoded;
use crate::schema::conversion::in_version;
use crate::schema::crd::validate::type_name;
use crate::schema::fields::apply::{Refused, scale_conflict_error};
use crate::schema::fields::managers::{Managers, Operation};
use crate::schema::fields::set::FieldSet;
use crate::schema::kinds::Part;
use crate::schema::kinds::workload::selector_text;
use crate::schema::resource::{ScalePaths, ScaleSelector};
use crate::server::verbs::apply;
use crate::server::verbs::get::read;
use crate::server::verbs::update::{check_name, decode_patch, is_apply, wrong_patch};
use crate::server::verbs::write::commit::{MAX_ATTEMPTS, Written, commit_update};
use crate::server::verbs::write::decode::decode_body;
use crate::server::verbs::write::prepare::{as_served, ownership, prepare_stored_update, prepare_update};
use crate::server::verbs::{Answer, Call};
use crate::values::amount::not_negative;
use crate::values::go;
use crate::values::key::Key;
use crate::values::object::{
    MANAGED_FIELDS, Object, meta_str, metadata, set_meta, take_managed_fields, to_bytes,
};
use crate::values::status::{ApiError, ApiResult, FieldErrors};

/// `apiVersion` of a Scale.
const API_VERSION: &str = "autoscaling/v1";

pub(crate) async fn get(call: &Call) -> ApiResult<Answer> {
    let object = read(call).await?;
    has_count(object.value(), paths(call)?)?;
    Ok(Answer::json(200, to_bytes(&scale_of(object.value(), paths(call)?))))
}

pub(crate) fn update(call: &Call) -> ApiResult<Answer> {
    let wanted = decode_body(call)?;
    if let Some(why) = wrong_count(&wanted) {
        return Err(ApiError::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: {why}"
        )));
    }
    change(call, |_current| Ok(wanted.clone()))
}

pub(crate) fn patch(call: &Call) -> ApiResult<Answer> {
    if is_apply(call) {
        return apply(call);
    }
    let patch = decode_patch(call)?;
    let any = crate::schema::crd::schema::Schema::default();
    change(call, |current| {
        let scale = patch.apply(current.clone(), &any)?;
        match wrong_count(&scale) {
            None => Ok(scale),
            Some(why) => Err(wrong_patch(&scale, &why)),
        }
    })
}

fn paths(call: &Call) -> ApiResult<&ScalePaths> {
    call.served.version().scale.as_ref().ok_or_else(|| call.served.not_found(&call.path.name))
}

fn change(call: &Call, wanted: impl Fn(&Value) -> ApiResult<Value>) -> ApiResult<Answer> {
    let paths = paths(call)?;
    let key = Key::new(&call.path.namespace, &call.path.name);
    for _ in 0..MAX_ATTEMPTS {
        let Some(read) = call.core.store.get(&call.served.resource.collection, &key) else {
            return Err(call.served.not_found(&call.path.name));
        };
        let scale = wanted(&scale_of(read.value(), paths))?;
        check_name(call, &scale)?;
        let namespace = meta_str(&scale, "namespace");
        if !namespace.is_empty() && namespace != call.path.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let claimed = meta_str(&scale, "resourceVersion");
        if !claimed.is_empty() && claimed != read.revision().to_string() {
            return Err(ApiError::stale(&call.served.target(&call.path.name)));
        }
        let replicas = scale.pointer("/spec/replicas").filter(|replicas| replicas.is_i64()).cloned();
        let replicas = replicas.unwrap_or_else(|| json!(0));
        let mut new = in_version(read.value(), &call.served);
        if !call.served.is_custom() {
            check_scale(&scale, &replicas)?;
        }
        // A Scale with zero replicas omits the count (`omitempty`), so the field has no owner then.
        let is_gone = replicas == 0;
        set_at(&mut new, &paths.spec_replicas, replicas);
        prepare_update(call, &mut new, &read, Part::Main)?;
        if is_gone {
            disown_count(&mut new, paths);
        }
        if let Ok(written) = commit_update(call, &read, new) {
            return Ok(answer(call, &read, written, paths));
        }
    }
    Err(ApiError::stale(&call.served.target(&call.path.name)))
}

/// Checks the Scale of a built-in kind before the object that it changes.
fn check_scale(scale: &Value, replicas: &Value) -> ApiResult<()> {
    let mut errors = FieldErrors::default();
    not_negative(Some(replicas), "spec.replicas", &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid("autoscaling", "Scale", meta_str(scale, "name"), &errors))
    }
}

/// Rejects an object without a count. A Scale without a count can be written, but not read.
fn has_count(object: &Value, paths: &ScalePaths) -> ApiResult<()> {
    if at(object, &paths.spec_replicas).is_some() {
        return Ok(());
    }
    let place = paths.spec_replicas.join(".");
    Err(ApiError::internal(format!("the spec replicas field \".{place}\" does not exist")))
}

/// Returns the reason why a Scale's decoder rejects its count, if any.
fn wrong_count(scale: &Value) -> Option<String> {
    let replicas =
        scale.pointer("/spec/replicas").filter(|replicas| !replicas.is_null() && !replicas.is_i64())?;
    let found = type_name(replicas);
    Some(format!("json: cannot unmarshal {found} into Go struct field ScaleSpec.spec.replicas of type int32"))
}

fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let mut kept = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata(object).and_then(|m| m.get(key)) {
            kept.insert(key.into(), value.clone());
        }
    }
    let count = |path: &[String]| at(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut spec = Map::new();
    let desired = count(&paths.spec_replicas);
    if desired != 0 {
        spec.insert("replicas".into(), json!(desired));
    }
    let mut status = json!({"replicas": count(&paths.status_replicas)});
    let selector = match &paths.selector {
        ScaleSelector::None => None,
        ScaleSelector::Text(path) => at(object, path).and_then(Value::as_str).map(str::to_owned),
        ScaleSelector::Labels => object.pointer("/spec/selector").map(selector_text),
    };
    if let Some(selector) = selector {
        status["selector"] = json!(selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status})
}

impl ScalePaths {
    /// Checks that the counts are valid, independently of the schema.
    pub(crate) fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        for path in [&self.spec_replicas, &self.status_replicas] {
            let field = format!(".{}", path.join("."));
            match count_at(object, path) {
                Err(problem) => {
                    errors.invalid(field.clone(), json!(0), format!("{field} accessor error: {problem}"))
                }
                Ok(count) if count < 0 => {
                    errors.invalid(field, json!(count), "should be a non-negative integer")
                }
                Ok(_) => {}
            }
        }
    }
}

/// Removes the field owner of the count. A Scale with zero replicas omits the count.
fn disown_count(new: &mut Value, paths: &ScalePaths) {
    let Some(Value::String(text)) = take_managed_fields(new) else { return };
    let mut managers = Managers::stored(Some(&text));
    let steps: Vec<&str> = paths.spec_replicas.iter().map(String::as_str).collect();
    managers.disown(&FieldSet::of_fields(&[&steps]));
    set_meta(new, MANAGED_FIELDS, Some(json!(managers.text())));
}

/// Applies a Scale. Its count is the only field. Managers can share the field and conflict about
/// it, but as in kube-apiserver an apply cannot change it.
fn apply(call: &Call) -> ApiResult<Answer> {
    let force = apply::options(call)?;
    let Decoded { value: wanted, repeated } = apply::decode(call)?;
    apply::check_wanted(&wanted, API_VERSION, "Scale")?;
    let (served, paths) = (&call.served, paths(call)?);
    let mut shaped = json!({"apiVersion": served.api_version(), "kind": served.resource.kind});
    if let Some(replicas) = wanted.pointer("/spec/replicas") {
        set_at(&mut shaped, &paths.spec_replicas, replicas.clone());
    }
    let key = Key::new(&call.path.namespace, &call.path.name);
    for _ in 0..MAX_ATTEMPTS {
        let Some(read) = call.core.store.get(&served.resource.collection, &key) else {
            return Err(served.not_found(&call.path.name));
        };
        let claimed = meta_str(&wanted, "resourceVersion");
        if !claimed.is_empty() && claimed != read.revision().to_string() {
            return Err(ApiError::stale(&served.target(&call.path.name)));
        }
        let live = as_served(read.value(), served).into_owned();
        let held = Managers::stored(read.managed_fields());
        let write = ownership(call, Part::Main, Operation::Apply);
        let applied = write.applied(&live, held, &shaped, force).map_err(|refused| match refused {
            Refused::Conflicts(conflicts) => scale_conflict_error(&conflicts, API_VERSION),
            Refused::Wrong(problems) => apply::wrong_type(&wanted, &problems),
            Refused::Unconvertible(why) => ApiError::unexpected(why),
        })?;
        apply::judge_repeated(call, &repeated)?;
        let mut new = live;
        match &applied.value {
            Some(_) if served.is_custom() => {
                // As in kube-apiserver, which fails to convert the Scale that it has created.
                return Err(ApiError::unexpected(format!(
                    "failed to convert new object ({}/{}; {API_VERSION}, Kind=Scale) to proper version: request to convert CR to an invalid group/version: {API_VERSION}",
                    meta_str(&wanted, "namespace"),
                    meta_str(&wanted, "name"),
                )));
            }
            Some(value) => {
                let replicas = at(value, &paths.spec_replicas).cloned().unwrap_or_else(|| json!(0));
                check_scale(&wanted, &replicas)?;
                set_at(&mut new, &paths.spec_replicas, replicas);
            }
            None => {}
        }
        prepare_stored_update(call, &mut new, read.value(), Part::Main)?;
        set_meta(&mut new, MANAGED_FIELDS, Some(json!(applied.managers.text())));
        if let Ok(written) = commit_update(call, &read, new) {
            return Ok(answer(call, &read, written, paths));
        }
    }
    Err(ApiError::stale(&served.target(&call.path.name)))
}

fn answer(call: &Call, read: &Object, written: Written, paths: &ScalePaths) -> Answer {
    let answer = Answer::json(200, to_bytes(&scale_of(written.object().value(), paths)));
    match written {
        Written::Kept(object) if object.revision() == read.revision() => answer,
        Written::Kept(object) => answer.committed(call, object.revision()),
        Written::Ended(_, revision) => answer.committed(call, revision),
    }
}

/// Returns the integer at `path`, 0 if absent.
fn count_at(object: &Value, path: &[String]) -> Result<i64, String> {
    let mut at = object;
    for step in path {
        let Some(map) = at.as_object() else {
            return Err(format!(
                "{} is of the type {}, expected map[string]interface{{}}",
                go::plainly(at),
                go::type_name(at)
            ));
        };
        match map.get(step) {
            Some(next) => at = next,
            None => return Ok(0),
        }
    }
    at.as_i64()
        .ok_or_else(|| format!("{} is of the type {}, expected int64", go::plainly(at), go::type_name(at)))
}

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |at, step| at.get(step))
}

fn set_at(object: &mut Value, path: &[String], value: Value) {
    let Some((last, above)) = path.split_last() else { return };
    let mut at = object;
    for step in above {
        at = crate::values::object::child_value(at, step);
    }
    if let Some(map) = at.as_object_mut() {
        map.insert(last.clone(), value);
    }
}
