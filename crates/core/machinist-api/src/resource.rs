//! Makes a struct a Kubernetes kind: its names, its metadata, and `apiVersion` and `kind` on the
//! wire.
//!
//! With these traits `kube::Api<Machine>` works although this crate does not depend on kube.

/// Implements the k8s-openapi traits and serde for a top-level struct with the given fields besides
/// `metadata`. A field is omitted if its `skip_if` returns true. The module around the struct's
/// module has the constants `GROUP`, `VERSION` and `API_VERSION`.
macro_rules! namespaced_kind {
    ($kind:ident, list: $list:literal, plural: $plural:literal, {
        $( $field:ident: $type:ty = $name:literal, skip_if: $skip:expr; )*
    }) => {
        impl k8s_openapi::Resource for $kind {
            const API_VERSION: &'static str = group::API_VERSION;
            const GROUP: &'static str = group::GROUP;
            const KIND: &'static str = stringify!($kind);
            const VERSION: &'static str = group::VERSION;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::NamespaceResourceScope;
        }

        impl k8s_openapi::ListableResource for $kind {
            const LIST_KIND: &'static str = $list;
        }

        impl k8s_openapi::Metadata for $kind {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("apiVersion", group::API_VERSION)?;
                map.serialize_entry("kind", stringify!($kind))?;
                map.serialize_entry("metadata", &self.metadata)?;
                $(
                    let skip: fn(&$type) -> bool = $skip;
                    if !skip(&self.$field) {
                        map.serialize_entry($name, &self.$field)?;
                    }
                )*
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                struct Wire {
                    #[serde(rename = "apiVersion")]
                    api_version: Option<String>,
                    kind: Option<String>,
                    #[serde(default, deserialize_with = "crate::absent::null_as_default")]
                    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                    $(
                        #[serde(rename = $name, default, deserialize_with = "crate::absent::null_as_default")]
                        $field: $type,
                    )*
                }
                let wire = Wire::deserialize(deserializer)?;
                crate::resource::check_type(&wire.api_version, &wire.kind, group::API_VERSION, stringify!($kind))
                    .map_err(serde::de::Error::custom)?;
                Ok(Self { metadata: wire.metadata, $( $field: wire.$field, )* })
            }
        }
    };
}

pub(crate) use namespaced_kind;

/// Rejects an object of another kind. Items of a list may omit `apiVersion` and `kind`.
pub(crate) fn check_type(
    api_version: &Option<String>,
    kind: &Option<String>,
    expected_version: &str,
    expected_kind: &str,
) -> Result<(), String> {
    let api_version = api_version.as_deref().unwrap_or(expected_version);
    let kind = kind.as_deref().unwrap_or(expected_kind);
    if (api_version, kind) == (expected_version, expected_kind) {
        return Ok(());
    }
    Err(format!("expected {expected_version} {expected_kind}, got {api_version} {kind}"))
}
