//! Certificates and SSH keys.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{LabelMap, listed};

/// A certificate for the HTTPS services of load balancers. The private key is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Id of the certificate.
    pub id: i64,
    /// Project of the certificate.
    pub project: String,
    /// Name of the certificate, unique in its project.
    pub name: String,
    /// When the certificate was created.
    pub created: Timestamp,
    /// User-defined labels.
    pub labels: LabelMap,
    /// Where the certificate comes from.
    #[serde(rename = "type")]
    pub kind: CertificateType,
    /// Names that the certificate is valid for.
    pub domain_names: Vec<String>,
    /// The certificate chain, PEM; absent until a managed certificate is issued.
    pub certificate: Option<String>,
}

listed!(Certificate);

/// The origin of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateType {
    /// The user uploaded the certificate.
    Uploaded,
    /// The cloud issues and renews the certificate.
    Managed,
}

/// A public SSH key. New servers accept it, and nothing else uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshKey {
    /// Id of the key.
    pub id: i64,
    /// Project of the key.
    pub project: String,
    /// Name of the key, unique in its project.
    pub name: String,
    /// When the key was created.
    pub created: Timestamp,
    /// User-defined labels.
    pub labels: LabelMap,
    /// The key in the format of OpenSSH.
    pub public_key: String,
}

listed!(SshKey);
