//! Writes the types of the manifest, and the types of their fields, as tables.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::field::{self, Shape, TypeId};
use super::go::{self, Member};
use super::manifest::Manifest;
use super::openapi::{Schema, Schemas};
use super::proto::{self, Message};

/// The published descriptions.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    /// Structs by name, of each Go package.
    pub(super) structs: BTreeMap<String, BTreeMap<String, Vec<Member>>>,
    pub(super) messages: BTreeMap<String, Message>,
    pub(super) schemas: Schemas,
}

/// The struct with the kind and version of an object. A protobuf body has both outside of the
/// object.
const TYPE_META: &str = "TypeMeta";

/// Returns the lines of each table in the manifest, in its order.
pub(super) fn tables(manifest: &Manifest, published: &Descriptions) -> Result<Vec<(String, Vec<String>)>> {
    let mut writer = Writer::of(manifest, published)?;
    let mut tables = Vec::new();
    for file in &manifest.files {
        let mut lines = Vec::new();
        for name in &file.types {
            let of = type_id(manifest, name)?;
            ensure!(
                !writer.written.contains_key(&writer.name_of(&of)),
                "{}: {name} is in the tables already: remove it here",
                file.name
            );
            if !lines.is_empty() {
                lines.push(String::new());
            }
            writer.write(&of, None, &mut lines).with_context(|| format!("{}: {name}", file.name))?;
        }
        tables.push((file.name.clone(), lines));
    }
    writer.ensure_all_facts_are_used()?;
    Ok(tables)
}

/// Returns the type that the manifest writes as `core/v1.Pod`.
fn type_id(manifest: &Manifest, text: &str) -> Result<TypeId> {
    let (package, name) =
        text.rsplit_once('.').with_context(|| format!("{text:?}: expected PACKAGE.TYPE"))?;
    let package = manifest.packages.get(package);
    let package = package.with_context(|| format!("{text:?}: the package is not in the manifest"))?;
    Ok(TypeId { package: package.clone(), name: name.to_owned() })
}

struct Writer<'a> {
    manifest: &'a Manifest,
    published: &'a Descriptions,
    /// Names in the tables that differ from the published ones.
    names: BTreeMap<TypeId, &'a str>,
    /// Facts of the manifest by `TYPE.FIELD`.
    defaults: BTreeMap<&'a str, &'a Value>,
    shapes: BTreeMap<&'a str, &'a str>,
    used: BTreeSet<&'a str>,
    /// The types in the tables, by their names there.
    written: BTreeMap<String, TypeId>,
    /// The types that contain the current one.
    within: Vec<TypeId>,
}

/// A type whose lines are written.
struct Owner<'a> {
    /// Name in the tables.
    name: String,
    schema: &'a Schema,
    message: &'a Message,
    is_kind: bool,
}

impl<'a> Writer<'a> {
    fn of(manifest: &'a Manifest, published: &'a Descriptions) -> Result<Self> {
        let mut names = BTreeMap::new();
        for (of, name) in manifest.renamed.iter().flat_map(|group| &group.types) {
            names.insert(type_id(manifest, of)?, name.as_str());
        }
        let (mut defaults, mut shapes) = (BTreeMap::new(), BTreeMap::new());
        for group in &manifest.facts {
            for (path, default) in &group.defaults {
                let earlier = defaults.insert(path.as_str(), default);
                ensure!(earlier.is_none(), "the manifest has two defaults of {path}");
            }
            for (path, shape) in &group.types {
                let earlier = shapes.insert(path.as_str(), shape.as_str());
                ensure!(earlier.is_none(), "the manifest has two types of {path}");
            }
        }
        let (used, written, within) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        Ok(Self { manifest, published, names, defaults, shapes, used, written, within })
    }

    /// Returns the name of a type in the tables.
    fn name_of(&self, of: &TypeId) -> String {
        self.names.get(of).map_or_else(|| of.name.clone(), |name| (*name).to_owned())
    }

