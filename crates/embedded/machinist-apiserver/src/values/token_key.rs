//! The key that signs ServiceAccount tokens.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData as _};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use sha2::{Digest as _, Sha256};

/// A key for tokens of ServiceAccounts (ECDSA over P-256). Clones share the key.
#[derive(Clone)]
pub struct TokenKey(Arc<Held>);

struct Held {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    pem: String,
    id: String,
}

/// A key could not be created, read or used. The message never quotes the key.
#[derive(Debug, thiserror::Error)]
#[error("token key: expected a private ECDSA key over P-256 in PEM (PKCS#8)")]
pub struct TokenKeyError;

impl fmt::Debug for TokenKey {
    /// Formats the value without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKey").field("id", &self.0.id).finish_non_exhaustive()
    }
}

impl TokenKey {
    /// Creates a key.
    ///
    /// # Errors
    /// When the system provides no randomness.
    pub fn generate() -> Result<Self, TokenKeyError> {
        Self::of(&KeyPair::generate().map_err(|_| TokenKeyError)?)
    }

    /// Reads a key that [`TokenKey::pem`] wrote.
    ///
    /// # Errors
    /// When the text contains no such key.
    pub fn from_pem(pem: &str) -> Result<Self, TokenKeyError> {
        Self::of(&KeyPair::from_pem(pem).map_err(|_| TokenKeyError)?)
    }

    fn of(pair: &KeyPair) -> Result<Self, TokenKeyError> {
        let random = SystemRandom::new();
        let der = pair.serialize_der();
        let signing = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random);
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(pair.subject_public_key_info()));
        Ok(TokenKey(Arc::new(Held {
            pair: signing.map_err(|_| TokenKeyError)?,
            random,
            pem: pair.serialize_pem(),
            id,
        })))
    }

    /// The private key in PEM. A process with this key can impersonate every ServiceAccount.
    pub fn pem(&self) -> &str {
        &self.0.pem
    }

    /// Id of the key in tokens (`kid`).
    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    pub(crate) fn sign(&self, text: &[u8]) -> Result<Vec<u8>, TokenKeyError> {
        let signature = self.0.pair.sign(&self.0.random, text).map_err(|_| TokenKeyError)?;
        Ok(signature.as_ref().to_vec())
    }

    pub(crate) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.0.pair.public_key().as_ref());
        public.verify(text, signature).is_ok()
    }

    /// Returns the public key's two coordinates, 32 bytes each.
    pub(crate) fn coordinates(&self) -> (&[u8], &[u8]) {
        // The first byte marks an uncompressed point.
        let point = self.0.pair.public_key().as_ref().get(1..).unwrap_or_default();
        point.split_at(point.len() / 2)
    }
}
