//! `machinist version`.

use std::process::ExitCode;

use serde::Serialize;

use crate::args::{Format, VersionArgs};
use crate::output::Output;
use crate::version::VERSION;

/// Version of the linked Kubernetes types, which is the oldest supported version.
const KUBERNETES: &str = "1.33";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    kubernetes_types: &'static str,
    platform: String,
}

pub(crate) fn run(args: &VersionArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let version = Version {
        version: VERSION,
        kubernetes_types: KUBERNETES,
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    };
    match args.output {
        Format::Text => output.line(&format!(
            "machinist {} ({}, Kubernetes types {})",
            version.version, version.platform, version.kubernetes_types
        ))?,
        Format::Json => output.json(&version)?,
    }
    Ok(ExitCode::SUCCESS)
}
