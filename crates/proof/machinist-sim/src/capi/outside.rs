//! Containers, load balancers and mails, as the history records them.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use machinist_instance::{InstanceKey, NativeId, NodeName};
use machinist_standin_docker::EngineState;
use machinist_standin_mailgun::Accepted;

/// The author of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The provider under test.
    Provider,
    /// A user or another program.
    Other,
}

/// Everything that ever existed outside of the API servers.
#[derive(Debug, Default)]
pub struct Outside {
    containers: BTreeMap<String, ContainerTrack>,
    balancers: BTreeMap<String, EngineBalancerTrack>,
    mails: Vec<Accepted>,
    changes: u64,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerTrack {
    /// Name of the container.
    pub name: String,
    /// The key: UID of the DockerMachine; empty if another program created the container.
    pub key: String,
    /// When the container was created.
    pub made: Timestamp,
    /// When the bootstrap was started.
    pub bootstrapped: Option<Timestamp>,
    /// When the container ceased to exist.
    pub gone: Option<Timestamp>,
    /// The content, for changes that no other field shows.
    content: String,
}

/// One load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineBalancerTrack {
    /// The key: UID of the DockerCluster.
    pub key: String,
    /// Names of the backends, with their weights.
    pub backends: BTreeMap<String, u8>,
    /// Whether the load balancer exists.
    pub exists: bool,
    /// When the newest configuration was sent that has taken effect.
    newest: Timestamp,
    /// Whether the configuration in effect was sent before the newest one, and took effect after
    /// it. The next comparison repairs that.
    pub is_overtaken: bool,
}

/// A configuration of a load balancer that has just taken effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Configured {
    /// Name of the load balancer.
    pub(crate) balancer: String,
    /// When the provider sent the configuration.
    pub(crate) sent: Timestamp,
}

impl EngineBalancerTrack {
    /// The same load balancer, of which the engine has carried out a configuration.
    fn configured(self, sent: Timestamp, before: Option<&Self>) -> Self {
        let newest = before.map_or(sent, |before| before.newest.max(sent));
        Self { newest, is_overtaken: sent < newest, ..self }
    }
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutsideChange {
    /// A container was created.
    Made(String),
    /// The bootstrap of a container was started.
    Bootstrapped(String),
    /// Another field of a container changed.
    Changed(String),
    /// A container ceased to exist.
    Gone(String),
    /// A load balancer was created.
    BalancerMade(String),
    /// The backends of a load balancer changed.
    Backends {
        /// Name of the load balancer.
        balancer: String,
        /// The backends before.
        before: BTreeMap<String, u8>,
    },
    /// A load balancer ceased to exist.
    BalancerGone(String),
    /// The mail service accepted a mail.
    Mail(Accepted),
}

impl Outside {
    /// The container of that id.
    pub fn container(&self, id: &str) -> Option<&ContainerTrack> {
        self.containers.get(id)
    }

    /// All containers that ever existed, by id.
    pub fn containers(&self) -> impl Iterator<Item = (&str, &ContainerTrack)> {
        self.containers.iter().map(|(id, track)| (id.as_str(), track))
    }

    /// The load balancer of that name.
    pub fn balancer(&self, name: &str) -> Option<&EngineBalancerTrack> {
        self.balancers.get(name)
    }

    /// The load balancers that exist, by name.
    pub fn balancers(&self) -> impl Iterator<Item = (&str, &EngineBalancerTrack)> {
        self.balancers.iter().filter(|(_, track)| track.exists).map(|(name, track)| (name.as_str(), track))
    }

    /// The accepted mails, oldest first.
    pub fn mails(&self) -> &[Accepted] {
        &self.mails
    }