    /// Writes a type and then the types of its fields, unless the tables have them already. A type
    /// that is only embedded may have no schema. Then `outer`, the schema of the type around it,
    /// has its fields.
    fn write(&mut self, of: &TypeId, outer: Option<&'a Schema>, lines: &mut Vec<String>) -> Result<()> {
        let name = self.name_of(of);
        ensure!(
            !self.within.contains(of),
            "{name} contains itself: set the type of one of its fields in the manifest"
        );
        if let Some(earlier) = self.written.get(&name) {
            ensure!(
                earlier == of,
                "{name} is the name of a type of {} and of a type of {}: rename one in the manifest",
                earlier.package,
                of.package
            );
            return Ok(());
        }
        self.written.insert(name.clone(), of.clone());
        let published = self.published;
        let structs = published.structs.get(&of.package);
        let members = structs.and_then(|structs| structs.get(&of.name));
        let members = members.with_context(|| format!("{} has no struct {}", of.package, of.name))?;
        let schema = published.schemas.get(&of.schema_name()).or(outer);
        let schema = schema.with_context(|| format!("OpenAPI has no schema {}", of.schema_name()))?;
        let message = published.messages.get(&of.message_name());
        let message = message.with_context(|| format!("protobuf has no message {}", of.message_name()))?;

        lines.push(format!("type {name}"));
        if schema.map_type.as_deref() == Some("atomic") {
            lines.push("  atomic".to_owned());
        }
        let is_kind =
            members.iter().any(|member| matches!(member, Member::Inline(part) if part == TYPE_META));
        let owner = Owner { name, schema, message, is_kind };
        let mut below = Vec::new();
        for member in members {
            match member {
                Member::Inline(part) if part == TYPE_META => {
                    lines.extend(["  apiVersion string".to_owned(), "  kind string".to_owned()]);
                }
                Member::Inline(part) => {
                    let part = TypeId { package: of.package.clone(), name: part.clone() };
                    let number = number_of(message, &part);
                    let number = number.with_context(|| format!("{} has no number", part.message_name()))?;
                    lines.push(format!("  inline #{number} {}", self.name_of(&part)));
                    below.push(part);
                }
                Member::Field(field) => {
                    let path = format!("{}.{}", owner.name, field.name);
                    let (line, named) = self.line(&path, field, &owner).context(path)?;
                    lines.push(format!("  {line}"));
                    below.extend(named);
                }
            }
        }
        self.within.push(of.clone());
        for part in below {
            self.write(&part, Some(schema), lines)?;
        }
        self.within.pop();
        Ok(())
    }

    /// Returns the line of a field, and the type that it names.
    fn line(&mut self, path: &str, field: &go::Field, owner: &Owner<'a>) -> Result<(String, Option<TypeId>)> {
        let schema = owner.schema.properties.get(&field.name).context("OpenAPI has no such property")?;
        let shape = match self.shapes.get_key_value(path) {
            Some((path, text)) => {
                self.used.insert(path);
                Shape::parse(text)
            }
            None => self.shape(schema)?,
        };
        let default = self.default(path, field, schema, &shape, owner)?;
        let facts = field::Facts {
            field,
            schema,
            in_message: field.message_name.as_ref().and_then(|name| owner.message.get(name)),
            is_required: owner.schema.required.contains(&field.name),
            shape,
            default,
        };
        let line = field::line(&facts, &|of| self.name_of(of))?;
        Ok((line, facts.shape.named().cloned()))
    }

    fn default(
        &mut self,
        path: &str,
        field: &go::Field,
        schema: &Schema,
        shape: &Shape,
        owner: &Owner<'a>,
    ) -> Result<Option<Value>> {
        let is_quantity = *shape == Shape::parse("quantity");
        let published = match &schema.default {
            // The server itself gives every object its metadata.
            Some(_) if owner.is_kind && field.name == "metadata" => None,
            Some(default) => Some(default.clone()),
            // A quantity is a struct, which Go's encoder always writes. OpenAPI does not say so.
            None if is_quantity && !field.is_pointer() => Some(json!("0")),
            None => None,
        };
        let Some((path, ours)) = self.defaults.get_key_value(path) else { return Ok(published) };
        self.used.insert(path);
        ensure!(
            published.as_ref() != Some(*ours),
            "the descriptions have the same default: remove it from the manifest"
        );
        Ok(Some((*ours).clone()))
    }

    /// Returns the published type of a field.
    fn shape(&self, schema: &Schema) -> Result<Shape> {
        if let Some(name) = schema.refers_to() {
            if let Some(value) = field::known_value(name) {
                return Ok(Shape::Value(value.to_owned()));
            }
            let of = self.manifest.packages.values().find_map(|package| {
                let name = name.strip_prefix(&field::schema_prefix(package))?;
                Some(TypeId { package: package.clone(), name: name.to_owned() })
            });
            return Ok(Shape::Named(
                of.with_context(|| format!("the manifest lacks the package of {name}"))?,
            ));
        }
        let value = match (schema.of.as_deref(), schema.format.as_deref()) {
            (Some("array"), _) => {
                let items = schema.items.as_ref().context("a list without a type of its items")?;
                return Ok(Shape::List(Box::new(self.shape(items)?)));
            }
            (Some("object"), _) => {
                let values = schema.values.as_ref().context("a map without a type of its values")?;
                return Ok(Shape::Map(Box::new(self.shape(values)?)));
            }
            (Some("string"), Some("byte")) => "bytes",
            (Some("string"), None) => "string",
            (Some("integer"), Some("int32")) => "int32",
            (Some("integer"), Some("int64")) => "int",
            (Some("number"), Some("double")) => "number",
            (Some("boolean"), None) => "bool",
            (of, format) => bail!("the notation has no type for {of:?} with the format {format:?}"),
        };
        Ok(Shape::Value(value.to_owned()))
    }

