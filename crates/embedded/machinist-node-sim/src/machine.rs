//! One machine, from power-on to power-off.

use std::sync::Arc;
use std::time::Duration;

use machinist_cloud_sim::{Cloud, Disk, LedgerEntry};
use machinist_instance::NodeName;
use tokio::sync::mpsc;

use crate::backoff::Backoff;
use crate::bootstrap::{self, Trouble};
use crate::connect::{Auth, code, describe};
use crate::identity::SigningRequest;
use crate::pods::{OwnFeed, PodWorker, SharedFeed};
use crate::register::Registered;
use crate::user_data::BootData;
use crate::{ClientConnector, Keys, Kubelet, Metadata, NodeIdentity, lease, register};

/// Timing of the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineTiming {
    /// How long a pod takes from bound to ready.
    pub pod_start: Duration,
    /// How long a pod takes to end, unless its grace period is shorter.
    pub pod_stop: Duration,
    /// How often the Lease is renewed. A cluster that marks Nodes as lost sooner than the kubelet's
    /// default needs machines that renew more often.
    pub lease_renewal: Duration,
}

impl Default for MachineTiming {
    /// The kubelet's Lease interval, and pods that start at once and end within a second.
    fn default() -> Self {
        Self {
            pod_start: Duration::ZERO,
            pod_stop: Duration::from_secs(1),
            lease_renewal: Duration::from_secs(10),
        }
    }
}

/// The parts that all machines of a fleet share.
pub(crate) struct Surroundings {
    pub(crate) cloud: Cloud,
    pub(crate) metadata: Metadata,
    pub(crate) connector: Arc<dyn ClientConnector>,
    pub(crate) keys: Arc<dyn Keys>,
    pub(crate) options: MachineTiming,
    /// The shared pod watch, if there is one.
    pub(crate) pods: Option<SharedFeed>,
}

/// One machine: an instance that has power.
pub(crate) struct Machine {
    surroundings: Arc<Surroundings>,
    entry: LedgerEntry,
    disk: Disk,
}

/// A machine that has the credential of `system:node:NAME`.
struct Joined {
    name: NodeName,
    client: kube::Client,
}

impl Machine {
    pub(crate) fn new(surroundings: Arc<Surroundings>, entry: LedgerEntry) -> Self {
        let disk = surroundings.cloud.disk(&entry.id);
        Self { surroundings, entry, disk }
    }

    /// Boots, joins and works. Ends when it is dropped, or when the machine can never join.
    pub(crate) async fn live(self) {
        self.say("booting");
        let (name, kubelet) = self.configuration();
        let mut backoff = Backoff::new();
        let (joined, registered) = loop {
            match self.join(name.clone(), &kubelet).await {
                Ok(up) => break up,
                Err(NotUp::Never(why)) => {
                    self.say(&format!("giving up: {why}"));
                    return;
                }
                Err(NotUp::NotYet(why)) => self.say(&why),
            }
            backoff.wait().await;
        };
        self.greet(&joined.name, &registered);
        self.work(joined, &registered.uid).await;
    }

    /// The name in the user data, or the instance's own name if the user data has none; and the
    /// kubelet's flags.
    fn configuration(&self) -> (NodeName, Kubelet) {
        let user_data = self.surroundings.cloud.user_data(&self.entry.id);
        let boot_data = user_data.and_then(|data| BootData::parse(&data).ok());
        let (name, kubelet) = boot_data.map(|data| (data.name, data.kubelet)).unwrap_or_default();
        (name.unwrap_or_else(|| self.entry.name.clone()), kubelet)
    }

    async fn join(&self, name: NodeName, kubelet: &Kubelet) -> Result<(Joined, Registered), NotUp> {
        let identity = match NodeIdentity::load(&self.disk) {
            Ok(Some(identity)) => identity,
            Ok(None) => self.bootstrap(&name).await?,
            Err(error) => return Err(NotUp::NotYet(format!("the disk failed: {error}"))),
        };
        let client = self.connect(&identity.auth())?;
        let now = self.surroundings.cloud.clock().now();
        match register::register(client.clone(), &self.entry, &name, kubelet, now).await {
            Ok(registered) => Ok((Joined { name, client }, registered)),
            Err(error) if code(&error) == Some(401) => {
                // The certificate is from another CA than the cluster's, or has expired: a retry
                // with it cannot succeed.
                let discarded = NodeIdentity::discard(&self.disk);
                let disk =
                    discarded.err().map(|error| format!("; the disk failed: {error}")).unwrap_or_default();
                Err(NotUp::NotYet(format!("discarding the certificate: {}{disk}", describe(&error))))
            }
            Err(error) => {
                Err(NotUp::NotYet(format!("cannot register the Node {name}: {}", describe(&error))))
            }
        }
    }

