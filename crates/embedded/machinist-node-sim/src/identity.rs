//! A machine's key and certificate, and the files that keep them.

use std::fmt;
use std::io;

use machinist_cloud_sim::Disk;
use machinist_instance::NodeName;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Auth;

/// The file with the certificate and its key.
const IDENTITY_FILE: &str = "kubelet-client.json";
/// The file with the key of a request that is not answered yet.
const PENDING_KEY_FILE: &str = "kubelet-pending.pem";

/// A certificate and key that authenticate the Node `system:node:NAME` at the API server.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIdentity {
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// The key of the certificate, PEM.
    pub key_pem: String,
}

impl NodeIdentity {
    /// Reads the identity from the instance's disk. A machine that has an identity does not
    /// bootstrap.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn load(disk: &Disk) -> io::Result<Option<Self>> {
        let Some(bytes) = disk.read(IDENTITY_FILE)? else { return Ok(None) };
        // An empty file is a discarded identity; a damaged file is treated the same.
        Ok(serde_json::from_slice(&bytes).ok())
    }

    /// Writes the identity to the disk, so that it survives a restart of the instance and of the
    /// cloud's process.
    ///
    /// # Errors
    /// When the disk cannot be written.
    pub fn store(&self, disk: &Disk) -> io::Result<()> {
        disk.write(IDENTITY_FILE, &serde_json::to_vec(self).map_err(io::Error::other)?)
    }

    pub(crate) fn discard(disk: &Disk) -> io::Result<()> {
        disk.write(IDENTITY_FILE, b"")
    }

    pub(crate) fn auth(&self) -> Auth {
        Auth::ClientCert { cert_pem: self.certificate_pem.clone(), key_pem: self.key_pem.clone() }
    }
}

impl fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeIdentity")
    }
}

/// Source of the machines' keys.
pub trait Keys: Send + Sync {
    /// Creates the key for a machine's `attempt`-th request, from 0. After a refusal the next
    /// request has another key.
    ///
    /// # Errors
    /// When the key cannot be created.
    fn key(&self, name: &NodeName, attempt: u32) -> Result<KeyPair, rcgen::Error>;
}

/// Keys from the operating system's random numbers, as on real machines: ECDSA on P-256.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomKeys;

impl Keys for RandomKeys {
    fn key(&self, _name: &NodeName, _attempt: u32) -> Result<KeyPair, rcgen::Error> {
        KeyPair::generate()
    }
}

/// Keys from a seed, for simulations that must repeat: Ed25519. Its signatures use no random
/// numbers, so equal seeds give equal requests byte by byte. The keys are not secret, so never use
/// them as real keys.
#[derive(Debug, Clone, Copy)]
pub struct SeededKeys(pub u64);

impl Keys for SeededKeys {
    fn key(&self, name: &NodeName, attempt: u32) -> Result<KeyPair, rcgen::Error> {
        /// PKCS #8 version 1 of an Ed25519 key, up to its 32 bytes (RFC 8410, section 7).
        const PKCS8_PREFIX: [u8; 16] =
            [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        let secret = Sha256::new()
            .chain_update(self.0.to_be_bytes())
            .chain_update(attempt.to_be_bytes())
            .chain_update(name.as_str())
            .finalize();
        KeyPair::try_from([PKCS8_PREFIX.as_slice(), secret.as_slice()].concat())
    }
}

/// A key, and a request for its certificate.
pub(crate) struct SigningRequest {
    /// Name of the CertificateSigningRequest, derived from the key: the same key always has the
    /// same name.
    pub(crate) name: String,
    /// The request, PEM.
    pub(crate) request_pem: String,
    /// The key, PEM.
    pub(crate) key_pem: String,
}

impl SigningRequest {
    /// The pending request, or a new one. The key is written to the disk before the request is
    /// sent, so that an answer after a restart is still usable.
    pub(crate) fn prepare(
        disk: &Disk,
        keys: &dyn Keys,
        node: &NodeName,
        attempt: u32,
    ) -> Result<Self, PrepareError> {
        let pending = disk.read(PENDING_KEY_FILE)?.and_then(|bytes| String::from_utf8(bytes).ok());
        let key = match pending.and_then(|pem| KeyPair::from_pem(&pem).ok()) {
            Some(key) => key,
            None => {
                let key = keys.key(node, attempt)?;
                disk.write(PENDING_KEY_FILE, key.serialize_pem().as_bytes())?;
                key
            }
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
        let request_pem = params.serialize_request(&key)?.pem()?;
        let digest = Sha256::digest([node.as_str().as_bytes(), key.public_key_raw()].concat());
        let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name: format!("node-csr-{digest}"), request_pem, key_pem: key.serialize_pem() })
    }

    /// Discards the pending key, so that the next request has another key.
    pub(crate) fn forget(disk: &Disk) -> io::Result<()> {
        disk.write(PENDING_KEY_FILE, b"")
    }
}

/// Why a request could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("the disk failed: {0}")]
    Disk(#[from] io::Error),
    #[error("cannot create a key: {0}")]
    Key(#[from] rcgen::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> NodeName {
        NodeName::new("w-1").expect("not empty")
    }

    fn request(disk: &Disk, keys: &dyn Keys, attempt: u32) -> SigningRequest {
        SigningRequest::prepare(disk, keys, &name(), attempt).expect("prepared")
    }

    fn disk() -> Disk {
        use machinist_cloud_sim::{Clock, Cloud, Settings};
        let cloud = Cloud::in_memory(Settings::default(), Clock::from_fn(|| jiff::Timestamp::UNIX_EPOCH));
        cloud.disk(&machinist_instance::ProviderId::parse("sim:///i-1").expect("an id"))
    }

    #[test]
    fn seeded_keys_give_the_same_request_byte_by_byte() {
        let of = |seed, attempt| request(&disk(), &SeededKeys(seed), attempt).request_pem;
        assert_eq!(of(7, 0), of(7, 0));
        assert_ne!(of(7, 0), of(8, 0));
        assert_ne!(of(7, 0), of(7, 1));
    }

    #[test]
    fn an_unanswered_request_keeps_its_key_until_it_is_discarded() {
        let disk = disk();
        let first = request(&disk, &RandomKeys, 0);
        let second = request(&disk, &RandomKeys, 0);
        assert_eq!((&first.name, &first.key_pem), (&second.name, &second.key_pem));
        SigningRequest::forget(&disk).expect("written");
        assert_ne!(request(&disk, &RandomKeys, 1).name, first.name);
    }

    #[test]
    fn an_identity_is_kept_until_it_is_discarded() {
        let disk = disk();
        assert!(NodeIdentity::load(&disk).expect("read").is_none());
        let identity = NodeIdentity { certificate_pem: "c".to_owned(), key_pem: "k".to_owned() };
        identity.store(&disk).expect("written");
        assert_eq!(NodeIdentity::load(&disk).expect("read").expect("kept").key_pem, "k");
        NodeIdentity::discard(&disk).expect("written");
        assert!(NodeIdentity::load(&disk).expect("read").is_none());
    }
}
