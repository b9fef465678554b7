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
    // The context decides which cluster a client uses, so each of them is checked.
    for (index, item) in kubeconfig["clusters"].as_array().into_iter().flatten().enumerate() {
        let server = item["cluster"]["server"].as_str().unwrap_or_default();
        if !server.starts_with("https://") {
            return Err(format!("clusters[{index}].cluster.server: expected a URL with https"));
        }
    }
    let current = named(kubeconfig, "contexts", &kubeconfig["current-context"], "current-context")?;
    named(kubeconfig, "clusters", &current["context"]["cluster"], "the cluster of current-context")?;
    Ok(())
}

/// Returns the only entry of a list with that name.
fn named<'k>(kubeconfig: &'k Value, list: &str, name: &Value, what: &str) -> Result<&'k Value, String> {
    let all = kubeconfig[list].as_array().into_iter().flatten();
    let mut found = all.filter(|item| name.is_string() && item["name"] == *name);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(format!("{what}: expected the name of exactly one entry of {list}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(user: Value, cluster: Value) -> Value {
        json!({
            "users": [{"name": "u", "user": user}], "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
        })
    }

    #[test]
    fn the_used_cluster_is_the_checked_one() {
        let server = json!({"server": "https://10.0.0.2:6443"});
        let good = config(json!({}), server.clone());
        assert_eq!(check(&good), Ok(()));
        let rejection = |change: fn(&mut Value)| {
            let mut changed = good.clone();
            change(&mut changed);
            check(&changed).expect_err("rejected")
        };
        let other = json!({"name": "d", "cluster": {"server": "http://10.0.0.3"}});
        let mut two = good.clone();
        two["clusters"].as_array_mut().expect("a list").push(other);
        two["contexts"][0]["context"]["cluster"] = json!("d");
        assert_eq!(
            check(&two).expect_err("rejected"),
            "clusters[1].cluster.server: expected a URL with https"
        );
        for change in [
            (|config| config["current-context"] = json!("y")) as fn(&mut Value),
            |config| config["current-context"] = Value::Null,
            |config| config["contexts"][0]["context"]["cluster"] = json!("d"),
            |config| {
                let twice = config["clusters"][0].clone();
                config["clusters"].as_array_mut().expect("a list").push(twice);
            },
        ] {
            assert!(rejection(change).contains("exactly one entry"), "{}", rejection(change));
        }
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
            let message = check(&config(user, cluster)).expect_err("rejected");
            assert!(message.contains(field), "{message}");
        }
    }
}