    /// Number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes over the objects of the engine, and returns the changes.
    pub(crate) fn take_engine(
        &mut self,
        engine: &EngineState,
        configured: Option<&Configured>,
        now: Timestamp,
    ) -> Vec<OutsideChange> {
        let mut changes = Vec::new();
        let id_of = |instance: &machinist_instance::Instance| {
            instance.native_id.as_ref().map_or("", NativeId::as_str).to_owned()
        };
        for (id, track) in self.containers.iter_mut().filter(|(_, track)| track.gone.is_none()) {
            let is_there =
                engine.containers.get(&track.name).is_some_and(|container| id_of(&container.instance) == *id);
            if !is_there {
                track.gone = Some(now);
                changes.push(OutsideChange::Gone(id.clone()));
            }
        }
        for (name, container) in &engine.containers {
            let id = id_of(&container.instance);
            let content = format!("{} {:?}", container.image, container.instance.power);
            let track = self.containers.entry(id.clone()).or_insert_with(|| {
                changes.push(OutsideChange::Made(id.clone()));
                let key = container.instance.key.as_ref().map_or("", InstanceKey::as_str).to_owned();
                ContainerTrack {
                    name: name.clone(),
                    key,
                    made: now,
                    bootstrapped: None,
                    gone: None,
                    content: content.clone(),
                }
            });
            if 0 < container.bootstraps && track.bootstrapped.is_none() {
                track.bootstrapped = Some(now);
                changes.push(OutsideChange::Bootstrapped(id.clone()));
            }
            if track.content != content {
                track.content = content;
                changes.push(OutsideChange::Changed(id));
            }
        }
        for (name, track) in self.balancers.iter_mut().filter(|(_, track)| track.exists) {
            if !engine.balancers.contains_key(name) {
                track.exists = false;
                changes.push(OutsideChange::BalancerGone(name.clone()));
            }
        }
        for (name, (spec, targets)) in &engine.balancers {
            let backends: BTreeMap<String, u8> = targets.iter().cloned().collect();
            let key = spec.key.as_str().to_owned();
            let before = self.balancers.get(name).filter(|before| before.exists).cloned();
            let (newest, is_overtaken) =
                before.as_ref().map_or((now, false), |before| (before.newest, before.is_overtaken));
            let mut new = EngineBalancerTrack { key, backends, exists: true, newest, is_overtaken };
            if let Some(configured) = configured.filter(|configured| configured.balancer == *name) {
                new = new.configured(configured.sent, before.as_ref());
            }
            self.balancers.insert(name.clone(), new.clone());
            if before.as_ref().is_none_or(|before| before.key != new.key) {
                changes.push(OutsideChange::BalancerMade(name.clone()));
            }
            let before = before.map(|before| before.backends).unwrap_or_default();
            if before != new.backends {
                changes.push(OutsideChange::Backends { balancer: name.clone(), before });
            }
        }
        self.changes += u64::try_from(changes.len()).unwrap_or(0);
        changes
    }

    /// Takes over the accepted mails, and returns the new ones.
    pub(crate) fn take_mails(&mut self, mails: Vec<Accepted>) -> Vec<OutsideChange> {
        let new: Vec<Accepted> = mails.into_iter().skip(self.mails.len()).collect();
        self.mails.extend(new.iter().cloned());
        self.changes += u64::try_from(new.len()).unwrap_or(0);
        new.into_iter().map(OutsideChange::Mail).collect()
    }
}

/// Creates a container of another owner, under that name.
pub(crate) fn foreign(name: &str, now: Timestamp) -> Option<machinist_standin_docker::Container> {
    use machinist_instance::{Instance, Power, ProviderId};
    let instance = Instance {
        id: ProviderId::parse(&format!("docker:////{name}")).ok()?,
        native_id: NativeId::new(format!("foreign-{name}")),
        key: None,
        cluster: Some("of-another-owner".to_owned()),
        name: NodeName::new(name)?,
        power: Power::Running,
        addresses: Vec::new(),
        instance_type: None,
        zone: None,
        region: None,
        tags: BTreeMap::new(),
        node_labels: BTreeMap::new(),
        created: now,
    };
    Some(machinist_standin_docker::Container {
        instance,
        image: "postgres:17".to_owned(),
        looks: 0,
        bootstraps: 0,
        progress: 0,
        format: None,
    })
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Provider => "the provider",
            Self::Other => "another",
        })
    }
}

impl fmt::Display for OutsideChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(id) => write!(f, "engine + container {id}"),
            Self::Bootstrapped(id) => write!(f, "engine ~ container {id}: bootstrap"),
            Self::Changed(id) => write!(f, "engine ~ container {id}"),
            Self::Gone(id) => write!(f, "engine - container {id}"),
            Self::BalancerMade(name) => write!(f, "engine + load balancer {name}"),
            Self::Backends { balancer, before } => {
                write!(f, "engine ~ load balancer {balancer}: backends, before {before:?}")
            }
            Self::BalancerGone(name) => write!(f, "engine - load balancer {name}"),
            Self::Mail(mail) => write!(f, "mail + {} {} {}", mail.purpose, mail.uid, mail.message_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a valid time")
    }

    #[test]
    fn a_late_configuration_is_overtaken_by_a_newer_one() {
        let track = EngineBalancerTrack {
            key: "u".to_owned(),
            backends: BTreeMap::new(),
            exists: true,
            newest: at(0),
            is_overtaken: false,
        };
        let first = track.clone().configured(at(10), None);
        let newer = track.clone().configured(at(20), Some(&first));
        assert!(!first.is_overtaken && !newer.is_overtaken);
        let late = track.clone().configured(at(15), Some(&newer));
        assert!(late.is_overtaken);
        let later = track.clone().configured(at(18), Some(&late));
        assert!(later.is_overtaken, "the configuration of second 20 is still the newest");
        assert!(!track.configured(at(30), Some(&later)).is_overtaken, "the next comparison");
    }
}
