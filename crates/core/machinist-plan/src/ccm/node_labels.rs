//! The labels of a Node that come from its instance: type, zone, region, and additional ones.

use std::collections::BTreeMap;

use machinist_instance::Instance;
use machinist_labels::{is_key, is_value};

use super::names::{INSTANCE_TYPE_LABELS, LabelPair, REGION_LABELS, ZONE_LABELS, is_of_kubernetes};

/// Changes of a Node's labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelChanges {
    /// The labels to set.
    pub set: BTreeMap<String, String>,
    /// The labels of the instance that a Node must not have, each with the reason.
    pub refused: Vec<String>,
}

/// Returns the labels that an initialised Node lacks: type, zone and region of the instance, and
/// its additional labels unless the Node has them.
pub fn for_initialization(current: Option<&BTreeMap<String, String>>, instance: &Instance) -> LabelChanges {
    let mut changes = LabelChanges::default();
    for (key, value) in &instance.node_labels {
        if is_of_kubernetes(key) {
            changes.refused.push(format!("{key}: labels of Kubernetes are reserved"));
        } else if !is_key(key) || !is_value(value) {
            changes.refused.push(format!("{key}={value}: not a valid label"));
        } else {
            match current.and_then(|current| current.get(key)) {
                None => {
                    changes.set.insert(key.clone(), value.clone());
                }
                Some(existing) if existing == value => {}
                Some(existing) => changes.refused.push(format!("{key}={value}: the Node has {existing}")),
            }
        }
    }
    let drift = from_instance(current, instance);
    changes.set.extend(drift.set);
    changes.refused.extend(drift.refused);
    changes
}

/// Returns the labels for type, zone and region that differ from the instance.
pub fn from_instance(current: Option<&BTreeMap<String, String>>, instance: &Instance) -> LabelChanges {
    let mut changes = LabelChanges::default();
    let pairs = [
        (INSTANCE_TYPE_LABELS, &instance.instance_type),
        (ZONE_LABELS, &instance.zone),
        (REGION_LABELS, &instance.region),
    ];
    for (LabelPair { stable, beta }, value) in pairs {
        let Some(value) = value.as_deref().filter(|value| !value.is_empty()) else { continue };
        if !is_value(value) {
            changes.refused.push(format!("{stable}={value}: not a valid label"));
            continue;
        }
        for key in [stable, beta] {
            if current.and_then(|current| current.get(key)).map(String::as_str) != Some(value) {
                changes.set.insert(key.to_owned(), value.to_owned());
            }
        }
    }
    changes
}

/// Returns today's labels that differ from the older ones. Older programs write only those. This
/// rule applies while the instance is not known.
pub fn from_beta(current: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let value = |key: &str| current.and_then(|current| current.get(key));
    let differs = |pair: &LabelPair| value(pair.beta).is_some() && value(pair.stable) != value(pair.beta);
    let pairs = [INSTANCE_TYPE_LABELS, ZONE_LABELS, REGION_LABELS];
    let changes = pairs.into_iter().filter(differs);
    changes.filter_map(|pair| Some((pair.stable.to_owned(), value(pair.beta)?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn instance(additional: &[(&str, &str)]) -> Instance {
        Instance { node_labels: map(additional), ..testing::instance("sim:///1", "n", 0) }
    }

    #[test]
    fn additional_labels_are_added_unless_reserved_or_present() {
        let both = [("topology.k8s.cp/zone-id", "az1"), ("my.custom.label/foo", "bar")];
        assert_eq!(for_initialization(None, &instance(&both)).set, map(&both));
        let changes = for_initialization(
            Some(&map(&[("my.custom.label/foo", "fizz")])),
            &instance(&[
                ("topology.kubernetes.io/region", "r"),
                ("topology.k8s.io/region", "r"),
                ("kubernetes.io/region", "r"),
                ("k8s.io/region", "r"),
                ("my.custom.label/foo", "bar"),
                ("app.k8snio/bar", "x"),
                ("k8snio/bar", "x"),
            ]),
        );
        assert_eq!(changes.set, map(&[("app.k8snio/bar", "x"), ("k8snio/bar", "x")]));
        assert_eq!(changes.refused.len(), 5, "{:?}", changes.refused);
    }

    #[test]
    fn an_invalid_label_is_dropped_and_reported() {
        for (key, value) in
            [("a/b/c", "x"), ("UPPER.io/a", "x"), ("a", "not valid"), ("", "x"), (".io/a", "x")]
        {
            let changes = for_initialization(None, &instance(&[(key, value), ("good", "x")]));
            assert_eq!(changes.set, map(&[("good", "x")]), "{key}={value}");
            assert_eq!(changes.refused.len(), 1, "{key}={value}");
        }
    }

    /// Each has a stable label and an older one.
    #[test]
    fn type_zone_and_region_are_written_twice() {
        let cloud = Instance {
            instance_type: Some("cpx11".into()),
            zone: Some("us-west-1a".into()),
            region: Some("us-west".into()),
            ..instance(&[])
        };
        let expected = map(&[
            ("node.kubernetes.io/instance-type", "cpx11"),
            ("beta.kubernetes.io/instance-type", "cpx11"),
            ("topology.kubernetes.io/zone", "us-west-1a"),
            ("failure-domain.beta.kubernetes.io/zone", "us-west-1a"),
            ("topology.kubernetes.io/region", "us-west"),
            ("failure-domain.beta.kubernetes.io/region", "us-west"),
        ]);
        assert_eq!(from_instance(None, &cloud).set, expected);
        assert_eq!(from_instance(Some(&expected), &cloud), LabelChanges::default(), "no second change");
        let resized = Instance { instance_type: Some("cpx21".into()), ..cloud };
        assert_eq!(from_instance(Some(&expected), &resized).set.len(), 2);
    }

    #[test]
    fn the_older_labels_win_while_the_instance_is_unknown() {
        let beta = [
            ("failure-domain.beta.kubernetes.io/zone", "z"),
            ("failure-domain.beta.kubernetes.io/region", "r"),
            ("beta.kubernetes.io/instance-type", "t"),
        ];
        let stable = map(&[
            ("topology.kubernetes.io/zone", "z"),
            ("topology.kubernetes.io/region", "r"),
            ("node.kubernetes.io/instance-type", "t"),
        ]);
        assert_eq!(from_beta(Some(&map(&beta))), stable);
        let mut both = map(&beta);
        both.extend(stable);
        assert_eq!(from_beta(Some(&both)), BTreeMap::new());
        both.insert("topology.kubernetes.io/zone".into(), "other".into());
        assert_eq!(from_beta(Some(&both)), map(&[("topology.kubernetes.io/zone", "z")]));
        assert_eq!(from_beta(Some(&map(&[("topology.kubernetes.io/zone", "z")]))), BTreeMap::new());
    }
}
