//! Server-side apply: merges the fields that a manager applies into the object, unless another
//! manager owns them.
//!
//! An apply names all fields that the applier wants. If a field of its last apply is missing now
//! and no other manager owns it, the field is removed. If another manager owns a field and the
//! applier wants another value, the apply has a conflict. A forced apply takes ownership instead.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::schema::fields::collect::{fields_of, with_named, without};
use crate::schema::fields::compare::Comparison;
use crate::schema::fields::element::{Element, ElementPath};
use crate::schema::fields::managers::{Entry, Manager, Managers, Operation};
use crate::schema::fields::merge::{merge, problems};
use crate::schema::fields::set::FieldSet;
use crate::schema::fields::track::Write;
use crate::schema::fields::versions::{convert, never_owned, place, put_back, unmade};
use crate::values::status::ApiError;

/// Owner of all fields that existed before the first apply of an object without ownership data.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Manager that takes over the fields of client-side apply.
const KUBECTL: &str = "kubectl";

/// Annotation in which client-side apply keeps its last applied configuration.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Result of an apply.
#[derive(Debug)]
pub(crate) struct Applied {
    /// The new object, or `None` if nothing changes.
    pub(crate) value: Option<Value>,
    pub(crate) managers: Managers,
}

/// Reason why an apply is rejected.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The applied configuration does not match the schema.
    Wrong(Vec<String>),
    /// The object cannot be converted to the version that a manager used.
    Unconvertible(String),
    Conflicts(Vec<Conflict>),
}

/// Another manager, and the fields of it for which the applier wants other values.
#[derive(Debug)]
pub(crate) struct Conflict {
    owner: Entry,
    fields: FieldSet,
}

/// Whether an apply takes fields from other managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    Refrain,
    Take,
}

impl Write<'_> {
    /// Applies `wanted` to `live`. Both are in the request's version. If there is no object yet,
    /// `live` is the result of `unmade`.
    pub(crate) fn applied(
        &self,
        live: &Value,
        held: Managers,
        wanted: &Value,
        force: Force,
    ) -> Result<Applied, Refused> {
        let found = problems(wanted, place(self.versions.own()));
        if !found.is_empty() {
            return Err(Refused::Wrong(found));
        }
        let held = if held.is_empty() { self.before_first_apply(live) } else { held };
        let mut applied = match self.attempt(live, held.clone(), wanted, force) {
            Err(Refused::Conflicts(conflicts)) if self.manager.name == KUBECTL => {
                let conflicts = not_last_applied(conflicts, &self.last_applied(live));
                if !conflicts.is_empty() {
                    return Err(Refused::Conflicts(conflicts));
                }
                self.attempt(live, held, wanted, Force::Take)
            }
            attempt => attempt,
        }?;
        if self.manager.name == KUBECTL {
            keep_last_applied(&mut applied, live, wanted);
        }
        Ok(applied)
    }

    fn before_first_apply(&self, live: &Value) -> Managers {
        let before = Write {
            versions: self.versions.clone(),
            manager: Manager {
                name: BEFORE_FIRST_APPLY.to_owned(),
                operation: Operation::Update,
                ..self.manager.clone()
            },
            part: self.part,
            now: self.now.clone(),
        };
        before.changed(&unmade(self.versions.own()), live, Managers::default())
    }

    fn attempt(
        &self,
        live: &Value,
        mut managers: Managers,
        wanted: &Value,
        force: Force,
    ) -> Result<Applied, Refused> {
        let own = self.versions.own();
        let hidden = put_back(own, self.part);
        self.coarsen(&mut managers);
        let last = managers.find(&self.manager).cloned();
        let mut fields = fields_of(wanted, place(own));
        fields.subtract_trees(hidden);
        managers.remove(&self.manager);
        let mut all = managers.clone();
        all.put(self.manager.owning(fields.clone(), None));
        let merged = self.pruned(merge(live, wanted, place(own)), &all, last.as_ref());
        let difference = Comparison::of(live, &merged, place(own)).without(hidden);
        let mut conflicts = Vec::new();
        self.disown(&mut managers, live, &merged, difference, |entry, fields| {
            conflicts.push(Conflict { owner: entry.clone(), fields: fields.clone() });
        })
        .map_err(Refused::Unconvertible)?;
        if force == Force::Refrain && !conflicts.is_empty() {
            conflicts.sort_by(|a, b| a.owner.compare_shown(&b.owner));
            return Err(Refused::Conflicts(conflicts));
        }
        let is_changed = merged != *live;
        let time = match last {
            _ if is_changed => Some(self.now.clone()),
            Some(last) => last.time,
            None => None,
        };
        fields.subtract(never_owned());
        if !fields.is_empty() {
            managers.put(self.manager.owning(fields, time));
        }
        Ok(Applied { value: is_changed.then_some(merged), managers })
    }

    /// Returns `merged` without the fields of this manager's last apply that no manager owns now.
    fn pruned(&self, merged: Value, all: &Managers, last: Option<&Entry>) -> Value {
        let Some(last) = last.filter(|last| !last.fields.is_empty()) else { return merged };
        // The last apply may have used a version that is no longer served. Then its fields cannot
        // be determined.
        let Some(then) = self.versions.named(&last.api_version) else { return merged };
        let own = self.versions.own();
        let merged_then = convert(&merged, own, &then).into_owned();
        let place_then = place(&then);
        let last_fields = with_named(&last.fields, place_then);
        let mut pruned = without(&merged_then, &last_fields, place_then);
        // Fields that another manager owns, or that this manager still wants, stay. The version of
        // the last apply is checked first, then all others.
        let mut versions: Vec<&str> = all.0.iter().map(|entry| entry.api_version.as_str()).collect();
        versions.sort_by(|a, b| match (*a == last.api_version, *b == last.api_version) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => a.cmp(b),
        });
        versions.dedup();
        for version in versions {
            let Some(served) = self.versions.named(version) else { continue };
            let place = place(&served);
            let mut owned = FieldSet::default();
            for entry in all.0.iter().filter(|entry| entry.api_version == version) {
                owned.unite(&entry.fields);
            }
            let whole = convert(&merged_then, &then, &served);
            let rest = convert(&pruned, &then, &served);
            let mut gone = with_named(&fields_of(&whole, place), place);
            gone.subtract(&with_named(&fields_of(&rest, place), place));
            gone.subtract(&with_named(&owned, place));
            let kept = without(&whole, &gone, place);
            pruned = convert(&kept, &served, &then).into_owned();
        }
        // A field that this manager did not apply itself is not removed.
        let mut gone = with_named(&fields_of(&merged_then, place_then), place_then);
        gone.subtract(&with_named(&fields_of(&pruned, place_then), place_then));
        let gone = gone.intersection(&last_fields);
        self.versions.convert_back(without(&merged_then, &gone, place_then), &then)
    }

    /// Returns the fields of client-side apply that still have their applied values.
    fn last_applied(&self, live: &Value) -> FieldSet {
        let own = self.versions.own();
        let text = live.pointer("/metadata/annotations").and_then(|a| a.get(LAST_APPLIED));
        let Some(Ok(applied)) = text.and_then(Value::as_str).map(serde_json::from_str::<Value>) else {
            return FieldSet::default();
        };
        if applied.get("apiVersion").and_then(Value::as_str) != Some(&own.api_version())
            || !problems(&applied, place(own)).is_empty()
        {
            return FieldSet::default();
        }
        let mut fields = fields_of(&applied, place(own));
        let difference = Comparison::of(&applied, live, place(own));
        for other in [&difference.changed, &difference.added, &difference.removed] {
            fields.subtract(other);
        }
        fields
    }
}

