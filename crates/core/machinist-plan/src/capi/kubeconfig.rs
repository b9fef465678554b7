//! Checks the kubeconfig of a workload cluster before a client uses it.
//!
//! A tenant can write the Secret with the kubeconfig. So a kubeconfig that runs a program, reads a
//! file of this process or skips the check of the certificate is rejected.

use serde_json::Value;

/// Fields of a user that run a program or read a file.
const FORBIDDEN_OF_USERS: [&str; 7] =
    ["exec", "auth-provider", "tokenFile", "client-certificate", "client-key", "as", "username"];
/// Fields of a cluster that read a file, skip a check or send the traffic elsewhere.
const FORBIDDEN_OF_CLUSTERS: [&str; 3] = ["certificate-authority", "insecure-skip-tls-verify", "proxy-url"];

/// Checks a kubeconfig that was parsed from YAML.
///
/// # Errors
/// The first field that is not allowed, with its path. The text quotes no value.
pub fn check(kubeconfig: &Value) -> Result<(), String> {
    for (list, entry, forbidden) in
        [("users", "user", &FORBIDDEN_OF_USERS[..]), ("clusters", "cluster", &FORBIDDEN_OF_CLUSTERS[..])]
    {
        for (index, item) in kubeconfig[list].as_array().into_iter().flatten().enumerate() {
            let is_set = |field: &&&str| match &item[entry][**field] {
                Value::Null | Value::Bool(false) => false,
                Value::String(text) => !text.is_empty(),
                _ => true,
            };
            if let Some(field) = forbidden.iter().find(is_set) {
                return Err(format!("{list}[{index}].{entry}.{field} is not allowed in a kubeconfig Secret"));
            }
        }
    }
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
    if !server.starts_with("https://") {
        return Err("clusters[0].cluster.server: expected a URL with https".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(user: Value, cluster: Value) -> Value {
        json!({"users": [{"name": "u", "user": user}], "clusters": [{"name": "c", "cluster": cluster}]})
    }

    #[test]
    fn a_kubeconfig_that_could_harm_is_rejected() {
        let server = json!({"server": "https://10.0.0.2:6443", "certificate-authority-data": "QQ=="});
        let user = json!({"client-certificate-data": "QQ==", "client-key-data": "QQ=="});
        assert_eq!(check(&config(user.clone(), server.clone())), Ok(()));
        for (user, cluster, field) in [
            (json!({"exec": {"command": "sh"}}), server.clone(), "users[0].user.exec"),
            (json!({"auth-provider": {"name": "x"}}), server.clone(), "auth-provider"),
            (json!({"tokenFile": "/etc/passwd"}), server.clone(), "tokenFile"),
            (json!({"client-key": "/key"}), server.clone(), "client-key"),
            (user.clone(), json!({"server": "https://a", "insecure-skip-tls-verify": true}), "insecure"),
            (user.clone(), json!({"server": "https://a", "proxy-url": "http://b"}), "proxy-url"),
            (user.clone(), json!({"server": "https://a", "certificate-authority": "/ca"}), "authority"),
            (user.clone(), json!({"server": "http://a"}), "https"),
        ] {
            let told = check(&config(user, cluster)).expect_err("rejected");
            assert!(told.contains(field), "{told}");
        }
    }
}
