//! The key that signs tokens.

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

/// A key for tokens of ServiceAccounts (ECDSA over P-256). Clones are the same key.
#[derive(Clone)]
pub struct TokenKey(Arc<Held>);

struct Held {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    pem: String,
    id: String,
}

/// A key could not be made, read or used. The messages never quote it.
#[derive(Debug, thiserror::Error)]
#[error("token key: expected a private ECDSA key over P-256 in PEM (PKCS#8)")]
pub struct TokenKeyError;

impl fmt::Debug for TokenKey {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKey").field("id", &self.0.id).finish_non_exhaustive()
    }
}

impl TokenKey {
    /// A new key.
    ///
    /// # Errors
    /// When there is no randomness to make one from.
    pub fn generate() -> Result<Self, TokenKeyError> {
        Self::of(&KeyPair::generate().map_err(|_| TokenKeyError)?)
    }

    /// A key that was written down with [`TokenKey::pem`].
    ///
    /// # Errors
    /// When the text holds no such key.
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

    /// The private key in PEM. Whoever has it can be every ServiceAccount.
    pub fn pem(&self) -> &str {
        &self.0.pem
    }

    /// The key's name in tokens.
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

    /// The public key's two coordinates, of 32 bytes each.
    pub(crate) fn coordinates(&self) -> (&[u8], &[u8]) {
        // After the mark of an uncompressed point.
        let point = self.0.pair.public_key().as_ref().get(1..).unwrap_or_default();
        point.split_at(point.len() / 2)
    }
}
