//! The keys that the server signs with: its certificate authority and the key of tokens.

use std::sync::{Arc, OnceLock};

use crate::values::clock::Clock;
use crate::values::tls::{CertificateAuthority, TlsError};
use crate::values::token_key::{TokenKey, TokenKeyError};

/// Both keys. A key that the configuration lacks is generated on first use.
#[derive(Debug)]
pub(crate) struct Keys {
    clock: Arc<dyn Clock>,
    ca: OnceLock<CertificateAuthority>,
    token_key: OnceLock<TokenKey>,
}

impl Keys {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        ca: Option<CertificateAuthority>,
        token_key: Option<TokenKey>,
    ) -> Self {
        Keys {
            clock,
            ca: ca.map(OnceLock::from).unwrap_or_default(),
            token_key: token_key.map(OnceLock::from).unwrap_or_default(),
        }
    }

    /// The cluster's certificate authority.
    pub(crate) fn ca(&self) -> Result<&CertificateAuthority, TlsError> {
        if let Some(ca) = self.ca.get() {
            return Ok(ca);
        }
        let ca = CertificateAuthority::generate(self.clock.now())?;
        Ok(self.ca.get_or_init(|| ca))
    }

    /// The key that signs the tokens of ServiceAccounts.
    pub(crate) fn token_key(&self) -> Result<&TokenKey, TokenKeyError> {
        if let Some(key) = self.token_key.get() {
            return Ok(key);
        }
        let key = TokenKey::generate()?;
        Ok(self.token_key.get_or_init(|| key))
    }
}
