//! Keys and certificates of one cluster: one CA for everything, and as few files as the programs
//! need.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// Identity files of a cluster, all readable by the owner only.
pub(super) struct Pki {
    folder: PathBuf,
    ca_certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Subject of a client certificate.
pub(super) struct Subject {
    pub(super) user: &'static str,
    pub(super) group: Option<&'static str>,
}

impl Pki {
    /// Creates the CA, the serving certificate of kube-apiserver, and the key that signs service
    /// account tokens.
    pub(super) fn create(folder: &Path, service_address: Ipv4Addr) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("machinist-real-lane", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let ca_certificate = params.self_signed(&key)?.pem();
        let ca_key = key.serialize_pem();
        let pki = Self { folder: folder.to_owned(), ca_certificate, issuer: Issuer::new(params, key) };

        write_private(&pki.ca_file(), pki.ca_certificate.as_bytes())?;
        write_private(&pki.ca_key_file(), ca_key.as_bytes())?;
        pki.write_serving_certificate(service_address)?;
        let tokens = KeyPair::generate()?;
        write_private(&pki.service_account_key_file(), tokens.serialize_pem().as_bytes())?;
        write_private(&pki.service_account_public_key_file(), tokens.public_key_pem().as_bytes())?;
        Ok(pki)
    }

    fn write_serving_certificate(&self, service_address: Ipv4Addr) -> Result<()> {
        let names = [
            Ipv4Addr::LOCALHOST.to_string(),
            "localhost".to_owned(),
            service_address.to_string(),
            "kubernetes.default.svc".to_owned(),
        ];
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = name("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        write_private(&self.serving_file(), params.signed_by(&key, &self.issuer)?.pem().as_bytes())?;
        write_private(&self.serving_key_file(), key.serialize_pem().as_bytes())
    }

    /// Writes a self-contained kubeconfig, because other programs may copy it.
    pub(super) fn write_kubeconfig(
        &self,
        file: &Path,
        cluster: &str,
        server: &str,
        subject: &Subject,
    ) -> Result<()> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(subject.user, subject.group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        let user = subject.user;
        let [ca, certificate, key] =
            [&self.ca_certificate, &certificate, &key.serialize_pem()].map(|pem| BASE64_STANDARD.encode(pem));
        let text = format!(
            r#"apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: "{user}"
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: "{user}"
current-context: {cluster}
"#
        );
        write_private(file, text.as_bytes())
    }

    pub(super) fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub(super) fn ca_key_file(&self) -> PathBuf {
        self.folder.join("ca.key")
    }

    pub(super) fn serving_file(&self) -> PathBuf {
        self.folder.join("serving.crt")
    }

    pub(super) fn serving_key_file(&self) -> PathBuf {
        self.folder.join("serving.key")
    }

    pub(super) fn service_account_key_file(&self) -> PathBuf {
        self.folder.join("service-account.key")
    }

    pub(super) fn service_account_public_key_file(&self) -> PathBuf {
        self.folder.join("service-account.pub")
    }
}

fn name(user: &str, group: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name
}

fn write_private(file: &Path, content: &[u8]) -> Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut opened| opened.write_all(content))
        .with_context(|| format!("cannot write {}", file.display()))
}
