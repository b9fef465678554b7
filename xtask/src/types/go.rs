//! Reads the structs in a `types.go`.
//!
//! The published descriptions do not say how Go's encoder treats a field without content. This
//! depends on whether the field is a pointer, and on the tag `omitempty`. The structs also have the
//! order of the fields, and the fields that are embedded from another struct.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Member {
    Field(Field),
    /// The fields of another struct, by its name without the package.
    Inline(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// Name in JSON.
    pub(super) name: String,
    /// Name in protobuf, if the field is there.
    pub(super) message_name: Option<String>,
    /// Go's type, such as `*int32` or `[]v1.Container`.
    pub(super) of: String,
    pub(super) omit_empty: bool,
    /// A struct is also left out when empty.
    pub(super) omit_zero: bool,
}

impl Field {
    pub(super) fn is_pointer(&self) -> bool {
        self.of.starts_with('*')
    }
}

/// Returns the structs of a file by name. Each has its members in the order of the file.
pub(super) fn structs(text: &str) -> Result<BTreeMap<String, Vec<Member>>> {
    let mut structs = BTreeMap::new();
    let mut open: Option<(String, Vec<Member>)> = None;
    let mut in_comment = false;
    for (index, line) in text.lines().enumerate() {
        let code = line.trim();
        if in_comment || code.starts_with("/*") {
            in_comment = !code.ends_with("*/");
        } else if line == "}" {
            structs.extend(open.take());
        } else if let Some((_, members)) = &mut open {
            if !code.is_empty() && !code.starts_with("//") {
                let at = || format!("no field in line {}: {code:?}", index + 1);
                members.extend(member(code).with_context(at)?);
            }
        } else {
            let declared = line.strip_prefix("type ").unwrap_or_default();
            open = declared.strip_suffix(" struct {").map(|name| (name.to_owned(), Vec::new()));
            structs.extend(declared.strip_suffix(" struct{}").map(|name| (name.to_owned(), Vec::new())));
        }
    }
    ensure!(open.is_none(), "the last struct is not closed");
    Ok(structs)
}

/// Reads one line of a struct. The result is `Some(None)` for a field that JSON does not have.
fn member(line: &str) -> Option<Option<Member>> {
    let (declared, tags) = line.split_once('`')?;
    let of = declared.split_whitespace().last()?;
    let tag = |name: &str| Some(tags.split_once(&format!("{name}:\""))?.1.split_once('"')?.0);
    let mut words = tag("json")?.split(',');
    let name = words.next()?;
    let options: Vec<&str> = words.collect();
    if options.contains(&"inline") {
        let (_, name) = of.rsplit_once('.').unwrap_or(("", of));
        return Some(Some(Member::Inline(name.to_owned())));
    }
    let field = Field {
        name: name.to_owned(),
        message_name: tag("protobuf")
            .and_then(|tag| tag.split(',').find_map(|word| word.strip_prefix("name=")))
            .map(str::to_owned),
        of: of.to_owned(),
        omit_empty: options.contains(&"omitempty"),
        omit_zero: options.contains(&"omitzero"),
    };
    Some((name != "-").then_some(Member::Field(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_their_tags_and_order() {
        let text = r#"package v1

type Thing struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata `json:"no"`
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero" protobuf:"bytes,1,opt,name=metadata"`

	/*
		The old name: "Part".
	*/

	Parts []v1.Part `json:"parts" patchStrategy:"merge" protobuf:"bytes,2,rep,name=allParts"`
	Raw   []byte    `json:"-" protobuf:"bytes,3,opt,name=raw"`
}

type Empty struct{}

type Phase string
"#;
        let structs = structs(text).expect("a file in the expected form");
        let field = |name: &str, message_name: &str, of: &str, omits: bool| {
            Member::Field(Field {
                name: name.into(),
                message_name: Some(message_name.into()),
                of: of.into(),
                omit_empty: omits,
                omit_zero: omits,
            })
        };
        let wanted = vec![
            Member::Inline("TypeMeta".to_owned()),
            field("metadata", "metadata", "metav1.ObjectMeta", true),
            field("parts", "allParts", "[]v1.Part", false),
        ];
        assert_eq!(structs, [("Empty".to_owned(), Vec::new()), ("Thing".to_owned(), wanted)].into());
    }
}
