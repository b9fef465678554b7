//! Ignition 2.x and 3.x: files, folders, links, units and users. Pure.
//!
//! Disks, file systems and network units have no meaning in a container and are ignored with a
//! note. Files from the network are an error: this program downloads nothing for a container.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_instance::Error;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;

use super::cloud_config::gunzip;
use super::script::{Script, Sets, quote};
use super::users::{self, User};
use super::{Machine, kubeadm, wrong_at};
use crate::archive::Entry;

/// The script in which a bootstrap provider runs kubeadm.
const KUBEADM_SCRIPT: &str = "etc/kubeadm.sh";

const UNITS: &str = "etc/systemd/system";

#[derive(Deserialize, Default)]
#[serde(default)]
struct Config {
    ignition: Ignition,
    storage: Storage,
    systemd: Units,
    passwd: Passwd,
    networkd: Units,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ignition {
    version: String,
    config: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Storage {
    files: Vec<File>,
    directories: Vec<Folder>,
    links: Vec<Link>,
    disks: Vec<Value>,
    filesystems: Vec<Value>,
    raid: Vec<Value>,
    luks: Vec<Value>,
}

#[derive(Deserialize)]
struct File {
    path: String,
    mode: Option<u32>,
    #[serde(default)]
    user: Owner,
    #[serde(default)]
    group: Owner,
    #[serde(default)]
    contents: Option<Contents>,
    /// A flag in version 2, a list of contents in version 3.
    #[serde(default)]
    append: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Contents {
    source: Option<String>,
    compression: Option<String>,
}

#[derive(Deserialize)]
struct Folder {
    path: String,
    mode: Option<u32>,
    #[serde(default)]
    user: Owner,
    #[serde(default)]
    group: Owner,
}

#[derive(Deserialize)]
struct Link {
    path: String,
    target: String,
    #[serde(default)]
    hard: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Owner {
    id: Option<u32>,
    name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Units {
    units: Vec<Unit>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Unit {
    name: String,
    contents: Option<String>,
    enabled: Option<bool>,
    /// The older name of `enabled`.
    enable: Option<bool>,
    mask: Option<bool>,
    dropins: Vec<DropIn>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DropIn {
    name: String,
    contents: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Passwd {
    users: Vec<Account>,
    groups: Vec<Group>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Account {
    name: String,
    password_hash: Option<String>,
    ssh_authorized_keys: Option<Vec<String>>,
    gecos: Option<String>,
    home_dir: Option<String>,
    primary_group: Option<String>,
    groups: Option<Value>,
    shell: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Group {
    name: String,
}

/// Translates a document.
///
/// # Errors
/// `InvalidSpec` with the place of the error, and without any content.
pub(super) fn translate(text: &str, machine: &Machine) -> Result<Script, Error> {
    let config: Config = serde_json::from_str(text)
        .map_err(|error| wrong_at(&format!("line {}", error.line()), "valid Ignition in JSON"))?;
    if !matches!(config.ignition.version.split('.').next(), Some("2" | "3")) {
        return Err(wrong_at("ignition.version", "version 2 or 3"));
    }
    let mut script = Script::default();
    ignore(&mut script, &config);
    for group in &config.passwd.groups {
        script.run(format!("groupadd -f {} || true\n", quote(&group.name)));
    }
    for account in config.passwd.users {
        users::add(&mut script, &account.into());
    }
    for folder in config.storage.directories {
        let entry = Entry::folder(folder.path.trim_start_matches('/'), folder.mode.unwrap_or(0o755));
        add(&mut script, entry, &folder.user, &folder.group, Script::write);
    }
    let settings = kubeadm::KubeadmSettings::new(machine.image_mode);
    let mut files = Vec::new();
    for (index, file) in config.storage.files.into_iter().enumerate() {
        files.extend(file.parse(index, settings)?);
    }
    let ignores_all = files.iter().any(|file| kubeadm::ignores_all_errors(&file.entry));
    for mut file in files {
        if file.entry.path == KUBEADM_SCRIPT {
            adapt_script(&mut file.entry, ignores_all);
        }
        let owner_is_known = file.user.id.is_some() && file.group.id.is_some();
        let sets = Sets { permissions: file.sets_mode, owner: owner_is_known };
        add(&mut script, file.entry, &file.user, &file.group, |script, entry| {
            if file.is_appended { script.append(entry, sets) } else { script.write(entry) }
        });
    }
    for link in config.storage.links {
        if link.hard == Some(true) {
            script.run(format!("ln -f -- {} {}\n", quote(&link.target), quote(&link.path)));
        } else {
            script.write(Entry::link(link.path.trim_start_matches('/'), link.target));
        }
    }
    units(&mut script, &config.systemd.units);
    Ok(script)
}

/// Notes the parts that have no effect.
fn ignore(script: &mut Script, config: &Config) {
    let storage = &config.storage;
    for (name, is_set) in [
        ("ignition.config", !is_empty(&config.ignition.config)),
        ("storage.disks", !storage.disks.is_empty()),
        ("storage.filesystems", !storage.filesystems.is_empty()),
        ("storage.raid", !storage.raid.is_empty()),
        ("storage.luks", !storage.luks.is_empty()),
        ("networkd.units", !config.networkd.units.is_empty()),
    ] {
        if is_set {
            script.ignore(name);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// A parsed file, or a part that is appended to one.
struct Part {
    entry: Entry,
    user: Owner,
    group: Owner,
    is_appended: bool,
    /// Whether the document sets the permissions.
    sets_mode: bool,
}

impl File {
    /// The content of the file, and the parts that are appended to it.
    fn parse(self, index: usize, settings: kubeadm::KubeadmSettings) -> Result<Vec<Part>, Error> {
        let place = format!("storage.files[{index}]");
        let path = self.path.trim_start_matches('/').to_owned();
        if !self.path.starts_with('/') || path.is_empty() {
            return Err(wrong_at(&format!("{place}.path"), "an absolute path of a file"));
        }
        let (mode, sets_mode) = (self.mode.unwrap_or(0o644), self.mode.is_some());
        let part = |content: Vec<u8>, is_appended: bool| {
            let mut entry = Entry::file(path.clone(), mode, content);
            kubeadm::adapt_file(&mut entry, settings);
            Part { entry, user: Owner::default(), group: Owner::default(), is_appended, sets_mode }
        };
        let mut parts = Vec::new();
        let is_appended = self.append == Value::Bool(true);
        let appended: Vec<Contents> = match self.append {
            Value::Array(items) => serde_json::from_value(Value::Array(items))
                .map_err(|_| wrong_at(&format!("{place}.append"), "a list of contents"))?,
            _ => Vec::new(),
        };
        // A file with only appended parts may exist in the image.
        if self.contents.is_some() || appended.is_empty() {
            let contents = self.contents.unwrap_or_default();
            parts.push(part(contents.decode(&format!("{place}.contents"))?, is_appended));
        }
        for contents in appended {
            parts.push(part(contents.decode(&format!("{place}.append"))?, true));
        }
        if let Some(first) = parts.first_mut() {
            (first.user, first.group) = (self.user, self.group);
        }
        Ok(parts)
    }
}

impl Contents {
    fn decode(self, place: &str) -> Result<Vec<u8>, Error> {
        let Some(source) = self.source.filter(|source| !source.is_empty()) else { return Ok(Vec::new()) };
        let expected = "a data URL, because this driver downloads nothing";
        let bytes = data_url(&source).ok_or_else(|| wrong_at(&format!("{place}.source"), expected))?;
        match self.compression.as_deref() {
            None | Some("") => Ok(bytes),
            Some("gzip") => gunzip(&bytes).map_err(|expected| wrong_at(place, expected)),
            Some(_) => Err(wrong_at(&format!("{place}.compression"), "gzip")),
        }
    }
}

/// The content of a data URL (RFC 2397).
fn data_url(url: &str) -> Option<Vec<u8>> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    let bytes: Vec<u8> = percent_decode_str(data).collect();
    if kind.ends_with(";base64") { STANDARD.decode(bytes).ok() } else { Some(bytes) }
}

fn add(
    script: &mut Script,
    mut entry: Entry,
    user: &Owner,
    group: &Owner,
    way: impl FnOnce(&mut Script, Entry),
) {
    let path = entry.path.clone();
    entry.uid = user.id.unwrap_or_default();
    entry.gid = group.id.unwrap_or_default();
    way(script, entry);
    let is_known = |owner: &Owner| owner.name.as_deref().is_none_or(|name| name.is_empty() || name == "root");
    if is_known(user) && is_known(group) {
        return;
    }
    let text = |owner: &Owner| {
        let name = owner.name.clone().filter(|name| !name.is_empty());
        name.unwrap_or_else(|| owner.id.unwrap_or_default().to_string())
    };
    script.own(&path, &format!("{}:{}", text(user), text(group)));
}

/// Changes the script in which a bootstrap provider runs kubeadm.
fn adapt_script(entry: &mut Entry, ignores_all: bool) {
    if let crate::archive::Content::File(content) = &mut entry.content
        && let Ok(text) = std::str::from_utf8(content)
    {
        *content = kubeadm::adapt_command(text, ignores_all).into_bytes();
    }
}

/// Writes the units, and enables or masks them. An enabled unit of one run is started and waited
/// for, so its exit code is the exit code of the step.
fn units(script: &mut Script, units: &[Unit]) {
    for unit in units {
        // An empty file would mask a unit of the image.
        if let Some(contents) = unit.contents.as_deref().filter(|contents| !contents.is_empty()) {
            script.write(Entry::file(format!("{UNITS}/{}", unit.name), 0o644, contents));
        }
        for drop_in in &unit.dropins {
            let contents = drop_in.contents.as_deref().unwrap_or_default();
            let path = format!("{UNITS}/{}.d/{}", unit.name, drop_in.name);
            script.write(Entry::file(path, 0o644, contents));
        }
    }
    if !units.is_empty() {
        script.run("systemctl daemon-reload\n");
    }
    for unit in units.iter().filter(|unit| unit.mask == Some(true)) {
        script.run(format!("systemctl mask {}\n", quote(&unit.name)));
    }
    for unit in units.iter().filter(|unit| unit.enabled.or(unit.enable) == Some(true)) {
        let name = quote(&unit.name);
        let has_contents = unit.contents.as_deref().is_some_and(|contents| !contents.is_empty());
        script.run(if has_contents {
            format!("systemctl enable --now {name}\n")
        } else {
            // A unit of the image, which this image may not have.
            format!("! systemctl cat {name} >/dev/null 2>&1 || systemctl enable --now {name}\n")
        });
    }
}

impl From<Account> for User {
    fn from(account: Account) -> Self {
        Self {
            name: account.name,
            gecos: account.gecos,
            groups: account.groups,
            homedir: account.home_dir,
            shell: account.shell,
            primary_group: account.primary_group,
            passwd: account.password_hash,
            sudo: None,
            ssh_authorized_keys: account.ssh_authorized_keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use machinist_instance::ErrorKind;
    use serde_json::json;

    use super::*;
    use crate::archive::Content;
    use crate::bootstrap::script::Step;
    use crate::bootstrap::tests::machine;

    fn shown(document: &Value) -> Vec<String> {
        let script = translate(&document.to_string(), &machine()).expect("valid");
        let mut shown = Vec::new();
        for step in script.steps {
            match step {
                Step::Run(script) => shown.push(format!("run {}", script.trim_end())),
                Step::Write(entries) => shown.extend(entries.iter().map(|entry| {
                    let content = match &entry.content {
                        Content::File(content) => format!("{:?}", String::from_utf8_lossy(content)),
                        Content::Folder => "folder".to_owned(),
                        Content::Link(target) => format!("-> {target}"),
                    };
                    format!("{:o} {}:{} {} {content}", entry.mode, entry.uid, entry.gid, entry.path)
                })),
            }
        }
        shown
    }

    #[test]
    fn version_2_files_and_units_are_translated() {
        let document = json!({
            "ignition": {"version": "2.3.0"},
            "storage": {
                "files": [
                    {"filesystem": "root", "path": "/etc/a", "mode": 384, "contents": {"source": "data:,a%20b"}},
                    {"path": "/etc/b", "append": true, "user": {"id": 7}, "group": {"name": "adm"},
                     "contents": {"source": "data:text/plain;charset=utf-8;base64,aGk="}},
                ],
                "directories": [{"path": "/srv/x", "mode": 448}],
                "links": [{"path": "/etc/c", "target": "/etc/a"}],
            },
            "systemd": {"units": [
                {"name": "kubeadm.service", "enabled": true, "contents": "[Service]\n"},
                {"name": "ntpd.service", "enabled": true},
                {"name": "x.service", "mask": true, "dropins": [{"name": "10.conf", "contents": "[Unit]\n"}]},
            ]},
        });
        assert_eq!(
            shown(&document),
            [
                "700 0:0 srv/x folder",
                r#"600 0:0 etc/a "a b""#,
                r#"600 7:0 var/lib/machinist/parts/1 "hi""#,
                "run mkdir -p /etc && cat /var/lib/machinist/parts/1 >>/etc/b && rm -f /var/lib/machinist/parts/1",
                "run chown -- 7:adm /etc/b",
                "777 0:0 etc/c -> /etc/a",
                r#"644 0:0 etc/systemd/system/kubeadm.service "[Service]\n""#,
                r#"644 0:0 etc/systemd/system/x.service.d/10.conf "[Unit]\n""#,
                "run systemctl daemon-reload",
                "run systemctl mask x.service",
                "run systemctl enable --now kubeadm.service",
                "run ! systemctl cat ntpd.service >/dev/null 2>&1 || systemctl enable --now ntpd.service",
            ]
        );
    }

    #[test]
    fn version_3_appends_a_list_of_contents() {
        let document = json!({
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,1"},
                "append": [{"source": "data:,2"}, {"source": "data:,3"}]}]},
        });
        assert_eq!(shown(&document), [r#"644 0:0 etc/a "123""#]);
    }

    #[test]
    fn the_kubeadm_script_and_its_configuration_are_adapted() {
        let document = json!({
            "ignition": {"version": "2.3.0"},
            "storage": {"files": [
                {"path": "/etc/kubeadm.sh", "mode": 448,
                 "contents": {"source": "data:,%23!%2Fbin%2Fbash%0Akubeadm%20join%20--config%20%2Fetc%2Fkubeadm.yml%0A"}},
                {"path": "/etc/kubeadm.yml", "contents": {"source": "data:,kind%3A%20JoinConfiguration%0A"}},
            ]},
        });
        let shown = shown(&document).join("\n");
        assert!(shown.contains("#!/bin/bash\\nmkdir -p /run/cluster-api"), "{shown}");
        assert!(shown.contains("kubeadm join --ignore-preflight-errors=SystemVerification"), "{shown}");
        assert!(shown.contains("containerd.sock") && shown.contains("fail-swap-on"), "{shown}");
    }

    #[test]
    fn parts_without_a_meaning_in_a_container_are_noted() {
        let document = json!({
            "ignition": {"version": "3.0.0", "config": {}},
            "storage": {"disks": [{"device": "/dev/x"}], "filesystems": [{}]},
            "networkd": {"units": [{"name": "a.network"}]},
        });
        let script = translate(&document.to_string(), &machine()).expect("valid");
        assert_eq!(script.ignored, ["storage.disks", "storage.filesystems", "networkd.units"]);
        assert_eq!(script.steps, []);
    }

    #[test]
    fn users_are_created_before_files() {
        let document = json!({
            "ignition": {"version": "2.3.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}], "groups": [{"name": "g"}]},
            "storage": {"files": [{"path": "/a", "contents": {}}]},
        });
        let shown = shown(&document);
        assert!(
            shown[0].starts_with("run groupadd -f g") && shown[1].contains("useradd -m core"),
            "{shown:?}"
        );
        assert_eq!(shown[2], r#"644 0:0 a """#);
    }

    #[test]
    fn errors_name_the_place_and_quote_nothing() {
        let file = |contents: Value| {
            json!({"ignition": {"version": "2.3.0"}, "storage": {"files": [{"path": "/a", "contents": contents}]}})
                .to_string()
        };
        let cases = [
            ("{canary".to_owned(), "bootstrap data, line 1: expected valid Ignition"),
            (
                json!({"ignition": {"version": "4.0.0"}}).to_string(),
                "bootstrap data, ignition.version: expected",
            ),
            (
                file(json!({"source": "https://canary"})),
                "bootstrap data, storage.files[0].contents.source: expected",
            ),
            (
                file(json!({"source": "data:,canary", "compression": "gzip"})),
                "bootstrap data, storage.files[0].contents: expected gzip",
            ),
        ];
        for (text, expected) in cases {
            let error = translate(&text, &machine()).expect_err(expected);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.starts_with(expected) && !error.message.contains("canary"), "{error}");
        }
    }
}
