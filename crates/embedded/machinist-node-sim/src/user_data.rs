//! Reads a machine's token and name from its user data.
//!
//! The accepted format is cloud-config, as in classes for Go MCM: YAML with the first line
//! `#cloud-config`, and `write_files`. Three files are read; all other files and all other keys are
//! ignored:
//!
//! ```yaml
//! #cloud-config
//! write_files:
//! - path: /var/lib/bootstrap-token
//!   content: abcdef.0123456789abcdef     # where a class says <<BOOTSTRAP_TOKEN>>
//! - path: /etc/machine-name
//!   content: workers-7cb75-bjhxp         # where a class says <<MACHINE_NAME>>; optional
//! - path: /etc/default/kubelet           # optional
//!   content: KUBELET_EXTRA_ARGS=--cloud-provider=external
//! ```
//!
//! `encoding: b64` (or `base64`) on a file is supported. White space around a content is removed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_instance::{NodeName, UserData};
use serde::Deserialize;

use crate::Kubelet;

const TOKEN_PATH: &str = "/var/lib/bootstrap-token";
const NAME_PATH: &str = "/etc/machine-name";
const KUBELET_PATH: &str = "/etc/default/kubelet";

/// The data that a machine boots from.
#[derive(Debug, Clone)]
pub struct BootData {
    /// The machine's credential at the API server until it has a certificate.
    pub token: BootstrapToken,
    /// The name of the Node; if absent, the instance's name.
    pub name: Option<NodeName>,
    /// The flags of the kubelet.
    pub kubelet: Kubelet,
}

/// A bootstrap token, `id.secret`. `Debug` prints its id only.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken(String);

impl BootstrapToken {
    /// The id of the token, which is not secret.
    pub fn id(&self) -> &str {
        self.0.split_once('.').map_or("", |(id, _)| id)
    }

    /// The whole token, only for the `Authorization` header.
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let (id, secret) = text.split_once('.')?;
        let is_token = id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret);
        is_token.then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({}.…)", self.id())
    }
}

/// Why a machine cannot boot from its user data. The messages quote nothing, because user data
/// holds secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The user data is empty.
    #[error("user data: expected #cloud-config, but it is empty")]
    Empty,
    /// The user data is not cloud-config.
    #[error("user data: expected YAML that begins with #cloud-config")]
    NotCloudConfig,
    /// The YAML is invalid.
    #[error("user data: expected cloud-config with write_files, a list of path and content")]
    Syntax,
    /// A required file has another encoding.
    #[error("user data: write_files {0}: expected content that is plain text or, with encoding b64, base64")]
    Encoding(&'static str),
    /// The file with the token is missing.
    #[error("user data: write_files: expected {TOKEN_PATH}")]
    NoToken,
    /// The token file holds no token, for example because a placeholder was not replaced.
    #[error(
        "user data: write_files {TOKEN_PATH}: expected a bootstrap token, 6 characters of a-z0-9, a dot, and 16 characters of a-z0-9"
    )]
    NotAToken,
}

#[derive(Deserialize)]
struct CloudConfig {
    #[serde(default)]
    write_files: Vec<WriteFile>,
}

#[derive(Deserialize)]
struct WriteFile {
    path: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    encoding: Option<String>,
}

impl BootData {
    /// Parses user data.
    ///
    /// # Errors
    /// When the user data is not valid cloud-config or has no valid token.
    pub fn parse(user_data: &UserData) -> Result<Self, UserDataError> {
        if user_data.expose().is_empty() {
            return Err(UserDataError::Empty);
        }
        let text = std::str::from_utf8(user_data.expose()).map_err(|_| UserDataError::NotCloudConfig)?;
        if text.lines().next().map(str::trim_end) != Some("#cloud-config") {
            return Err(UserDataError::NotCloudConfig);
        }
        let config: CloudConfig = serde_saphyr::from_str(text).map_err(|_| UserDataError::Syntax)?;
        let token = file(&config, TOKEN_PATH)?.ok_or(UserDataError::NoToken)?;
        let token = BootstrapToken::parse(&token).ok_or(UserDataError::NotAToken)?;
        let name = file(&config, NAME_PATH)?.and_then(NodeName::new);
        let kubelet = file(&config, KUBELET_PATH)?.map(|text| Kubelet::parse(&text)).unwrap_or_default();
        Ok(Self { token, name, kubelet })
    }
}

