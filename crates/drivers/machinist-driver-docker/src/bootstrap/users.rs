//! Users of bootstrap data, created as far as the image has the tools. Pure.

use serde::Deserialize;
use serde_json::Value;

use super::script::{Script, quote};

/// A user, with the fields of cloud-config. Ignition's users are converted to it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct User {
    pub(super) name: String,
    #[serde(default)]
    pub(super) gecos: Option<String>,
    #[serde(default)]
    pub(super) groups: Option<Value>,
    #[serde(default)]
    pub(super) homedir: Option<String>,
    #[serde(default)]
    pub(super) shell: Option<String>,
    #[serde(default)]
    pub(super) primary_group: Option<String>,
    #[serde(default)]
    pub(super) passwd: Option<String>,
    #[serde(default)]
    pub(super) sudo: Option<Value>,
    #[serde(default)]
    pub(super) ssh_authorized_keys: Option<Vec<String>>,
}

/// Adds the step that creates a user. An image without the tools keeps the bootstrap going: a node
/// needs no users.
pub(super) fn add(script: &mut Script, user: &User) {
    let name = quote(&user.name);
    let mut options = String::from("-m");
    let groups = texts(user.groups.as_ref(), ',').join(",");
    for (flag, value) in [
        ("-c", user.gecos.as_deref()),
        ("-d", user.homedir.as_deref()),
        ("-s", user.shell.as_deref()),
        ("-g", user.primary_group.as_deref()),
        ("-G", Some(groups.as_str())),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            options.push_str(&format!(" {flag} {}", quote(value)));
        }
    }
    let mut text = format!("id -u {name} >/dev/null 2>&1 || useradd {options} {name} || exit 0\n");
    if let Some(hash) = user.passwd.as_deref().filter(|hash| !hash.is_empty()) {
        text.push_str(&format!("usermod -p {} {name} || true\n", quote(hash)));
    }
    let rules = texts(user.sudo.as_ref(), '\n');
    if !rules.is_empty() {
        let lines: Vec<String> = rules.iter().map(|rule| quote(&format!("{} {rule}", user.name))).collect();
        let file = quote(&format!("/etc/sudoers.d/90-machinist-{}", user.name));
        text.push_str("mkdir -p /etc/sudoers.d || exit 0\n");
        text.push_str(&format!("printf '%s\\n' {} >{file} && chmod 0440 {file}\n", lines.join(" ")));
    }
    let keys = user.ssh_authorized_keys.as_deref().unwrap_or_default();
    if !keys.is_empty() {
        let lines: Vec<String> = keys.iter().map(|key| quote(key)).collect();
        let parts = [
            &format!("home=$(getent passwd {name} | cut -d: -f6); [ -n \"$home\" ] || exit 0\n"),
            "mkdir -p \"$home/.ssh\" && chmod 0700 \"$home/.ssh\"\n",
            &format!("printf '%s\\n' {} >>\"$home/.ssh/authorized_keys\"\n", lines.join(" ")),
            &format!("chmod 0600 \"$home/.ssh/authorized_keys\"; chown -R {name} \"$home/.ssh\" || true\n"),
        ];
        text.extend(parts);
    }
    text.push_str("exit 0\n");
    script.run(text);
}

/// A list of texts, or one text with a separator. `false` and `null` mean an empty list.
fn texts(value: Option<&Value>, separator: char) -> Vec<String> {
    let parts: Vec<String> = match value {
        Some(Value::String(text)) => text.split(separator).map(str::to_owned).collect(),
        Some(Value::Array(items)) => {
            items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        }
        Some(_) | None => Vec::new(),
    };
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bootstrap::script::Step;

    fn added(user: Value) -> String {
        let mut script = Script::default();
        add(&mut script, &serde_json::from_value(user).expect("a user"));
        match script.steps.pop() {
            Some(Step::Run(text)) => text,
            other => panic!("expected a script, got {other:?}"),
        }
    }

    #[test]
    fn a_user_is_created_with_its_keys_and_rules() {
        let text = added(json!({
            "name": "admin", "groups": "wheel, docker", "shell": "/bin/bash", "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "ssh_authorized_keys": ["ssh-ed25519 AAAA it's"], "lock_passwd": true,
        }));
        assert!(text.contains("useradd -m -s /bin/bash -G wheel,docker admin || exit 0"), "{text}");
        assert!(text.contains("'admin ALL=(ALL) NOPASSWD:ALL'"), "{text}");
        assert!(text.contains(r"'ssh-ed25519 AAAA it'\''s'"), "{text}");
    }

    #[test]
    fn a_user_without_details_has_one_command() {
        assert_eq!(
            added(json!({"name": "a b", "sudo": false, "groups": null})),
            "id -u 'a b' >/dev/null 2>&1 || useradd -m 'a b' || exit 0\nexit 0\n"
        );
    }
}