    async fn bootstrap(&self, name: &NodeName) -> Result<NodeIdentity, NotUp> {
        let user_data = self.surroundings.cloud.user_data(&self.entry.id).unwrap_or_default();
        let boot_data = BootData::parse(&user_data).map_err(|error| NotUp::Never(error.to_string()))?;
        let client = self.connect(&Auth::Bearer(boot_data.token.expose().to_owned()))?;
        let mut attempt = 0;
        loop {
            let request = SigningRequest::prepare(&self.disk, &*self.surroundings.keys, name, attempt)
                .map_err(|error| NotUp::NotYet(error.to_string()))?;
            self.say(&format!(
                "asking for a certificate with bootstrap token {}: {}",
                boot_data.token.id(),
                request.name
            ));
            match bootstrap::certificate(client.clone(), &request).await {
                Ok(identity) => {
                    identity
                        .store(&self.disk)
                        .map_err(|error| NotUp::NotYet(format!("the disk failed: {error}")))?;
                    return Ok(identity);
                }
                Err(refused @ Trouble::Refused { .. }) if attempt < MAX_REFUSALS => {
                    self.say(&refused.to_string());
                    let forgotten = SigningRequest::forget(&self.disk);
                    forgotten.map_err(|error| NotUp::NotYet(format!("the disk failed: {error}")))?;
                    attempt += 1;
                    tokio::time::sleep(AFTER_REFUSAL).await;
                }
                Err(refused @ Trouble::Refused { .. }) => return Err(NotUp::Never(refused.to_string())),
                Err(trouble @ (Trouble::Filing(_) | Trouble::NoAnswer(_) | Trouble::Watch(_))) => {
                    return Err(NotUp::NotYet(trouble.to_string()));
                }
            }
        }
    }

    fn connect(&self, auth: &Auth) -> Result<kube::Client, NotUp> {
        let Surroundings { connector, metadata, .. } = &*self.surroundings;
        connector.connect(metadata, auth).map_err(|error| NotUp::NotYet(error.to_string()))
    }

    fn greet(&self, name: &NodeName, registered: &Registered) {
        // A cloud controller manager may write the id later.
        let is_same = ["", self.entry.id.as_str()].contains(&&*registered.provider_id);
        match (registered.was_there, is_same) {
            (false, _) => self.say(&format!("joined as Node {name}")),
            (true, true) => self.say(&format!("is Node {name} again")),
            (true, false) => self.say(&format!(
                "is Node {name}, which was registered with provider id {:?}, not {}",
                registered.provider_id, self.entry.id
            )),
        }
    }

    /// Runs Lease, heartbeat and pods in this one task, so that dropping it stops all of them at
    /// once.
    async fn work(&self, joined: Joined, uid: &str) {
        let Joined { name, client } = joined;
        let Surroundings { cloud, options, pods, .. } = &*self.surroundings;
        let clock = cloud.clock();
        let worker = PodWorker {
            client: client.clone(),
            clock: clock.clone(),
            start: options.pod_start,
            stop: options.pod_stop,
        };
        let own_feed = async |to| {
            let fatal = OwnFeed::run(client.clone(), &name, to).await;
            self.say(&format!("cannot watch its pods: {fatal}"));
        };
        let pods = async {
            match pods {
                Some(shared) => worker.run(shared.subscribe(&name)).await,
                None => {
                    let (to, changes) = mpsc::unbounded_channel();
                    tokio::join!(own_feed(to), worker.run(changes));
                }
            }
        };
        tokio::join!(
            lease::renew(client.clone(), &name, uid, clock, options.lease_renewal),
            register::heartbeat(client.clone(), &name, clock),
            pods,
        );
    }

    fn say(&self, what: &str) {
        let now = self.surroundings.cloud.clock().now();
        self.surroundings.cloud.print(&self.entry.id, format!("{now:.0} {what}"));
    }
}

/// How many more requests a machine files after a refusal. Usually a person refused them, and can
/// delete the instance.
const MAX_REFUSALS: u32 = 3;
const AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// Why a machine has not joined.
enum NotUp {
    /// A retry may succeed.
    NotYet(String),
    /// A retry cannot succeed.
    Never(String),
}
