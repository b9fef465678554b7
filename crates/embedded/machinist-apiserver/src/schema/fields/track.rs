//! Updates field ownership after a POST, PUT or PATCH.
//!
//! A writer that changes a field becomes its only owner. A removed field has no owner. Unchanged
//! fields keep their owners, so only the difference between the two versions is examined.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::fields::collect::coarsened;
use crate::schema::fields::compare::Comparison;
use crate::schema::fields::managers::{Entry, Manager, Managers, Operation};
use crate::schema::fields::set::FieldSet;
use crate::schema::fields::versions::{Versions, never_owned, place, put_back, unmade};
use crate::schema::kinds::Part;
use crate::schema::resource::{Registry, Served};
use crate::values::object::{MANAGED_FIELDS, Object, set_meta};

/// One write: its manager, its time, and the part of the resource that it changes.
pub(crate) struct Write<'a> {
    pub(crate) versions: Versions<'a>,
    pub(crate) manager: Manager,
    pub(crate) part: Part,
    /// Time of the write, as `metav1.Time`.
    pub(crate) now: String,
}

/// Content of `metadata.managedFields` in a body.
pub(crate) enum Claim {
    /// Nothing that can be parsed. Ownership stays as before.
    Nothing,
    /// An empty list, or a list with an empty entry. No field has an owner until the next apply.
    Reset,
    /// A new list of managers.
    Managers(Managers),
}

impl Claim {
    pub(crate) fn of(list: Option<&Value>) -> Self {
        let Some(Value::Array(entries)) = list else { return Claim::Nothing };
        let is_reset = match entries.as_slice() {
            [] => true,
            [only] => only.as_object().is_some_and(serde_json::Map::is_empty),
            _ => false,
        };
        if is_reset {
            return Claim::Reset;
        }
        match list.and_then(Managers::given) {
            Some(managers) if !managers.is_empty() => Claim::Managers(managers),
            Some(_) | None => Claim::Nothing,
        }
    }
}

/// Manager name of the server itself.
const SERVER: &str = "kube-apiserver";

/// Returns the server as a writer: what it serves, and the time of its write.
pub(crate) struct OwnWrites {
    pub(crate) registry: Arc<Registry>,
    /// Time of the write, as `metav1.Time`.
    pub(crate) now: String,
}

impl OwnWrites {
    /// The owners of an object that the server itself creates.
    pub(crate) fn created(self, served: &Served, object: &Value) -> Managers {
        self.write(served, Part::Main, "").created(object, Claim::Nothing)
    }

    /// Records the server as owner of owner of its own changes to an object: Writes the ownership
    /// into `value`.
    pub(crate) fn changed(self, served: &Served, read: &Object, value: &mut Value) {
        self.own(served, read, value, Part::Main, "");
    }

    /// Records the server as owner of owner of its own changes to the status of an object.
    pub(crate) fn changed_status(self, served: &Served, read: &Object, value: &mut Value) {
        self.own(served, read, value, Part::Status, "status");
    }

    fn own(self, served: &Served, read: &Object, value: &mut Value, part: Part, subresource: &str) {
        let write = self.write(served, part, subresource);
        let managers = write.updated(read.value(), value, read.managed_fields(), Claim::Nothing);
        if let Some(managers) = managers {
            set_meta(value, MANAGED_FIELDS, Some(Value::String(managers.text())));
        }
    }

    fn write<'a>(self, served: &'a Served, part: Part, subresource: &str) -> Write<'a> {
        Write {
            versions: Versions::new(self.registry, served),
            manager: Manager {
                name: SERVER.to_owned(),
                operation: Operation::Update,
                api_version: served.api_version(),
                subresource: subresource.to_owned(),
            },
            part,
            now: self.now,
        }
    }
}

