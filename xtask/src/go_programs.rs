//! Programs that are built from a package of a Go module, once per computer.
//!
//! A published module can be built without a module of our own, if its `go.mod` replaces no other
//! module. The programs of a control plane need more; `envtest` builds them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::envtest;
use crate::go_modules;
use crate::workspace;

/// A program, and the package that it is built from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GoProgram {
    /// Name of the file, unique among the programs.
    name: &'static str,
    module: &'static str,
    package: &'static str,
    version: &'static str,
}

/// Renders Helm charts. The newest release that uses the Kubernetes libraries of the pinned control
/// plane.
pub(crate) const HELM: GoProgram = GoProgram {
    name: "helm",
    module: "helm.sh/helm/v3",
    package: "helm.sh/helm/v3/cmd/helm",
    version: "v3.21.3",
};

/// The version of Cluster API that the lane tests the provider with.
pub(crate) const CLUSTER_API_VERSION: &str = "v1.13.6";
pub(crate) const CLUSTER_API_MODULE: &str = "sigs.k8s.io/cluster-api";

/// The core controllers of Cluster API.
pub(crate) const CLUSTER_API_CORE: GoProgram = cluster_api("cluster-api-core", CLUSTER_API_MODULE);
/// The controllers of KubeadmConfigs.
pub(crate) const CLUSTER_API_BOOTSTRAP: GoProgram =
    cluster_api("cluster-api-kubeadm-bootstrap", "sigs.k8s.io/cluster-api/bootstrap/kubeadm");
/// The controllers of KubeadmControlPlanes.
pub(crate) const CLUSTER_API_CONTROL_PLANE: GoProgram =
    cluster_api("cluster-api-kubeadm-control-plane", "sigs.k8s.io/cluster-api/controlplane/kubeadm");
pub(crate) const CLUSTERCTL: GoProgram = cluster_api("clusterctl", "sigs.k8s.io/cluster-api/cmd/clusterctl");

/// A program of Cluster API.
const fn cluster_api(name: &'static str, package: &'static str) -> GoProgram {
    GoProgram { name, module: CLUSTER_API_MODULE, package, version: CLUSTER_API_VERSION }
}

impl GoProgram {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns why [`provide`](Self::provide) cannot succeed, without building anything; `None` if
    /// it may succeed. May download the module.
    pub(crate) fn reason_it_cannot_be_had(&self) -> Option<String> {
        if self.file().is_ok_and(|file| file.is_file()) {
            return None;
        }
        let found = workspace::output_of(Command::new("go").arg("version")).context("no Go toolchain found");
        let module = found.and_then(|_version| self.download());
        module.err().map(|error| format!("{} cannot be built: {error:#}", self.name))
    }

    /// Finds the program, and builds it if necessary.
    ///
    /// # Errors
    /// If Go is missing, the module cannot be downloaded, or it does not compile.
    pub(crate) fn provide(&self) -> Result<PathBuf> {
        let file = self.file()?;
        if file.is_file() {
            return Ok(file);
        }
        let folder = file.parent().context("the program has a folder")?;
        let parent = folder.parent().context("the folder of the program has a parent")?;
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let _lock = envtest::lock(&parent.join(".lock"))?;
        if file.is_file() {
            return Ok(file);
        }
        self.download()?;
        let started = Instant::now();
        eprintln!("Building {} {} into {} (a few minutes, once)", self.name, self.version, folder.display());
        let workshop = tempfile::Builder::new()
            .prefix(".building-")
            .tempdir_in(parent)
            .with_context(|| format!("cannot create a folder in {}", parent.display()))?;
        let built = workshop.path().join("bin");
        let status = go_modules::polite_go()
            .current_dir(workshop.path())
            .env("GOFLAGS", "-buildvcs=false")
            .env("GOWORK", "off")
            .env("CGO_ENABLED", "0")
            .env("GOBIN", &built)
            .args(["install", "-trimpath", "-ldflags", "-s -w"])
            .arg(format!("{}@{}", self.package, self.version))
            .status()
            .context("cannot start `go install`")?;
        ensure!(status.success(), "`go install` of {} {} failed ({status})", self.package, self.version);
        // `go install` names the file after the package.
        let installed = self.package.rsplit('/').next().unwrap_or(self.package);
        if installed != self.name {
            fs::rename(built.join(installed), built.join(self.name))
                .with_context(|| format!("`go install` of {} built no {installed}", self.package))?;
        }
        envtest::put_in_place(&built, folder)?;
        eprintln!("Built in {:.0?}", started.elapsed());
        Ok(file)
    }

    fn download(&self) -> Result<()> {
        go_modules::provide(self.module, self.version, go_modules::Source::CacheOrProxy).map(|_module| ())
    }

    /// Returns the path of the program in the cache. The folder is named by version.
    fn file(&self) -> Result<PathBuf> {
        let folder = format!("{}-{}", self.name, self.version);
        Ok(workspace::cache()?.join("go-programs").join(folder).join(self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_names_a_program_by_its_version() {
        let file = HELM.file().expect("a folder for the cache");
        assert!(file.ends_with("go-programs/helm-v3.21.3/helm"), "{}", file.display());
        assert!(HELM.package.starts_with(HELM.module));
    }
}
