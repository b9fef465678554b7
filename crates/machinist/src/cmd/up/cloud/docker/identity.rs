//! The name and the keys of a cluster of containers, which `--data-dir` keeps.
//!
//! ```text
//! docker/ca.key, docker/ca.crt   CA of the cluster; the control plane gets it in its bootstrap
//! data docker/cluster.json            name, engine, and the control plane container once it has
//! started docker/kubeconfig              written at each start docker/open-calls
//! exists until a run ends in order: its calls have ended before
//! ```
//!
//! The name is random and is written before anything is created. So a start after a kill finds the
//! containers of the killed one, and two clusters on one engine never have the same name.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use machinist_apiserver::CertificateAuthority;
use machinist_instance::{InstanceKey, NodeName};
use machinist_kube::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::parse_x509_pem;

use crate::wiring::{seed, set_aside};

/// Port of the API server in the control plane container.
pub(super) const API_SERVER_PORT: u16 = 6443;
/// Directory of the files, in the data directory of `up`.
pub(in crate::cmd::up) const DOCKER: &str = "docker";
/// Files that a kept cluster needs.
pub(in crate::cmd::up) const FILES: [&str; 3] = ["docker/ca.key", "docker/ca.crt", "docker/cluster.json"];
/// File with the containers that run, by id.
const RUNNING: &str = "docker/running.json";
/// File that exists from the first call of a run to its end in order.
const OPEN_CALLS: &str = "docker/open-calls";
/// Start of the name of each cluster.
pub(super) const PREFIX: &str = "machinist-";
/// Administrator of the kubeconfig, and the group that may do everything.
const ADMINISTRATOR: (&str, &str) = ("kubernetes-admin", "system:masters");
const PRIVATE_FOLDER: u32 = 0o700;

/// The identity of a cluster of containers.
#[derive(Debug)]
pub(in crate::cmd::up) struct Identity {
    /// Name of the cluster and of its network, and the label of its containers.
    pub(in crate::cmd::up) name: String,
    /// Whether an earlier run kept it.
    pub(in crate::cmd::up) is_kept: bool,
    /// Id of the control plane container, if it has ever been complete.
    pub(super) control_plane: Option<String>,
    authority: CertificateAuthority,
    /// Id of the engine that has the containers; absent for a new identity.
    engine: Option<String>,
    /// Where the identity is kept, for messages.
    folder: PathBuf,
}

/// The content of `docker/cluster.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    name: String,
    engine: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    control_plane: Option<String>,
}

impl Identity {
    /// Reads the identity of a data directory, or creates one. Writes nothing.
    ///
    /// # Errors
    /// If a file is missing or damaged. The error names it.
    pub(in crate::cmd::up) fn of(data_dir: Option<&Path>) -> anyhow::Result<Self> {
        let folder = data_dir.unwrap_or(Path::new("")).to_owned();
        let kept = data_dir.map(read).transpose()?.flatten();
        match kept {
            Some((record, authority)) => Ok(Self {
                name: record.name,
                is_kept: true,
                control_plane: record.control_plane,
                authority,
                engine: Some(record.engine),
                folder,
            }),
            None => Ok(Self {
                name: format!("{PREFIX}{:08x}", seed() & 0xffff_ffff),
                is_kept: false,
                control_plane: None,
                authority: CertificateAuthority::generate(SystemClock.now())
                    .context("cannot create the CA of the cluster")?,
                engine: None,
                folder,
            }),
        }
    }

    /// Writes the identity.
    ///
    /// # Errors
    /// If a file cannot be written. The error names it.
    pub(super) fn keep(
        &self,
        folder: &Path,
        engine: &str,
        control_plane: Option<&str>,
    ) -> anyhow::Result<()> {
        let record = Record {
            name: self.name.clone(),
            engine: engine.to_owned(),
            control_plane: control_plane.map(str::to_owned),
        };
        let record = serde_json::to_string(&record).expect("plain fields serialise");
        let texts = [self.authority.key_pem(), self.authority.certificate_pem(), &record];
        for (file, text) in FILES.into_iter().zip(texts) {
            write(&folder.join(file), text)?;
        }
        Ok(())
    }

