//! cloud-config: files and commands. Pure.
//!
//! Modules run in the fixed order of cloud-init, not in the order of the document: `bootcmd`,
//! `write_files`, `users`, `ntp`, deferred `write_files`, `runcmd`. A failing command ends the
//! bootstrap, so that its exit code is the result.

use std::collections::BTreeMap;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use machinist_instance::Error;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::script::{Script, Sets, join};
use super::users::{self, User};
use super::{Machine, jinja, kubeadm, wrong, wrong_at};
use crate::archive::Entry;

/// Limit for decompressed content. Bootstrap data itself is at most 1 MiB.
const MAX_CONTENT_LEN: u64 = 64 * 1024 * 1024;

const NTP_FILE: &str = "etc/systemd/timesyncd.conf.d/machinist.conf";

/// The modules that have an effect here.
const MODULES: &[&str] = &["write_files", "bootcmd", "runcmd", "users", "ntp"];

#[derive(Deserialize, Default)]
#[serde(default)]
struct CloudConfig {
    write_files: Option<Vec<WriteFile>>,
    bootcmd: Option<Vec<Value>>,
    runcmd: Option<Vec<Value>>,
    users: Option<Vec<Value>>,
    ntp: Option<Ntp>,
}

#[derive(Deserialize)]
struct WriteFile {
    path: String,
    content: Option<String>,
    encoding: Option<String>,
    owner: Option<String>,
    permissions: Option<String>,
    append: Option<bool>,
    defer: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ntp {
    enabled: Option<bool>,
    servers: Option<Vec<String>>,
    pools: Option<Vec<String>>,
}

/// Translates a document.
///
/// # Errors
/// `InvalidSpec` with the place of the error, and without any content.
pub(super) fn translate(text: &str, machine: &Machine) -> Result<Script, Error> {
    let (text, unknown_expressions) = jinja::render(text, machine);
    let names: Option<BTreeMap<String, IgnoredAny>> = parse(&text)?;
    let config: Option<CloudConfig> = parse(&text)?;
    let config = config.unwrap_or_default();
    let mut script = Script::default();
    for name in names.unwrap_or_default().into_keys().filter(|name| !MODULES.contains(&name.as_str())) {
        script.ignore(name);
    }
    if 0 < unknown_expressions {
        script.ignore(format!("{unknown_expressions} expressions of the template"));
    }
    let files = config.write_files.unwrap_or_default();
    let settings = kubeadm::KubeadmSettings::new(machine.image_mode);
    let files: Vec<ParsedFile> = files
        .into_iter()
        .enumerate()
        .map(|(index, file)| ParsedFile::parse(index, file, settings))
        .collect::<Result<_, _>>()?;
    let ignores_all = files.iter().any(|file| kubeadm::ignores_all_errors(&file.entry));
    let command = |command: &str| kubeadm::adapt_command(command, ignores_all);
    for (index, item) in config.bootcmd.unwrap_or_default().iter().enumerate() {
        run(&mut script, "bootcmd", index, item, &command)?;
    }
    let (deferred, files): (Vec<ParsedFile>, Vec<ParsedFile>) =
        files.into_iter().partition(|file| file.is_deferred);
    for file in files {
        file.add_to(&mut script);
    }
    for (index, item) in config.users.unwrap_or_default().into_iter().enumerate() {
        match item {
            // The user of the image.
            Value::String(name) if name == "default" => script.ignore("users.default"),
            item => {
                let expected = "a user with a name, for example {name: admin}";
                let user: User = serde_json::from_value(item)
                    .map_err(|_| wrong_at(&format!("users[{index}]"), expected))?;
                users::add(&mut script, &user);
            }
        }
    }
    ntp(&mut script, config.ntp);
    for file in deferred {
        file.add_to(&mut script);
    }
    for (index, item) in config.runcmd.unwrap_or_default().iter().enumerate() {
        run(&mut script, "runcmd", index, item, &command)?;
    }
    Ok(script)
}

/// Parses YAML. The message has only the line of an error: the text may contain a secret.
fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Error> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        match error.location().map(|location| location.line()).filter(|line| 0 < *line) {
            Some(line) => wrong_at(&format!("line {line}"), "valid cloud-config in YAML"),
            None => wrong("valid cloud-config in YAML"),
        }
    })
}

