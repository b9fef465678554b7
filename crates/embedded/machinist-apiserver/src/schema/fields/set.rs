//! Sets of fields: the content of FieldsV1, as a tree.
//!
//! A set holds paths. A path in the set says nothing about the paths below it: owning a map and
//! owning its fields are different. In JSON, a path that is in the set and has others below it
//! contains a `.`. A path without others below it is `{}`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::schema::fields::element::{Element, Unreadable};

/// A set of fields. Its nodes are sorted, and each node is in the set or has nodes below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet(Vec<Node>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    element: Element,
    /// Whether the path that ends here is in the set.
    member: bool,
    below: FieldSet,
}

impl Node {
    fn is_nothing(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// Returns the set of these paths, each given by the names of its fields.
    pub(crate) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::default();
        for path in paths {
            set.insert(&path.iter().map(|name| Element::field(name)).collect::<Vec<_>>());
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an element: whether it is in the set, and the paths below it. Call this once per
    /// element. Call it in sorted order if there are many, because other elements must be inserted
    /// in between.
    pub(crate) fn push(&mut self, element: Element, member: bool, below: FieldSet) {
        let node = Node { element, member, below };
        if node.is_nothing() {
            return;
        }
        // Callers add elements in order, except for list items.
        match self.0.last() {
            Some(last) if node.element <= last.element => match self.find(&node.element) {
                Ok(at) => {
                    self.0[at].member |= node.member;
                    self.0[at].below.unite(&node.below);
                }
                Err(at) => self.0.insert(at, node),
            },
            _ => self.0.push(node),
        }
    }

    pub(crate) fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.find(first) {
            Ok(at) => at,
            Err(at) => {
                let node = Node { element: first.clone(), member: false, below: FieldSet::default() };
                self.0.insert(at, node);
                at
            }
        };
        if rest.is_empty() {
            self.0[at].member = true;
        } else {
            self.0[at].below.insert(rest);
        }
    }

    /// Whether the path that consists of this one element is in the set.
    pub(crate) fn has(&self, element: &Element) -> bool {
        self.find(element).is_ok_and(|at| self.0[at].member)
    }

    /// Returns the paths below `element`.
    pub(crate) fn below(&self, element: &Element) -> Option<&FieldSet> {
        let at = self.find(element).ok()?;
        Some(&self.0[at].below).filter(|below| !below.is_empty())
    }

    /// Returns the elements at this level: whether each is in the set, and the paths below it.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Element, bool, &FieldSet)> {
        self.0.iter().map(|node| (&node.element, node.member, &node.below))
    }

    /// Calls `act` with every path. Paths that end at a level come before longer ones.
    pub(crate) fn each<'a>(&'a self, path: &mut Vec<&'a Element>, act: &mut impl FnMut(&[&'a Element])) {
        let mut shown: Vec<&Node> = self.0.iter().collect();
        shown.sort_by(|a, b| a.element.compare_shown(&b.element));
        for node in shown.iter().filter(|node| node.member) {
            path.push(&node.element);
            act(path);
            path.pop();
        }
        for node in shown {
            path.push(&node.element);
            node.below.each(path, act);
            path.pop();
        }
    }

    /// Adds the paths of `other`.
    pub(crate) fn unite(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        // Both lists are sorted and may be long, so they are merged in one pass.
        let mut new = other.0.iter().peekable();
        let mut all = Vec::with_capacity(self.0.len().max(other.0.len()));
        for mut held in std::mem::take(&mut self.0) {
            while let Some(node) = new.next_if(|node| node.element < held.element) {
                all.push(node.clone());
            }
            if let Some(node) = new.next_if(|node| node.element == held.element) {
                held.member |= node.member;
                held.below.unite(&node.below);
            }
            all.push(held);
        }
        all.extend(new.cloned());
        self.0 = all;
    }

    /// Removes the paths of `other`, but not the paths below them.
    pub(crate) fn subtract(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        self.0.retain_mut(|node| {
            if let Ok(at) = other.find(&node.element) {
                let other = &other.0[at];
                node.member &= !other.member;
                node.below.subtract(&other.below);
            }
            !node.is_nothing()
        });
    }

    /// Removes the paths of `other` and everything below them.
    pub(crate) fn subtract_trees(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        self.0.retain_mut(|node| {
            if let Ok(at) = other.find(&node.element) {
                if other.0[at].member {
                    return false;
                }
                node.below.subtract_trees(&other.0[at].below);
            }
            !node.is_nothing()
        });
    }

    /// Returns the paths that are in both sets.
    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let common = |node: &Node| {
            let other = &other.0[other.find(&node.element).ok()?];
            let node = Node {
                element: node.element.clone(),
                member: node.member && other.member,
                below: node.below.intersection(&other.below),
            };
            (!node.is_nothing()).then_some(node)
        };
        FieldSet(self.0.iter().filter_map(common).collect())
    }

    fn find(&self, element: &Element) -> Result<usize, usize> {
        // Most sets have only a handful of nodes, but some maps are large.
        self.0.binary_search_by(|node| node.element.cmp(element))
    }
}

/// `.` marks a path that is itself in the set.
const SELF: &str = ".";

impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Below { of_member: false, set: self }.serialize(serializer)
    }
}

/// A set below a path that may be in the set as well.
struct Below<'a> {
    of_member: bool,
    set: &'a FieldSet,
}

impl Serialize for Below<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let nothing = FieldSet::default();
        if self.of_member && !self.set.is_empty() {
            map.serialize_entry(SELF, &Below { of_member: false, set: &nothing })?;
        }
        for node in &self.set.0 {
            map.serialize_entry(node.element.as_str(), &Below { of_member: node.member, set: &node.below })?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Tree::deserialize(deserializer).map(|tree| tree.below)
    }
}

/// A set during parsing, and whether the path that leads to it is in the set.
struct Tree {
    member: bool,
    below: FieldSet,
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of fields")
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Tree, E> {
                Ok(Tree { member: true, below: FieldSet::default() })
            }

            // The parser limits the nesting depth.
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
                let mut tree = Tree { member: false, below: FieldSet::default() };
                while let Some(key) = entries.next_key::<String>()? {
                    if key == SELF {
                        entries.next_value::<IgnoredAny>()?;
                        tree.member = true;
                        continue;
                    }
                    match Element::parse(&key) {
                        Ok(element) => {
                            let child: Tree = entries.next_value()?;
                            tree.below.push(element, child.member, child.below);
                        }
                        Err(Unreadable::UnknownClass) => {
                            entries.next_value::<IgnoredAny>()?;
                        }
                        Err(Unreadable::Malformed) => {
                            return Err(serde::de::Error::custom(format_args!("{key:?} names no field")));
                        }
                    }
                }
                tree.member |= tree.below.is_empty();
                Ok(tree)
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set() -> impl Strategy<Value = FieldSet> {
        let path = prop::collection::vec(
            prop_oneof![
                "f:[abc]",
                Just("k:{\"name\":\"a\"}".to_owned()),
                Just("v:1".to_owned()),
                Just("v:\"<\"".to_owned()),
                Just("i:0".to_owned()),
            ]
            .prop_map(|text| Element::parse(&text).expect("the text is a step")),
            1..4,
        );
        prop::collection::vec(path, 0..8).prop_map(|paths| {
            let mut set = FieldSet::default();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    fn united(a: &FieldSet, b: &FieldSet) -> FieldSet {
        let mut all = a.clone();
        all.unite(b);
        all
    }

    fn less(a: &FieldSet, b: &FieldSet) -> FieldSet {
        let mut rest = a.clone();
        rest.subtract(b);
        rest
    }

    fn paths(set: &FieldSet) -> Vec<String> {
        let mut all = Vec::new();
        set.each(&mut Vec::new(), &mut |path: &[&Element]| {
            all.push(crate::schema::fields::element::ElementPath(path).to_string());
        });
        all.sort();
        all
    }

    proptest! {
        #[test]
        fn field_sets_obey_the_laws_of_sets(a in set(), b in set(), c in set()) {
            prop_assert_eq!(united(&a, &b), united(&b, &a));
            prop_assert_eq!(united(&a, &united(&b, &c)), united(&united(&a, &b), &c));
            prop_assert_eq!(united(&a, &a), a.clone());
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.intersection(&a), a.clone());
            prop_assert_eq!(less(&a, &a), FieldSet::default());
            prop_assert_eq!(united(&less(&a, &b), &a.intersection(&b)), a.clone());
            prop_assert_eq!(less(&united(&a, &b), &b), less(&a, &b));
            prop_assert_eq!(a.intersection(&united(&b, &c)), united(&a.intersection(&b), &a.intersection(&c)));
            prop_assert_eq!(less(&a, &united(&b, &c)), less(&less(&a, &b), &c));
        }

        #[test]
        fn union_and_difference_work_path_by_path(a in set(), b in set()) {
            let (mut all, of_b) = (paths(&a), paths(&b));
            let rest: Vec<String> = all.iter().filter(|path| !of_b.contains(path)).cloned().collect();
            prop_assert_eq!(paths(&less(&a, &b)), rest);
            all.extend(of_b);
            all.sort();
            all.dedup();
            prop_assert_eq!(paths(&united(&a, &b)), all);
        }

        #[test]
        fn a_set_survives_serialisation(a in set()) {
            let text = serde_json::to_string(&a).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<FieldSet>(&text).expect("the text is a set"), a);
        }

        #[test]
        fn no_text_panics_the_parser(text in ".{0,40}") {
            let _any = Element::parse(&text).map(|element| element.to_string());
            let _any = serde_json::from_str::<FieldSet>(&format!("{{{}:{{}}}}", serde_json::json!(text)));
        }
    }

    #[test]
    fn only_subtract_trees_removes_the_paths_below() {
        let set = FieldSet::of_fields(&[&["spec"], &["spec", "a"], &["status", "b"]]);
        assert_eq!(
            less(&set, &FieldSet::of_fields(&[&["spec"]])),
            FieldSet::of_fields(&[&["spec", "a"], &["status", "b"]])
        );
        let mut rest = set.clone();
        rest.subtract_trees(&FieldSet::of_fields(&[&["spec"]]));
        assert_eq!(rest, FieldSet::of_fields(&[&["status", "b"]]));
    }
}
