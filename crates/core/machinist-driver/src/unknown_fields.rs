//! Unknown fields of a lenient provider spec.

use serde_json::Value;

/// Lists the fields of a provider spec that are not known, with their paths. As Go does, it matches
/// names in any letter case, and takes `null` as absent. A value that is not an object has no
/// fields.
pub fn unknown_fields(provider_spec: &Value, known: &[&str]) -> Vec<String> {
    let is_known = |name: &str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    let fields = provider_spec.as_object().into_iter().flatten();
    let set = fields.filter(|(_, value)| !value.is_null()).map(|(name, _)| name);
    set.filter(|name| !is_known(name)).map(|name| format!("providerSpec.{name}")).collect()
}