    /// Returns the containers that ran when an earlier run last saw the engine: names by id.
    pub(super) fn running(&self, folder: &Path) -> BTreeMap<String, String> {
        let kept = fs::read_to_string(folder.join(RUNNING)).ok();
        // Without the file, only what this run sees is started again.
        kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Keeps which containers run.
    ///
    /// # Errors
    /// If the file cannot be written. The error names it.
    pub(super) fn keep_running(
        &self,
        folder: &Path,
        containers: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let text = serde_json::to_string(containers).expect("a map of texts serialises");
        write(&folder.join(RUNNING), &text)
    }

    /// Notes that a run may send calls. Returns whether an earlier run did not end in order.
    ///
    /// # Errors
    /// If the file cannot be written. The error names it.
    pub(super) fn open_calls(&self, folder: &Path) -> anyhow::Result<bool> {
        let file = folder.join(OPEN_CALLS);
        // A file that cannot be checked may exist.
        let was_killed = file.try_exists().unwrap_or(true);
        write(&file, &open_calls_note())?;
        Ok(was_killed)
    }

    /// Notes that this run ended in order, and that no call has an effect after that. A run that
    /// has begun since keeps its own note.
    pub(super) fn close_calls(&self, folder: &Path) {
        let file = folder.join(OPEN_CALLS);
        if fs::read_to_string(&file).is_ok_and(|note| note == open_calls_note()) {
            // If the file stays, the next run only waits longer.
            let _ = fs::remove_file(file);
        }
    }

    /// Checks that the engine is the engine of the containers.
    ///
    /// # Errors
    /// If it is another one: there, all machines would look deleted.
    pub(super) fn check_engine(&self, found: &str) -> anyhow::Result<()> {
        match &self.engine {
            Some(engine) if engine != found => bail!(
                "--data-dir {}: expected the engine {engine}, which has the containers of {}, but the engine {found} answers. Nothing \
                 was changed. Set DOCKER_HOST to the address of that engine, or start again by moving the directory away: {}",
                self.folder.display(),
                self.name,
                set_aside(&self.folder)
            ),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the error for a control plane container that was complete and no longer exists.
    pub(super) fn without_control_plane(&self) -> anyhow::Error {
        anyhow!(
            "--data-dir {}: container {}, the control plane, no longer exists, and the Nodes existed only there. Delete the other \
             containers, and start again by moving the directory away: {}; {}",
            self.folder.display(),
            self.control_plane_name(),
            cleanup(&self.name),
            set_aside(&self.folder)
        )
    }

    /// The name of the control plane container, which is its address in the network.
    pub(super) fn control_plane_name(&self) -> NodeName {
        NodeName::new(format!("{}-control-plane", self.name)).expect("the name is not empty")
    }

    /// The key of the control plane container.
    pub(super) fn key(&self) -> InstanceKey {
        InstanceKey::new(self.control_plane_name().to_string())
    }

    /// The CA of the cluster.
    pub(super) fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// Returns the texts that replace variables of a manifest: address, hash of the CA and image.
    ///
    /// # Errors
    /// If the certificate of the CA cannot be parsed.
    pub(in crate::cmd::up) fn variables(&self, image: &str) -> anyhow::Result<[(&'static str, String); 3]> {
        let endpoint = format!("{}:{API_SERVER_PORT}", self.control_plane_name());
        Ok([
            ("${CONTROL_PLANE_ENDPOINT}", endpoint),
            ("${CA_CERT_HASH}", self.ca_hash()?),
            ("${NODE_IMAGE}", image.to_owned()),
        ])
    }

    /// The hash of the CA's public key, as kubeadm expects it.
    fn ca_hash(&self) -> anyhow::Result<String> {
        let wrong = || anyhow!("{}: expected a certificate in PEM", self.folder.join(FILES[1]).display());
        let (_, pem) = parse_x509_pem(self.authority.certificate_pem().as_bytes()).map_err(|_| wrong())?;
        let certificate = pem.parse_x509().map_err(|_| wrong())?;
        let hash: String =
            Sha256::digest(certificate.public_key().raw).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("sha256:{hash}"))
    }

    /// Writes the kubeconfig of the administrator. Returns its path.
    ///
    /// # Errors
    /// If the certificate cannot be issued, or the file cannot be written.
    pub(super) fn write_kubeconfig(&self, folder: &Path, url: &str) -> anyhow::Result<PathBuf> {
        let (user, group) = ADMINISTRATOR;
        let issued = self.authority.issue_client(user, group, SystemClock.now());
        let issued = issued.context("cannot issue the certificate of the administrator")?;
        let base64 = |text: &str| {
            serde_json::to_string(&k8s_openapi::ByteString(text.as_bytes().to_vec()))
                .expect("a text serialises")
        };
        let name = &self.name;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters:\n- name: {name}\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {}\nusers:\n- name: {name}\n  user:\n    client-certificate-data: {}\n    client-key-data: \
             {}\ncontexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n",
            base64(self.authority.certificate_pem()),
            base64(&issued.certificate_pem),
            base64(&issued.key_pem),
        );
        let file = folder.join(DOCKER).join("kubeconfig");
        write(&file, &text)?;
        // The printed path must work from any directory.
        fs::canonicalize(&file).with_context(|| format!("cannot read {}", file.display()))
    }
}

/// The note of this run, which names its process.
fn open_calls_note() -> String {
    format!("Process {} of `machinist up` uses this directory, or was killed.\n", std::process::id())
}

/// Returns whether the directory belongs to the cluster of that name. A directory that this user
/// may not read may belong to it.
pub(super) fn is_owner(folder: &Path, name: &str) -> bool {
    match fs::read_to_string(folder.join(FILES[2])) {
        Ok(text) => serde_json::from_str::<Record>(&text).is_ok_and(|record| record.name == name),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Returns the shell command that deletes everything of a cluster.
pub(super) fn cleanup(name: &str) -> String {
    format!(
        "docker rm --force --volumes $(docker ps --all --quiet --filter label=machinist.dev/cluster={name}); docker network rm {name}"
    )
}

/// Reads the files of a data directory; `None` if there is no cluster.
fn read(data_dir: &Path) -> anyhow::Result<Option<(Record, CertificateAuthority)>> {
    let [key, certificate, record] = FILES.map(|file| data_dir.join(file));
    let Some(record_text) = text(&record)? else { return Ok(None) };
    let damaged = |file: &Path, expected: &str| {
        anyhow!(
            "--data-dir {}: {}: expected {expected}. Nothing was changed. Restore the file from a backup, or start again by moving the \
             directory away: {}",
            data_dir.display(),
            file.display(),
            set_aside(data_dir)
        )
    };
    let parsed: Record = serde_json::from_str(&record_text)
        .map_err(|_| damaged(&record, "{\"name\":\"NAME\",\"engine\":\"ID\"}"))?;
    if !is_name(&parsed.name) {
        return Err(damaged(&record, "a name of the form machinist-0123abcd"));
    }
    let key_text = text(&key)?.ok_or_else(|| damaged(&key, "the key of the CA, but the file is missing"))?;
    let expected = "the certificate of the CA";
    let certificate_text = text(&certificate)?.ok_or_else(|| damaged(&certificate, expected))?;
    let authority = CertificateAuthority::from_pem(certificate_text, key_text);
    let authority = authority.map_err(|_| damaged(&certificate, expected))?;
    Ok(Some((parsed, authority)))
}

/// Whether the text is a name that [`Identity::of`] creates. Commands in messages contain it.
pub(super) fn is_name(text: &str) -> bool {
    let number = text.strip_prefix(PREFIX).unwrap_or_default();
    number.len() == 8 && number.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn text(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Replaces a file with a file that only its owner can read.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let replace = || -> io::Result<()> {
        let folder = file.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder)?;
        // The mode of a temporary file is 0600.
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(text.as_bytes())?;
        new.as_file().sync_all()?;
        new.persist(file).map(drop).map_err(|error| error.error)
    };
    replace().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_kept_identity_is_the_same_at_the_next_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Identity::of(Some(folder.path())).expect("created");
        assert!(!first.is_kept && is_name(&first.name), "{}", first.name);
        first.keep(folder.path(), "engine-a", Some("c0ffee")).expect("written");
        let again = Identity::of(Some(folder.path())).expect("read");
        assert!(again.is_kept && is_owner(folder.path(), &first.name));
        assert_eq!((&again.name, again.control_plane.as_deref()), (&first.name, Some("c0ffee")));
        assert_eq!(again.ca_hash().expect("a hash"), first.ca_hash().expect("a hash"));
        let mode = fs::metadata(folder.path().join(FILES[0])).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(again.check_engine("engine-a").is_ok());
        let message = again.check_engine("engine-b").expect_err("another engine").to_string();
        assert!(message.contains("engine-a") && message.contains("DOCKER_HOST"), "{message}");
    }

    #[test]
    fn the_containers_that_run_are_kept_for_the_next_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Identity::of(Some(folder.path())).expect("created");
        assert!(identity.running(folder.path()).is_empty(), "an earlier version kept nothing");
        let containers = BTreeMap::from([("c0ffee".to_owned(), "worker".to_owned())]);
        identity.keep_running(folder.path(), &containers).expect("written");
        assert_eq!(identity.running(folder.path()), containers);
        fs::write(folder.path().join(RUNNING), "damaged").expect("written");
        assert!(identity.running(folder.path()).is_empty());
    }

    #[test]
    fn two_clusters_have_different_names_and_keys() {
        let [first, second] = [(), ()].map(|()| Identity::of(None).expect("created"));
        assert_ne!(first.name, second.name);
        assert_ne!(first.ca_hash().expect("a hash"), second.ca_hash().expect("a hash"));
    }

    #[test]
    fn a_damaged_file_is_named_without_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        Identity::of(None).and_then(|identity| identity.keep(folder.path(), "e", None)).expect("written");
        for (file, content) in [
            (FILES[2], Some("{\"name\": \"secret canary; rm\", \"engine\": \"e\"}")),
            (FILES[2], Some("secret canary")),
            (FILES[0], None),
        ] {
            let path = folder.path().join(file);
            let before = fs::read_to_string(&path).expect("a file");
            match content {
                Some(content) => fs::write(&path, content).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let message = Identity::of(Some(folder.path())).expect_err("refused").to_string();
            assert!(message.contains(file) && message.contains("Nothing was changed"), "{message}");
            assert!(!message.contains("canary"), "{message}");
            fs::write(&path, before).expect("written");
        }
    }

    #[test]
    fn the_kubeconfig_names_the_cluster() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Identity::of(None).expect("created");
        let file = identity.write_kubeconfig(folder.path(), "https://127.0.0.1:4711").expect("written");
        let kubeconfig = kube::config::Kubeconfig::read_from(file).expect("a kubeconfig");
        assert_eq!(kubeconfig.current_context.as_deref(), Some(identity.name.as_str()));
        let cluster = kubeconfig.clusters[0].cluster.clone().expect("a cluster");
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:4711"));
        assert!(cluster.certificate_authority_data.is_some_and(|data| data.starts_with("LS0tLS1")));
    }
}
