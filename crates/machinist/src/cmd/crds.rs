//! `machinist crds`: prints the CustomResourceDefinitions.

use std::process::ExitCode;

use anyhow::Context;
use machinist_api::crd;
use serde_json::json;

use crate::args::{CrdFormat, CrdKinds, CrdsArgs};
use crate::output::Output;

pub(crate) fn run(args: &CrdsArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let crds = match args.kinds {
        CrdKinds::Machines => crd::all_crds(),
        CrdKinds::Docker => crd::docker_crds(),
        CrdKinds::Mailgun => crd::mailgun_crds(),
        CrdKinds::All => [crd::all_crds(), crd::docker_crds(), crd::mailgun_crds()].concat(),
    };
    match args.output {
        CrdFormat::Yaml => {
            for crd in &crds {
                output.text(&crd::render_yaml(crd).context("cannot render a CustomResourceDefinition")?)?;
            }
        }
        CrdFormat::Json => output.json(&json!({"apiVersion": "v1", "kind": "List", "items": crds}))?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: CrdFormat) -> String {
        let (output, written) = Output::memory();
        run(&CrdsArgs { kinds: CrdKinds::Machines, output: format }, &output).expect("printed");
        written.text()
    }

    #[test]
    fn the_yaml_is_a_manifest_of_four_definitions() {
        let yaml = printed(CrdFormat::Yaml);
        let objects = machinist_api::manifest::parse_manifest(&yaml).expect("a manifest");
        let names: Vec<&str> = objects.iter().map(|object| object.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "machineclasses.machine.sapcloud.io",
                "machinedeployments.machine.sapcloud.io",
                "machines.machine.sapcloud.io",
                "machinesets.machine.sapcloud.io",
            ]
        );
    }

    #[test]
    fn the_json_is_one_list_with_the_same_definitions() {
        let json: serde_json::Value =
            serde_json::from_str(&printed(CrdFormat::Json)).expect("one JSON value");
        let objects = machinist_api::manifest::parse_manifest(&printed(CrdFormat::Yaml)).expect("a manifest");
        let names: Vec<_> = json["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|definition| &definition["metadata"]["name"])
            .collect();
        assert_eq!(names, objects.iter().map(|object| object.name.as_str()).collect::<Vec<_>>());
    }
}