/// A parsed file.
struct ParsedFile {
    entry: Entry,
    /// The owner, if the container must look up its names.
    owner: Option<String>,
    is_appended: bool,
    is_deferred: bool,
    /// The properties that the document sets. The others have defaults.
    sets: Sets,
}

impl ParsedFile {
    fn parse(index: usize, file: WriteFile, settings: kubeadm::KubeadmSettings) -> Result<Self, Error> {
        let place = |field: &str| format!("write_files[{index}].{field}");
        let path = file.path.trim();
        if !path.starts_with('/') || path.ends_with('/') {
            return Err(wrong_at(&place("path"), "an absolute path of a file"));
        }
        let mut sets = Sets { permissions: file.permissions.is_some(), owner: file.owner.is_some() };
        let mode = file.permissions.as_deref().map_or(Some(0o644), mode);
        let mode =
            mode.ok_or_else(|| wrong_at(&place("permissions"), "an octal number, for example '0640'"))?;
        let content = file.content.unwrap_or_default();
        let content = decode(&content, file.encoding.as_deref().unwrap_or_default())
            .map_err(|expected| wrong_at(&place("content"), expected))?;
        let owner = file.owner.unwrap_or_else(|| "root:root".to_owned());
        let mut entry = Entry::file(path.trim_start_matches('/'), mode, content);
        let ids = ids(&owner);
        // The container looks up the names of another owner.
        sets.owner &= ids.is_some();
        if let Some((uid, gid)) = ids {
            (entry.uid, entry.gid) = (uid, gid);
        }
        kubeadm::adapt_file(&mut entry, settings);
        Ok(Self {
            entry,
            owner: ids.is_none().then_some(owner),
            is_appended: file.append == Some(true),
            is_deferred: file.defer == Some(true),
            sets,
        })
    }

    fn add_to(self, script: &mut Script) {
        let path = self.entry.path.clone();
        if self.is_appended {
            script.append(self.entry, self.sets)
        } else {
            script.write(self.entry)
        }
        if let Some(owner) = self.owner {
            script.own(&path, &owner);
        }
    }
}

/// Parses octal permissions.
pub(super) fn mode(text: &str) -> Option<u32> {
    let digits = text.trim().trim_start_matches("0o");
    u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777)
}

/// The numbers of an owner, if they are known without the container.
fn ids(owner: &str) -> Option<(u32, u32)> {
    let number = |name: &str| if name == "root" { Some(0) } else { name.parse().ok() };
    let (user, group) = owner.split_once(':').unwrap_or((owner, "root"));
    Some((number(user)?, number(group)?))
}

/// Decodes the content of a file.
fn decode(content: &str, encoding: &str) -> Result<Vec<u8>, &'static str> {
    let base64 = || {
        let text: String = content.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
        STANDARD.decode(text).map_err(|_| "base64")
    };
    match encoding.trim().to_ascii_lowercase().as_str() {
        "" | "text/plain" => Ok(content.as_bytes().to_vec()),
        "b64" | "base64" => base64(),
        "gz" | "gzip" => gunzip(content.as_bytes()),
        "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64" => gunzip(&base64()?),
        _ => Err("one of the encodings text/plain, b64, gzip and gz+b64"),
    }
}

/// Decompresses gzip.
pub(super) fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut content = Vec::new();
    let read = MultiGzDecoder::new(bytes).take(MAX_CONTENT_LEN + 1).read_to_end(&mut content);
    match read {
        Ok(_) if content.len() as u64 <= MAX_CONTENT_LEN => Ok(content),
        Ok(_) => Err("at most 64 MiB of decompressed content"),
        Err(_) => Err("gzip"),
    }
}

