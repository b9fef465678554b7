//! Builds the programs from their Go modules.
//!
//! Kubernetes is published as one module, `k8s.io/kubernetes`. This module requires its own parts
//! ("staging modules") at a version that does not exist and that only its repository resolves. So
//! the module generated here requires `k8s.io/kubernetes`, and replaces each part by the version
//! that was published together with it. The list of parts is read from the module's own `go.mod`,
//! because it changes with every release. Each program is a `main` of a few lines that calls the
//! public constructor of its command.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{ETCD_VERSION, KUBERNETES_VERSION, Program};
use crate::go_modules;
use crate::workspace::output_of;

/// The version at which a module requires parts of its own repository.
const UNPUBLISHED: &str = "v0.0.0";

pub(crate) struct Toolchain {
    /// Output of `go version`, for messages.
    version: String,
}

/// Finds the Go toolchain of this computer.
pub(crate) fn toolchain() -> Result<Toolchain> {
    let version = output_of(Command::new("go").arg("version")).context("no Go toolchain found")?;
    Ok(Toolchain { version: version.trim().to_owned() })
}

/// A program that is built from a generated `main`.
pub(crate) struct Recipe {
    pub(crate) file_name: &'static str,
    pub(crate) source: Source,
    /// Text of the file `main.go`.
    pub(crate) main: String,
}

impl Recipe {
    pub(super) fn of(program: Program) -> Self {
        let file_name = program.file_name();
        match program {
            Program::KubeApiserver => Self::kubernetes_server(file_name, "NewAPIServerCommand()"),
            Program::KubeControllerManager => {
                Self::kubernetes_server(file_name, "NewControllerManagerCommand()")
            }
            Program::Kubectl => {
                Self { file_name, source: Source::kubernetes(), main: KUBECTL_MAIN.to_owned() }
            }
            Program::Etcd => Self { file_name, source: Source::etcd(), main: ETCD_MAIN.to_owned() },
        }
    }

    /// A program of `k8s.io/kubernetes/cmd` with the constructor of its command.
    pub(crate) fn kubernetes_server(file_name: &'static str, constructor: &str) -> Self {
        let context = if constructor.contains("context.") { "\t\"context\"\n" } else { "" };
        // The blank imports register the same packages as the real programs: client metrics, the
        // version metric, JSON logs.
        let main = format!(
            r#"package main

import (
{context}	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/{file_name}/app"
)

func main() {{ os.Exit(cli.Run(app.{constructor})) }}
"#
        );
        Self { file_name, source: Source::kubernetes(), main }
    }
}

impl Toolchain {
    /// Builds one program into the folder `built`, and generates its module under `workshop`.
    pub(crate) fn build(&self, recipe: &Recipe, workshop: &Path, built: &Path) -> Result<()> {
        let Recipe { file_name, source, main } = recipe;
        let module = workshop.join(source.folder);
        if !module.join("go.mod").exists() {
            fs::create_dir_all(&module)?;
            fs::write(module.join("go.mod"), self.go_mod(source)?)?;
        }
        let package = module.join(file_name);
        fs::create_dir_all(&package)?;
        fs::write(package.join("main.go"), main)?;

        let status = go_modules::polite_go()
            .current_dir(&module)
            // With -mod=mod, Go adds the missing requirements and checksums to the generated
            // go.mod, which names only one.
            .env("GOFLAGS", "-mod=mod -buildvcs=false")
            .env("GOWORK", "off")
            .env("CGO_ENABLED", "0")
            .args(["build", "-trimpath", "-ldflags", &source.linker_flags, "-o"])
            .arg(built.join(file_name))
            .arg(format!("./{file_name}"))
            .status()
            .context("cannot start `go build`")?;
        ensure!(status.success(), "`go build` of {file_name} failed ({status}) with {}", self.version);
        Ok(())
    }

    fn go_mod(&self, source: &Source) -> Result<String> {
        let module = go_modules::provide(source.module, &source.version, go_modules::Source::CacheOrProxy)?;
        let upstream = fs::read_to_string(module.go_mod)
            .with_context(|| format!("cannot read the go.mod of {}", source.module))?;
        let go = go_directive(&upstream)
            .with_context(|| format!("the go.mod of {} names no Go version", source.module))?;
        let parts = unpublished_parts(&upstream);
        Ok(render_go_mod(source, go, &parts))
    }
}

