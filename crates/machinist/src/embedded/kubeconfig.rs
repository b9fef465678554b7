//! The administrator's kubeconfig, with the URLs at which the controllers of this process serve
//! `/why`.
//!
//! The URLs are in the `extensions` of the file, which other programs ignore. A copy of the file
//! keeps them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kube::config::Kubeconfig;
use serde_json::Value;

/// Name of the extension with the URLs.
const EXTENSION: &str = "machinist.dev";

/// Mode of the kubeconfig, which holds the administrator's key.
const PRIVATE_FILE: u32 = 0o600;

/// Adds the URLs of the controllers to a kubeconfig file and returns its new text.
pub(super) fn extend(file: &Path, controllers: &[String]) -> anyhow::Result<String> {
    let cannot = || format!("cannot write {}", file.display());
    let mut text = fs::read_to_string(file).with_context(cannot)?;
    let urls: Vec<String> = controllers.iter().map(|url| format!("{url:?}")).collect();
    // The API server of this process has just written the file, so it has no extensions yet.
    text.push_str(&format!(
        "extensions:\n- name: {EXTENSION}\n  extension:\n    controllers: [{}]\n",
        urls.join(", ")
    ));
    replace(file, &text).with_context(cannot)?;
    Ok(text)
}

/// Writes the kubeconfig of `--kubeconfig-out`. A file of another program is not overwritten: it
/// may be the only kubeconfig of other clusters.
pub(super) fn write(file: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let flag = || format!("--kubeconfig-out {}: cannot be written", file.display());
    match fs::read_to_string(file) {
        Ok(present) if !present.is_empty() && !present.contains(&format!("name: {EXTENSION}")) => bail!(
            "--kubeconfig-out {}: expected a new file or a kubeconfig of this program, but the file has other content. Name another file",
            file.display()
        ),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(flag),
    }
    replace(file, text).with_context(flag)?;
    // The printed path must work from any directory.
    fs::canonicalize(file).with_context(flag)
}

/// Atomically writes a file that only its owner may read.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut name = file.file_name().map(ToOwned::to_owned).unwrap_or_default();
    name.push(".new");
    let new = file.with_file_name(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut open = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&new)?;
    open.write_all(text.as_bytes())?;
    fs::rename(&new, file)
}

/// Returns the URLs of the controllers in a kubeconfig; none if another program wrote it.
pub(crate) fn controllers(kubeconfig: &Kubeconfig) -> Vec<String> {
    let all = kubeconfig.extensions.iter().flatten();
    let urls = all.filter(|extension| extension.name == EXTENSION).filter_map(|extension| {
        let urls = extension.extension.get("controllers").and_then(Value::as_array)?;
        Some(urls.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
    });
    urls.flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_copied_kubeconfig_keeps_the_urls_of_controllers() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("kubeconfig");
        fs::write(&file, "apiVersion: v1\nkind: Config\nclusters: []\n").expect("written");
        let urls = ["http://127.0.0.1:1".to_owned(), "http://127.0.0.1:2".to_owned()];
        let text = extend(&file, &urls).expect("extended");
        let copy = write(&folder.path().join("copy"), &text).expect("written");
        let kubeconfig = Kubeconfig::read_from(&copy).expect("a kubeconfig");
        assert_eq!(controllers(&kubeconfig), urls);
        for file in [file, copy] {
            let mode = fs::metadata(file).expect("the file exists").permissions().mode();
            assert_eq!(mode & 0o777, PRIVATE_FILE);
        }
    }

    #[test]
    fn a_kubeconfig_of_another_program_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("config");
        fs::write(&file, "apiVersion: v1\nkind: Config\n").expect("written");
        let error = write(&file, "ours").expect_err("refused").to_string();
        assert!(error.contains("--kubeconfig-out") && error.contains("other content"), "{error}");
        assert_eq!(fs::read_to_string(&file).expect("the file exists"), "apiVersion: v1\nkind: Config\n");
    }
}
