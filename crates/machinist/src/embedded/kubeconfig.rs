//! The kubeconfig of the administrator: the API server's, and in it, where the controllers answer `/why`, if some run here.
//!
//! That is kept in the `extensions` of the file, which every other reader leaves alone, so that it travels with the kubeconfig.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kube::config::Kubeconfig;
use serde_json::Value;

/// The name of our extension.
const EXTENSION: &str = "machinist.dev";

/// It holds the administrator's key.
const PRIVATE_FILE: u32 = 0o600;

/// Adds the URLs of the controllers to a kubeconfig file. Returns its new text.
pub(super) fn extend(file: &Path, controllers: &[String]) -> anyhow::Result<String> {
    let cannot = || format!("cannot write {}", file.display());
    let mut text = fs::read_to_string(file).with_context(cannot)?;
    let urls: Vec<String> = controllers.iter().map(|url| format!("{url:?}")).collect();
    // The file was written a moment ago by the API server of this process, and has no extensions.
    text.push_str(&format!(
        "extensions:\n- name: {EXTENSION}\n  extension:\n    controllers: [{}]\n",
        urls.join(", ")
    ));
    replace(file, &text).with_context(cannot)?;
    Ok(text)
}

/// Writes a kubeconfig where somebody wants it. A file that we did not write stays as it is: it may be the only kubeconfig of
/// other clusters.
pub(super) fn write(file: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let flag = || format!("--kubeconfig-out {}: cannot be written", file.display());
    match fs::read_to_string(file) {
        Ok(present) if !present.is_empty() && !present.contains(&format!("name: {EXTENSION}")) => bail!(
            "--kubeconfig-out {}: expected a new file or one that this program wrote; this one has other content",
            file.display()
        ),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(flag),
    }
    replace(file, text).with_context(flag)?;
    // What is printed should work from any folder.
    fs::canonicalize(file).with_context(flag)
}

/// Writes a file that only its owner may read, in one step: nobody ever sees a half of it.
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

/// Where the controllers answer that a kubeconfig was written for; nothing if it is not one of ours.
pub(crate) fn controllers(kubeconfig: &Kubeconfig) -> Vec<String> {
    let all = kubeconfig.extensions.iter().flatten();
    let urls = all.filter(|it| it.name == EXTENSION).filter_map(|it| {
        let urls = it.extension.get("controllers").and_then(Value::as_array)?;
        Some(urls.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
    });
    urls.flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_addresses_of_controllers_travel_with_the_kubeconfig() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("kubeconfig");
        fs::write(&file, "apiVersion: v1\nkind: Config\nclusters: []\n").expect("written");
        let urls = ["http://127.0.0.1:1".to_owned(), "http://127.0.0.1:2".to_owned()];
        let text = extend(&file, &urls).expect("extended");
        let copy = write(&folder.path().join("copy"), &text).expect("written");
        let kubeconfig = Kubeconfig::read_from(&copy).expect("a kubeconfig");
        assert_eq!(controllers(&kubeconfig), urls);
        for file in [file, copy] {
            let mode = fs::metadata(file).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, PRIVATE_FILE);
        }
    }

    #[test]
    fn a_kubeconfig_of_somebody_else_is_left_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("config");
        fs::write(&file, "apiVersion: v1\nkind: Config\n").expect("written");
        let error = write(&file, "ours").expect_err("refused").to_string();
        assert!(error.contains("--kubeconfig-out") && error.contains("other content"), "{error}");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "apiVersion: v1\nkind: Config\n");
    }
}