/// The source of a program.
pub(crate) struct Source {
    /// Programs with the same source share a generated module, so it is resolved only once.
    folder: &'static str,
    module: &'static str,
    version: String,
    /// Version of the parts that are published together with the module; empty if there are none.
    parts_version: String,
    linker_flags: String,
}

impl Source {
    fn etcd() -> Self {
        Self {
            folder: "etcd-module",
            module: "go.etcd.io/etcd/server/v3",
            version: format!("v{ETCD_VERSION}"),
            parts_version: String::new(),
            linker_flags: "-s -w".to_owned(),
        }
    }

    pub(crate) fn kubernetes() -> Self {
        // A program that is built outside of its repository has no version, but the server's
        // responses and defaults depend on it.
        let (major, rest) = KUBERNETES_VERSION.split_once('.').expect("the pinned version has three numbers");
        let (minor, _patch) = rest.split_once('.').expect("the pinned version has three numbers");
        // Servers read the version from the first package; clients use the second for their
        // User-Agent.
        let variables: String = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"]
            .map(|package| {
                format!(
                    " -X {package}.gitVersion=v{KUBERNETES_VERSION} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} \
                     -X {package}.gitCommit=v{KUBERNETES_VERSION} -X {package}.gitTreeState=clean"
                )
            })
            .concat();
        Self {
            folder: "kubernetes-module",
            module: "k8s.io/kubernetes",
            version: format!("v{KUBERNETES_VERSION}"),
            parts_version: format!("v0.{rest}"),
            linker_flags: format!("-s -w{variables}"),
        }
    }
}

/// Returns the Go version in the `go` line of a go.mod.
fn go_directive(go_mod: &str) -> Option<&str> {
    go_mod.lines().find_map(|line| line.strip_prefix("go ")).map(str::trim)
}

/// Returns the modules that a go.mod requires at the version that does not exist.
fn unpublished_parts(go_mod: &str) -> Vec<&str> {
    go_mod
        .lines()
        .filter_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split_whitespace();
            let module = words.next()?;
            (words.next()? == UNPUBLISHED).then_some(module)
        })
        .collect()
}

fn render_go_mod(source: &Source, go: &str, parts: &[&str]) -> String {
    let Source { module, version, parts_version, folder, .. } = source;
    let mut text = format!("module machinist.invalid/{folder}\n\ngo {go}\n\nrequire {module} {version}\n");
    if !parts.is_empty() {
        text.push_str("\nreplace (\n");
        for part in parts {
            text.push_str(&format!("\t{part} => {part} {parts_version}\n"));
        }
        text.push_str(")\n");
    }
    text
}

const KUBECTL_MAIN: &str = r#"package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// As in kubectl's own main: prints errors as kubectl does, and uses its exit codes.
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
		os.Exit(1)
	}
}
"#;

const ETCD_MAIN: &str = r#"package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    const UPSTREAM: &str = "module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
\tgithub.com/example/pinned v0.0.0-20161109143554-76bb4ee9f0ab
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.140.0
\tk8s.io/kubectl v0.0.0 // indirect
)
";

    #[test]
    fn only_parts_without_a_version_are_replaced() {
        let parts = unpublished_parts(UPSTREAM);
        assert_eq!(parts, ["k8s.io/api", "k8s.io/kubectl"]);
        let text = render_go_mod(
            &Source::kubernetes(),
            go_directive(UPSTREAM).expect("the go.mod names a version"),
            &parts,
        );
        let wanted = format!(
            "module machinist.invalid/kubernetes-module\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v{KUBERNETES_VERSION}\n\n\
             replace (\n\tk8s.io/api => k8s.io/api v0.36.3\n\tk8s.io/kubectl => k8s.io/kubectl v0.36.3\n)\n"
        );
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_module_without_parts_gets_no_replacements() {
        let text = render_go_mod(&Source::etcd(), "1.24.0", &[]);
        assert!(!text.contains("replace"), "{text}");
    }
}