impl Write<'_> {
    /// Returns the managers of a new object. `object` is in the request's version, as the client
    /// sent it.
    pub(crate) fn created(&self, object: &Value, claim: Claim) -> Managers {
        let before = match claim {
            Claim::Managers(managers) => managers,
            Claim::Nothing | Claim::Reset => Managers::default(),
        };
        self.changed(&unmade(self.versions.own()), object, before)
    }

    /// Returns the managers after an update, or `None` if they do not change. Both objects are in
    /// the request's version.
    pub(crate) fn updated(
        &self,
        before: &Value,
        after: &Value,
        held: Option<&str>,
        claim: Claim,
    ) -> Option<Managers> {
        let (managers, claimed) = match (self.part, claim) {
            (Part::Main, Claim::Reset) => return Some(Managers::default()),
            (Part::Main, Claim::Managers(managers)) => (managers, true),
            // A write to another part of the object cannot claim ownership of the whole. An object
            // without ownership data gets none before its first apply.
            (_, _) => (Managers::stored(Some(held?)), false),
        };
        let difference = self.difference(before, after);
        if difference.is_empty() && !claimed {
            return None;
        }
        Some(self.taken_over(before, after, difference, managers))
    }

    /// Returns the managers after this write has changed `before` into `after`.
    pub(crate) fn changed(&self, before: &Value, after: &Value, managers: Managers) -> Managers {
        self.taken_over(before, after, self.difference(before, after), managers)
    }

    fn difference(&self, before: &Value, after: &Value) -> Comparison {
        let own = self.versions.own();
        Comparison::of(before, after, place(own)).without(put_back(own, self.part))
    }

    fn taken_over(
        &self,
        before: &Value,
        after: &Value,
        difference: Comparison,
        mut managers: Managers,
    ) -> Managers {
        self.coarsen(&mut managers);
        let mut gained = difference.set();
        gained.subtract(never_owned());
        if self.disown(&mut managers, before, after, difference, |_, _| {}).is_err() {
            // As in kube-apiserver, all ownership is dropped so that the write succeeds.
            return Managers::default();
        }
        if !gained.is_empty() {
            if let Some(held) = managers.find(&self.manager) {
                gained.unite(&held.fields);
            }
            managers.put(self.manager.owning(gained, Some(self.now.clone())));
        }
        managers.cap();
        managers
    }

    /// Adapts the fields of all managers to the current schema.
    pub(crate) fn coarsen(&self, managers: &mut Managers) {
        // The types of built-in kinds do not change while a server runs.
        if !self.versions.own().is_custom() {
            return;
        }
        for entry in &mut managers.0 {
            let Some(served) = self.versions.named(&entry.api_version) else { continue };
            if let Some(fields) = coarsened(&entry.fields, place(&served)) {
                entry.fields = fields;
            }
        }
    }

    /// Removes changed and removed fields from every manager. Calls `taken` with the changed fields
    /// of each manager.
    ///
    /// # Errors
    /// Fails if a custom resource cannot be converted to the version that a manager used.
    pub(crate) fn disown(
        &self,
        managers: &mut Managers,
        before: &Value,
        after: &Value,
        difference: Comparison,
        mut taken: impl FnMut(&Entry, &FieldSet),
    ) -> Result<(), String> {
        let own = self.versions.own();
        let mut by_version: BTreeMap<String, Option<Comparison>> = BTreeMap::new();
        by_version.insert(own.api_version(), Some(difference));
        for version in managers.0.iter().map(|entry| &entry.api_version) {
            if by_version.contains_key(version) {
                continue;
            }
            // A manager of a built-in kind loses all its fields if its version is not served.
            let difference = match (self.difference_in(before, after, version), own.is_custom()) {
                (Ok(difference), _) => Some(difference),
                (Err(_), false) => None,
                (Err(why), true) => return Err(why),
            };
            by_version.insert(version.clone(), difference);
        }
        managers.0.retain_mut(|entry| {
            let Some(Some(difference)) = by_version.get(&entry.api_version) else { return false };
            let mut lost = entry.fields.intersection(&difference.added);
            lost.unite(&entry.fields.intersection(&difference.changed));
            if !lost.is_empty() {
                taken(entry, &lost);
                entry.fields.subtract(&lost);
            }
            entry.fields.subtract(&difference.removed);
            !entry.fields.is_empty()
        });
        Ok(())
    }

    fn difference_in(&self, before: &Value, after: &Value, version: &str) -> Result<Comparison, String> {
        let (before, _) = self.versions.converted(before, version)?;
        let converted = self.versions.converted(after, version);
        let (after, served) = converted.map_err(|why| format!("failed to convert new object: {why}"))?;
        Ok(Comparison::of(&before, &after, place(&served)))
    }
}