/// Adds one command: a text for the shell, or a list of words.
fn run(
    script: &mut Script,
    module: &str,
    index: usize,
    item: &Value,
    adapt: &impl Fn(&str) -> String,
) -> Result<(), Error> {
    let expected = || wrong_at(&format!("{module}[{index}]"), "a text or a list of texts");
    let word = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let command = match item {
        Value::Null => return Ok(()),
        Value::Array(words) => {
            let words: Option<Vec<String>> = words.iter().map(word).collect();
            join(&words.ok_or_else(expected)?)
        }
        item => word(item).ok_or_else(expected)?,
    };
    if !command.trim().is_empty() {
        script.run(adapt(&command));
    }
    Ok(())
}

fn ntp(script: &mut Script, ntp: Option<Ntp>) {
    let Some(ntp) = ntp.filter(|ntp| ntp.enabled != Some(false)) else { return };
    let servers = [ntp.servers.unwrap_or_default(), ntp.pools.unwrap_or_default()].concat();
    let is_name = |server: &String| !server.is_empty() && !server.contains(char::is_whitespace);
    let servers: Vec<String> = servers.into_iter().filter(is_name).collect();
    if !servers.is_empty() {
        let content = format!("[Time]\nNTP={}\n", servers.join(" "));
        script.write(Entry::file(NTP_FILE, 0o644, content));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use machinist_instance::ErrorKind;

    use super::*;
    use crate::archive::Content;
    use crate::bootstrap::script::Step;
    use crate::bootstrap::tests::machine;

    fn script(text: &str) -> Script {
        translate(text, &machine()).expect("valid")
    }

    /// The files and scripts in order, as text.
    fn shown(text: &str) -> Vec<String> {
        let mut shown = Vec::new();
        for step in script(text).steps {
            match step {
                Step::Run(script) => shown.push(format!("run {}", script.trim_end())),
                Step::Write(entries) => shown.extend(entries.iter().map(|entry| {
                    let Content::File(content) = &entry.content else { panic!("only files") };
                    let content = String::from_utf8_lossy(content);
                    format!("{:o} {}:{} {} {content:?}", entry.mode, entry.uid, entry.gid, entry.path)
                })),
            }
        }
        shown
    }

    #[test]
    fn modules_run_in_a_fixed_order() {
        let text = "#cloud-config\nruncmd: [echo run]\nwrite_files:\n- {path: /late, content: l, defer: true}\n\
                    - {path: /early, content: e}\nntp: {servers: [a, b]}\nbootcmd:\n- [echo, boot it]\n";
        assert_eq!(
            shown(text),
            [
                "run echo 'boot it'",
                r#"644 0:0 early "e""#,
                r#"644 0:0 etc/systemd/timesyncd.conf.d/machinist.conf "[Time]\nNTP=a b\n""#,
                r#"644 0:0 late "l""#,
                "run echo run",
            ]
        );
    }

    #[test]
    fn all_encodings_are_decoded() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"hello").expect("in memory");
        let gzip = STANDARD.encode(gzip.finish().expect("in memory"));
        for (encoding, content) in [
            ("text/plain", "hello"),
            ("b64", "aGVsbG8="),
            ("base64", "aGVs bG8="),
            ("gz+b64", &gzip),
            ("gzip+base64", &gzip),
            ("GZ+BASE64", &gzip),
        ] {
            let text =
                format!("write_files:\n- {{path: /a, encoding: {encoding}, content: \"{content}\"}}\n");
            assert_eq!(shown(&text), [r#"644 0:0 a "hello""#], "{encoding}");
        }
        assert!(decode("aGVsbG8=", "gz+b64").is_err());
        assert!(decode("", "rot13").is_err());
    }

    #[test]
    fn owner_and_permissions_are_kept() {
        let text = "write_files:\n- {path: /a, permissions: '0600', owner: '7:8'}\n- {path: /b, permissions: 0755}\n\
                    - {path: /c, owner: etcd:etcd}\n";
        assert_eq!(
            shown(text),
            [r#"600 7:8 a """#, r#"755 0:0 b """#, r#"644 0:0 c """#, "run chown -- etcd:etcd /c"]
        );
    }

    #[test]
    fn appended_parts_keep_their_order() {
        let text = "write_files:\n- {path: /a, content: '1'}\n- {path: /a, content: '2', append: true}\n";
        assert_eq!(shown(text), [r#"644 0:0 a "12""#]);
    }

    #[test]
    fn an_appended_part_sets_permissions_and_owner() {
        let text = "write_files:\n- {path: /a, content: '1', permissions: '0600'}\n\
                    - {path: /a, content: '2', append: true}\n\
                    - {path: /b, content: '1'}\n\
                    - {path: /b, content: '2', append: true, permissions: '0755', owner: '7:8'}\n";
        assert_eq!(shown(text), [r#"600 0:0 a "12""#, r#"755 7:8 b "12""#]);
        // The image may have the file.
        let text = "write_files:\n- {path: /etc/hosts, content: '1', append: true, permissions: '0640', \
                    owner: '7:8'}\n- {path: /etc/fstab, content: '2', append: true}\n";
        assert_eq!(
            shown(text),
            [
                r#"600 7:8 var/lib/machinist/parts/0 "1""#,
                "run mkdir -p /etc && cat /var/lib/machinist/parts/0 >>/etc/hosts && rm -f \
                 /var/lib/machinist/parts/0 && chown 7:8 /etc/hosts && chmod 640 /etc/hosts",
                r#"600 0:0 var/lib/machinist/parts/2 "2""#,
                "run mkdir -p /etc && cat /var/lib/machinist/parts/2 >>/etc/fstab && rm -f \
                 /var/lib/machinist/parts/2",
            ]
        );
    }

    #[test]
    fn unknown_modules_and_expressions_are_noted() {
        let text = "## template: jinja\n#cloud-config\ndisk_setup: {/dev/x: {layout: true}}\nmounts: [[a, b]]\n\
                    swap: {}\nruncmd: ['echo {{ ds.meta_data.instance_id }} {{ x }}']\nfs_setup: []\n";
        let script = script(text);
        assert_eq!(
            script.ignored,
            ["disk_setup", "fs_setup", "mounts", "swap", "1 expressions of the template"]
        );
        assert_eq!(script.steps, [Step::Run("echo c1-w-1 {{ x }}".to_owned())]);
    }

    #[test]
    fn empty_documents_and_commands_have_no_effect() {
        assert_eq!(script("#cloud-config\n"), Script::default());
        assert_eq!(script("runcmd: ['', [], null, ' ']\nwrite_files:\n").steps, []);
        assert_eq!(shown("runcmd: [[sleep, 5], [test, true]]"), ["run sleep 5", "run test true"]);
    }

    #[test]
    fn errors_name_the_place_and_quote_nothing() {
        let cases = [
            ("runcmd: [canary\n", "bootstrap data, line "),
            ("runcmd: canary\n", "bootstrap data, line 1: expected valid"),
            ("write_files:\n- {path: canary}\n", "bootstrap data, write_files[0].path: expected an absolute"),
            (
                "write_files:\n- {path: /a, content: canary!, encoding: b64}\n",
                "bootstrap data, write_files[0].content: expected base64",
            ),
            (
                "write_files:\n- {path: /a, permissions: canary}\n",
                "bootstrap data, write_files[0].permissions: expected an octal",
            ),
            ("runcmd: [{canary: a}]\n", "bootstrap data, runcmd[0]: expected a text"),
            ("users: [{canary: a}]\n", "bootstrap data, users[0]: expected a user"),
        ];
        for (text, expected) in cases {
            let error = translate(text, &machine()).expect_err(expected);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.starts_with(expected), "{error}");
            assert!(!error.message.contains("canary"), "{error}");
        }
    }
}
