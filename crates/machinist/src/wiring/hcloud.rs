//! Settings of Hetzner Cloud, from the environment variables that its other programs use.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use machinist_driver_hcloud::{HcloudOptions, HcloudProvider, OptionsError, TokenSource};

use super::credential::TokenFrom;
use crate::args::WrongFlags;

/// The variable whose file is followed while the process runs, and not read once.
const TOKEN_FILE: &str = "HCLOUD_TOKEN_FILE";

/// Reads the settings without a token, which a machine controller gets from Secrets.
///
/// # Errors
/// All wrong variables together.
pub(crate) fn options() -> anyhow::Result<HcloudOptions> {
    let variables = Variables::read()?;
    HcloudOptions::from_env(|name| variables.get(name)).map_err(wrong)
}

/// Reads the settings and the source of the token.
///
/// # Errors
/// All wrong variables together.
pub(crate) fn options_and_token() -> anyhow::Result<(HcloudOptions, TokenFrom)> {
    let variables = Variables::read()?;
    let (options, token) = HcloudOptions::from_env_with_token(|name| variables.get(name)).map_err(wrong)?;
    let token = match token {
        TokenSource::Token(token) => TokenFrom::Value(token),
        TokenSource::File(path) => TokenFrom::File(path),
    };
    Ok((options, token))
}

/// Creates the provider. Nothing is sent.
///
/// # Errors
/// If the system has no root certificates.
pub(crate) fn provider(options: HcloudOptions) -> anyhow::Result<HcloudProvider> {
    HcloudProvider::new(options).context("cannot load the root certificates of this system")
}

fn wrong(error: OptionsError) -> anyhow::Error {
    WrongFlags::new(error.problems.join("\n       ")).into()
}

/// The environment, with the content of each file that a variable `NAME_FILE` names.
struct Variables {
    from_files: BTreeMap<String, String>,
}

impl Variables {
    fn read() -> anyhow::Result<Self> {
        let mut from_files = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, path) in std::env::vars() {
            let Some(of) = name.strip_suffix("_FILE").filter(|of| of.starts_with("HCLOUD_")) else {
                continue;
            };
            if name == TOKEN_FILE || path.is_empty() {
                continue;
            }
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    from_files.insert(of.to_owned(), text.trim().to_owned());
                }
                Err(error) => problems.push(format!("{name}: cannot read {path}: {error}")),
            }
        }
        if !problems.is_empty() {
            bail!(WrongFlags::new(problems.join("\n       ")));
        }
        Ok(Self { from_files })
    }

    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().or_else(|| self.from_files.get(name).cloned())
    }
}