/// Returns the conflicts about fields that client-side apply did not set.
fn not_last_applied(conflicts: Vec<Conflict>, applied: &FieldSet) -> Vec<Conflict> {
    let rest = conflicts.into_iter().map(|mut conflict| {
        conflict.fields.subtract(applied);
        conflict
    });
    rest.filter(|conflict| !conflict.fields.is_empty()).collect()
}

/// Updates the annotation of client-side apply, if there is one. Users who mix client-side apply
/// with `kubectl apply --server-side` need it.
fn keep_last_applied(applied: &mut Applied, live: &Value, wanted: &Value) {
    let value = applied.value.as_ref().unwrap_or(live);
    let held = value.pointer("/metadata/annotations").and_then(|a| a.get(LAST_APPLIED));
    if held.and_then(Value::as_str).unwrap_or_default().is_empty() {
        return;
    }
    let mut wanted = wanted.clone();
    if let Some(Value::Object(annotations)) = wanted.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    let mut value = value.clone();
    value["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{wanted}\n"));
    applied.value = (value != *live).then_some(value);
}

impl Conflict {
    fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.fields.each(&mut Vec::new(), &mut |path: &[&Element]| paths.push(ElementPath(path).to_string()));
        paths
    }
}

/// Returns a 409 with one cause per field.
pub(crate) fn conflict_error(conflicts: &[Conflict]) -> ApiError {
    refusal(conflicts.iter().map(|conflict| (conflict.owner.shown(), conflict.paths())).collect())
}

/// Returns the same error for the replica count of a Scale. Owners and fields appear in the Scale's
/// version and path.
pub(crate) fn scale_conflict_error(conflicts: &[Conflict], api_version: &str) -> ApiError {
    let shown = |conflict: &Conflict| {
        let mut owner = conflict.owner.clone();
        api_version.clone_into(&mut owner.api_version);
        (owner.shown(), vec![".spec.replicas".to_owned()])
    };
    refusal(conflicts.iter().map(shown).collect())
}

fn refusal(conflicts: Vec<(String, Vec<String>)>) -> ApiError {
    let causes: Vec<(&String, &String)> =
        conflicts.iter().flat_map(|(owner, paths)| paths.iter().map(move |path| (owner, path))).collect();
    let message = match causes.as_slice() {
        [(owner, path)] => format!("Apply failed with 1 conflict: conflict with {owner}: {path}"),
        many => {
            let lines = conflicts.iter().map(|(owner, paths)| {
                let paths: Vec<String> = paths.iter().map(|path| format!("- {path}")).collect();
                format!("conflicts with {owner}:\n{}", paths.join("\n"))
            });
            let lines: Vec<String> = lines.collect();
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    causes.iter().fold(ApiError::new(409, "Conflict", message), |error, (owner, path)| {
        error.with_cause("FieldManagerConflict", &format!("conflict with {owner}"), path)
    })
}