    fn ensure_all_facts_are_used(&self) -> Result<()> {
        let paths = self.defaults.keys().chain(self.shapes.keys()).copied();
        let unused: Vec<&str> = paths.filter(|path| !self.used.contains(path)).collect();
        ensure!(unused.is_empty(), "the manifest has facts about unknown fields: {}", unused.join(", "));
        Ok(())
    }
}

/// Returns the number of an embedded type, which protobuf keeps in a field of its own.
fn number_of(message: &Message, part: &TypeId) -> Option<u32> {
    let wanted = proto::Type::One(part.message_name());
    message.values().find(|field| field.of == wanted).map(|field| field.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::openapi;

    const GO: &str = r#"
type Thing struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ObjectMeta `json:"metadata" protobuf:"bytes,1,opt,name=metadata"`
	Spec ThingSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
}
type ThingSpec struct {
	Source `json:",inline" protobuf:"bytes,1,opt,name=source"`
	Count *int32 `json:"count,omitempty" protobuf:"varint,2,opt,name=count"`
}
type Source struct {
	Path string `json:"path" protobuf:"bytes,1,opt,name=path"`
}
type Meta struct {
	Name string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
}
type Loop struct {
	Again *Loop `json:"again,omitempty" protobuf:"bytes,1,opt,name=again"`
}
"#;

    const PROTO: &str = "package k8s.io.api.example.v1;
message Thing {
  optional Meta metadata = 1;
  optional ThingSpec spec = 2;
}
message ThingSpec {
  optional Source source = 1;
  optional int32 count = 2;
}
message Source {
  optional string path = 1;
}
message Meta {
  optional string name = 1;
}
message Loop {
  optional Loop again = 1;
}
";

    fn published() -> Descriptions {
        let package = "k8s.io/api/example/v1".to_owned();
        let reference =
            |name: &str| json!({"$ref": format!("#/components/schemas/io.k8s.api.example.v1.{name}")});
        let object = |properties: Value| json!({"type": "object", "properties": properties});
        let mut spec = object(
            json!({"path": {"type": "string", "default": ""}, "count": {"type": "integer", "format": "int32"}}),
        );
        spec["required"] = json!(["path"]);
        let document = json!({"components": {"schemas": {
            "io.k8s.api.example.v1.Thing": object(json!({
                "metadata": {"allOf": [reference("Meta")], "default": {}},
                "spec": {"allOf": [reference("ThingSpec")], "default": {}},
            })),
            "io.k8s.api.example.v1.ThingSpec": spec,
            "io.k8s.api.example.v1.Meta": object(json!({"name": {"type": "string"}})),
            "io.k8s.api.example.v1.Loop": object(json!({"again": reference("Loop")})),
        }}});
        Descriptions {
            structs: [(package, go::structs(GO).expect("structs"))].into(),
            messages: proto::messages(PROTO).expect("messages"),
            schemas: openapi::schemas(&document.to_string()).expect("schemas"),
        }
    }

    fn generate(types: &[&str], facts: Value) -> Result<String> {
        let manifest = json!({
            "packages": {"example/v1": "k8s.io/api/example/v1"},
            "files": [{"name": "a.txt", "types": types}],
            "facts": [facts],
        });
        let manifest = Manifest::parse(&manifest.to_string())?;
        let tables = tables(&manifest, &published())?;
        Ok(tables.into_iter().flat_map(|(_, lines)| lines).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn a_kind_is_followed_by_the_types_of_its_fields() {
        let facts = json!({"reason": "set by code", "defaults": {"ThingSpec.count": 3}});
        let wanted = r#"type Thing
  apiVersion string
  kind string
  metadata #1 Meta
  spec #2 ThingSpec = {}
type Meta
  name #1 string
type ThingSpec
  inline #1 Source
  count #2 int32 = 3
type Source
  path #1 string keep required = """#;
        assert_eq!(generate(&["example/v1.Thing"], facts).expect("a table"), wanted);
    }

    #[test]
    fn mistakes_in_the_manifest_are_named() {
        let message =
            |types: &[&str], facts: Value| format!("{:#}", generate(types, facts).expect_err("a mistake"));
        let none = || json!({"reason": "none"});
        let thing = "example/v1.Thing";
        let cases = [
            (message(&[thing], json!({"reason": ""})), "a reason is empty"),
            (message(&["other/v1.Thing"], none()), "the package is not in the manifest"),
            (message(&["example/v1.Other"], none()), "k8s.io/api/example/v1 has no struct Other"),
            (message(&[thing, "example/v1.Meta"], none()), "example/v1.Meta is in the tables already"),
            (message(&["example/v1.Loop"], none()), "Loop contains itself"),
            (
                message(&[thing], json!({"reason": "old", "types": {"ThingSpec.gone": "any"}})),
                "facts about unknown fields: ThingSpec.gone",
            ),
            (
                message(&[thing], json!({"reason": "old", "defaults": {"Source.path": ""}})),
                "the descriptions have the same default",
            ),
        ];
        for (message, wanted) in cases {
            assert!(message.contains(wanted), "{message}");
        }
    }
}