/// The content of the last file of that path, because cloud-init writes the files in order.
fn file(config: &CloudConfig, path: &'static str) -> Result<Option<String>, UserDataError> {
    let Some(file) = config.write_files.iter().rfind(|file| file.path == path) else { return Ok(None) };
    let content = file.content.as_deref().unwrap_or_default().trim();
    match file.encoding.as_deref() {
        None | Some("text/plain") => Ok(Some(content.to_owned())),
        Some("b64" | "base64") => STANDARD
            .decode(content)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .map(|text| Some(text.trim().to_owned()))
            .ok_or(UserDataError::Encoding(path)),
        Some(_) => Err(UserDataError::Encoding(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BootData, UserDataError> {
        BootData::parse(&UserData::new(text))
    }

    fn with_token(content: &str) -> String {
        format!("#cloud-config\nwrite_files:\n- path: /var/lib/bootstrap-token\n  content: {content}\n")
    }

    #[test]
    fn user_data_with_a_token_and_a_name_is_parsed() {
        let text = with_token("626a68.h1ux0hjsri1jgwro")
            + "- path: /etc/machine-name\n  content: w-7cb75-bjhxp\nruncmd: [reboot]\n";
        let data = parse(&text).expect("valid");
        assert_eq!(data.token.expose(), "626a68.h1ux0hjsri1jgwro");
        assert_eq!(data.name, NodeName::new("w-7cb75-bjhxp"));
        assert!(!format!("{data:?}").contains("h1ux0hjsri1jgwro"));
    }

    #[test]
    fn the_flags_of_the_kubelet_are_parsed() {
        let flags = "KUBELET_EXTRA_ARGS=--cloud-provider=external";
        let text = with_token("626a68.h1ux0hjsri1jgwro")
            + &format!("- {{path: {KUBELET_PATH}, content: {flags}}}\n");
        let kubelet = parse(&text).expect("valid").kubelet;
        assert_eq!(kubelet.cloud_provider, crate::CloudProvider::External);
    }

    #[test]
    fn a_token_that_looks_like_a_number_keeps_its_digits() {
        for token in ["123456.0123456789012345", "1234e5.0000000000000000", "000000.0000000000000000"] {
            assert_eq!(parse(&with_token(token)).expect(token).token.expose(), token);
        }
    }

    #[test]
    fn base64_content_is_decoded() {
        let text = with_token("NjI2YTY4LmgxdXgwaGpzcmkxamd3cm8=\n  encoding: b64");
        assert_eq!(parse(&text).expect("valid").token.id(), "626a68");
    }

    #[test]
    fn errors_say_what_they_expect_and_quote_nothing() {
        let cases = [
            (String::new(), UserDataError::Empty),
            ("#!/bin/sh\necho canary".to_owned(), UserDataError::NotCloudConfig),
            ("#cloud-config\nwrite_files: canary".to_owned(), UserDataError::Syntax),
            ("#cloud-config\nwrite_files: []".to_owned(), UserDataError::NoToken),
            (with_token("<<BOOTSTRAP_TOKEN>>"), UserDataError::NotAToken),
            (with_token("canary.canary"), UserDataError::NotAToken),
            (with_token("canary\n  encoding: gzip"), UserDataError::Encoding(TOKEN_PATH)),
        ];
        for (text, expected) in cases {
            let error = parse(&text).expect_err(&text);
            assert_eq!(error, expected, "{text}");
            assert!(error.to_string().contains("expected") && !error.to_string().contains("canary"));
        }
    }
}
