//! The folder of `machinist api-server --data-dir`.
//!
//! Files are made in this order: lock, mark, state, keys, kubeconfig; so of a first start that was killed there is never a later one
//! without the earlier ones. What is missing is an error that says what helps; a missing kubeconfig is written again.

use std::path::Path;

use anyhow::bail;
use machinist_apiserver::{Config, Folder, Kept, Server};

use crate::embedded::data_folder::{
    self, API_SERVER_FILE, Command, KEY_FILES, KUBECONFIG_FILE, LOCK_FILE, STATE_FILE, files,
};
use crate::wiring::{LEDGER_FILE, in_shell, set_aside};

/// What the mark says. That it is there is all that counts.
const MARK: &str = "{\"command\":\"api-server\"}\n";

/// The files of `machinist up` that this command never makes.
const OF_UP: [&str; 2] = ["up.json", LEDGER_FILE];

const OURS: [&str; 7] =
    [LOCK_FILE, API_SERVER_FILE, STATE_FILE, KEY_FILES[0], KEY_FILES[1], KEY_FILES[2], KUBECONFIG_FILE];

/// Opens a folder: a new one, or one that an earlier run left. Returns what people should know about it, too.
///
/// # Errors
/// Says which file is not as expected, that nothing was changed, and what helps.
pub(super) fn open(path: &Path, config: Config) -> anyhow::Result<(Server, Vec<String>)> {
    refuse_that_of_up(path)?;
    data_folder::refuse_that_of_others(path, &[STATE_FILE, API_SERVER_FILE], &OURS)?;
    let refusal = |error| data_folder::refusal(Command::ApiServer, path, error);
    // Locked before anything in it is looked at.
    let folder = Folder::open(path).map_err(refusal)?;
    // One may have begun there meanwhile, and have ended.
    refuse_that_of_up(path)?;
    if !Folder::holds_state(path) {
        let left_over = files(path, &KEY_FILES);
        if !left_over.is_empty() {
            bail!("--data-dir {}: {}", path.display(), without_state(path, &left_over));
        }
        // Before there is any state: from the first object on it is known for whom the folder is.
        folder.write(API_SERVER_FILE, MARK).map_err(refusal)?;
        let server = Kept::open(folder).and_then(|kept| Server::resume(config, kept)).map_err(refusal)?;
        return Ok((server, Vec::new()));
    }
    if files(path, &[API_SERVER_FILE]).is_empty() {
        bail!("--data-dir {}: {}", path.display(), without_mark(path));
    }
    let kept = Kept::open(folder).map_err(refusal)?;
    kept.check_keys(&config).map_err(refusal)?;
    let remarks = data_folder::told_of_lost_kubeconfig(path).into_iter().collect();
    Ok((Server::resume(config, kept).map_err(refusal)?, remarks))
}

/// Files without which the next start may not go on, and which are not there.
pub(super) fn lost(path: &Path) -> Vec<&'static str> {
    let needed = [STATE_FILE, API_SERVER_FILE, KEY_FILES[0], KEY_FILES[1], KEY_FILES[2]];
    let there = files(path, &needed);
    needed.into_iter().filter(|name| !there.contains(name)).collect()
}

/// Without the cloud of `up`, its Nodes fall silent, and are taken for lost.
fn refuse_that_of_up(path: &Path) -> anyhow::Result<()> {
    let of_up = files(path, &OF_UP);
    let (Some(file), true) = (of_up.first(), files(path, &[API_SERVER_FILE]).is_empty()) else {
        return Ok(());
    };
    bail!(
        "--data-dir {}: expected a folder of `machinist api-server`, and this one, which has {file}, was made by another command: its Nodes \
         need the cloud and the controllers of `machinist up`. Nothing was changed. Name another folder; or go on with this one: machinist \
         up --data-dir {}",
        path.display(),
        in_shell(path)
    );
}

fn without_state(folder: &Path, left_over: &[&str]) -> String {
    format!(
        "{} is missing, the API server's objects; {}. Nothing was changed. Bring {STATE_FILE} back from a copy of the folder; or start \
         anew by moving the folder away: {}",
        folder.join(STATE_FILE).display(),
        data_folder::told_of_left_over(left_over),
        set_aside(folder)
    )
}

fn without_mark(folder: &Path) -> String {
    let file = folder.join(API_SERVER_FILE);
    format!(
        "{} is missing, by which a folder of `machinist api-server` is known; {STATE_FILE} is there. Nothing was changed. If this command \
         made the folder, write the file again: echo '{}' > {}",
        file.display(),
        MARK.trim_end(),
        in_shell(&file)
    )
}
