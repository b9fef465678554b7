//! The directory of `machinist api-server --data-dir`.
//!
//! Files are created in this order: lock, mark, state, keys, kubeconfig. So if a first start is
//! killed, a file exists only together with all earlier files. A missing file is an error that
//! explains the fix; a missing kubeconfig is written again.

use std::path::Path;

use anyhow::bail;
use machinist_apiserver::{Config, Folder, Kept, Server};

use crate::embedded::data_folder::{
    self, API_SERVER_FILE, Command, KEY_FILES, KUBECONFIG_FILE, LOCK_FILE, STATE_FILE, files,
};
use crate::wiring::{LEDGER_FILE, in_shell, set_aside};

/// Content of the mark. Only its existence matters.
const MARK: &str = "{\"command\":\"api-server\"}\n";

/// Files of `machinist up` that this command never creates.
const FILES_OF_UP: [&str; 2] = ["up.json", LEDGER_FILE];

const OURS: [&str; 7] =
    [LOCK_FILE, API_SERVER_FILE, STATE_FILE, KEY_FILES[0], KEY_FILES[1], KEY_FILES[2], KUBECONFIG_FILE];

/// Opens a new directory, or the directory of an earlier run. Also returns remarks for the user.
///
/// # Errors
/// If the directory cannot be used. The error names the file and the fix, and says that nothing was
/// changed.
pub(super) fn open(path: &Path, config: Config) -> anyhow::Result<(Server, Vec<String>)> {
    refuse_folder_of_up(path)?;
    data_folder::refuse_foreign_folder(path, &[STATE_FILE, API_SERVER_FILE], &OURS)?;
    let refusal = |error| data_folder::refusal(Command::ApiServer, path, error);
    // The directory is locked before its files are checked.
    let folder = Folder::open(path).map_err(refusal)?;
    // `up` may have used the directory before it was locked.
    refuse_folder_of_up(path)?;
    if !Folder::holds_state(path) {
        let left_over = files(path, &KEY_FILES);
        if !left_over.is_empty() {
            bail!("--data-dir {}: {}", path.display(), without_state(path, &left_over));
        }
        // The mark is written before the state, so that a directory with objects always has it.
        folder.write(API_SERVER_FILE, MARK).map_err(refusal)?;
        let server = Kept::open(folder).and_then(|kept| Server::resume(config, kept)).map_err(refusal)?;
        return Ok((server, Vec::new()));
    }
    if files(path, &[API_SERVER_FILE]).is_empty() {
        bail!("--data-dir {}: {}", path.display(), without_mark(path));
    }
    let kept = Kept::open(folder).map_err(refusal)?;
    kept.check_keys(&config).map_err(refusal)?;
    let remarks = data_folder::lost_kubeconfig_notice(path).into_iter().collect();
    Ok((Server::resume(config, kept).map_err(refusal)?, remarks))
}

/// Returns the missing files that the next start needs.
pub(super) fn lost(path: &Path) -> Vec<&'static str> {
    let needed = [STATE_FILE, API_SERVER_FILE, KEY_FILES[0], KEY_FILES[1], KEY_FILES[2]];
    let there = files(path, &needed);
    needed.into_iter().filter(|name| !there.contains(name)).collect()
}

/// Rejects a directory of `up`. Without its cloud, its Nodes would stop reporting and be treated as
/// lost.
fn refuse_folder_of_up(path: &Path) -> anyhow::Result<()> {
    let of_up = files(path, &FILES_OF_UP);
    let (Some(file), true) = (of_up.first(), files(path, &[API_SERVER_FILE]).is_empty()) else {
        return Ok(());
    };
    bail!(
        "--data-dir {}: expected a directory of `machinist api-server`, but this one has {file} and belongs to another command. Its \
         Nodes need the cloud and the controllers of `machinist up`. Nothing was changed. Name another directory, or continue with this \
         one: machinist up --data-dir {}",
        path.display(),
        in_shell(path)
    );
}

fn without_state(folder: &Path, left_over: &[&str]) -> String {
    format!(
        "{} (the API server's objects) is missing, but {}. Nothing was changed. Restore {STATE_FILE} from a backup, or start again by \
         moving the directory away: {}",
        folder.join(STATE_FILE).display(),
        data_folder::left_over_notice(left_over),
        set_aside(folder)
    )
}

fn without_mark(folder: &Path) -> String {
    let file = folder.join(API_SERVER_FILE);
    format!(
        "{} is missing, but {STATE_FILE} exists. The file marks a directory of `machinist api-server`. Nothing was changed. If this \
         command created the directory, write the file again: echo '{}' > {}",
        file.display(),
        MARK.trim_end(),
        in_shell(&file)
    )
}
