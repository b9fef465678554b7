//! Names the clusters on the engine whose `up` is lost, with the command that deletes them.
//!
//! `up` never deletes containers of another cluster. The label of a control plane container names
//! the directory of its `up`. If that directory still belongs to the cluster, someone can continue
//! it; otherwise no program will ever delete its containers.

use std::collections::BTreeMap;
use std::path::Path;

use machinist_instance::{Instance, Scope};

use super::identity::{cleanup, is_name, is_owner};
use super::{Docker, OWNER_FOLDER};
use crate::embedded::is_abandoned;

/// Maximum number of clusters in one remark.
const MAX_NAMED: usize = 5;

/// A cluster that no directory belongs to.
#[derive(Debug, PartialEq, Eq)]
struct Orphan {
    name: String,
    containers: usize,
    /// Directory of its `up`, if its control plane still exists.
    folder: Option<String>,
}

impl Docker {
    /// Returns a remark for each lost cluster on the engine.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub(in crate::cmd::up) async fn lost_clusters(&self) -> anyhow::Result<Vec<String>> {
        let visible = self.driver.instances().list(&Scope::Visible).await?;
        let lost = orphans(&visible, self.name(), |folder, name| {
            let folder = Path::new(folder);
            is_owner(folder, name) && !is_abandoned(folder)
        });
        Ok(lost.iter().take(MAX_NAMED).map(Orphan::remark).collect())
    }
}

/// Returns the clusters among the instances that have no owner, except our own.
fn orphans(visible: &[Instance], own: &str, has_owner: impl Fn(&str, &str) -> bool) -> Vec<Orphan> {
    let mut found: BTreeMap<&str, Orphan> = BTreeMap::new();
    for instance in visible {
        let Some(name) = instance.cluster.as_deref().filter(|name| is_name(name) && *name != own) else {
            continue;
        };
        let folder = instance.tags.get(OWNER_FOLDER).cloned();
        let orphan =
            found.entry(name).or_insert(Orphan { name: name.to_owned(), containers: 0, folder: None });
        orphan.containers += 1;
        orphan.folder = orphan.folder.take().or(folder);
    }
    let is_orphan =
        |orphan: &Orphan| !orphan.folder.as_ref().is_some_and(|folder| has_owner(folder, &orphan.name));
    found.into_values().filter(is_orphan).collect()
}

impl Orphan {
    fn remark(&self) -> String {
        let containers = match self.containers {
            1 => "1 container".to_owned(),
            count => format!("{count} containers"),
        };
        let why = match &self.folder {
            Some(folder) => format!("its directory {folder} does not belong to it on this computer"),
            None => "its control plane is lost".to_owned(),
        };
        format!(
            "The engine has {containers} of the cluster {}, and {why}. `up` does not delete them. If the directory was \
             not moved, and no user of another computer runs the cluster, delete them: {}",
            self.name,
            cleanup(&self.name)
        )
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use machinist_instance::{NodeName, Power, ProviderId};

    use super::*;

    fn container(name: &str, cluster: Option<&str>, folder: Option<&str>) -> Instance {
        let tags = folder.map(|folder| (OWNER_FOLDER.to_owned(), folder.to_owned()));
        Instance {
            id: ProviderId::parse(&format!("docker:////{name}")).expect("an id"),
            native_id: None,
            key: None,
            cluster: cluster.map(str::to_owned),
            name: NodeName::new(name).expect("a name"),
            power: Power::Running,
            addresses: Vec::new(),
            instance_type: None,
            zone: None,
            region: None,
            tags: tags.into_iter().collect(),
            node_labels: BTreeMap::new(),
            created: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn only_clusters_without_a_directory_are_lost() {
        let [own, kept, lost, broken] =
            ["machinist-00000001", "machinist-00000002", "machinist-00000003", "machinist-00000004"];
        let visible = [
            container("a", Some(own), Some("/lost")),
            container("b", Some(kept), Some("/kept")),
            container("c", Some(lost), Some("/lost")),
            container("d", Some(lost), None),
            container("e", Some(broken), None),
            // A cluster of another program.
            container("f", Some("default"), None),
            container("g", None, None),
        ];
        let found = orphans(&visible, own, |folder, name| folder == "/kept" && name == kept);
        let orphan = |name: &str, containers, folder: Option<&str>| Orphan {
            name: name.to_owned(),
            containers,
            folder: folder.map(str::to_owned),
        };
        assert_eq!(found, [orphan(lost, 2, Some("/lost")), orphan(broken, 1, None)]);
        let remark = found[0].remark();
        for part in [
            "2 containers of the cluster machinist-00000003",
            "/lost",
            "--filter label=machinist.dev/cluster=machinist-00000003); docker network rm machinist-00000003",
        ] {
            assert!(remark.contains(part), "expected {part:?} in {remark}");
        }
    }
}
