//! Floating addresses of classes with a pool, as 23technologies' provider names and labels them.
//!
//! The address is created after the server, for the server, and named after it. It is deleted
//! before the server, so that no address stays if the process ends in between. If a server
//! disappeared otherwise, its address is found by the key, and counts as a part of the instance.
//!
//! Deliberately absent: the address inside of the server. The user data of the class adds it there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machinist_instance::{Error, ErrorKind, InstanceKey};
use serde_json::json;
use tokio::time::Instant;

use crate::client::call::Call;
use crate::client::failure::Code;
use crate::driver::Account;
use crate::gardener::GardenerClass;
use crate::label::{CLUSTER, KEY, Labels, MCM_CLUSTER};
use crate::model::{FloatingIp, Server};
use crate::reply;

/// The label with the pool of an address.
const POOL: &str = "networking.hcloud.mcm.gardener.cloud/floating-pool";

/// The absence of all addresses is looked at again after this time.
const ABSENT_FOR: Duration = Duration::from_secs(600);

const ADDRESSES: &str = "/floating_ips";
const ADDRESS: &str = "/floating_ips/-";

/// The name of the address of a server.
fn name_of(pool: &str, server: &str) -> String {
    format!("{pool}-{server}-ipv4")
}

/// Whether an address was made for the server of that name: by us or by the other provider.
fn is_of(address: &FloatingIp, server: &str) -> bool {
    address.labels.get(POOL).is_some_and(|pool| address.name == name_of(pool, server))
}

/// Whether an address was made for a server and is assigned to it.
fn is_assigned_to(address: &FloatingIp, server: &Server) -> bool {
    address.server == Some(server.id) && is_of(address, &server.name)
}

/// Whether an address of that key is assigned to no server.
fn is_left_of(address: &FloatingIp, owner: &InstanceKey) -> bool {
    address.server.is_none() && reply::key(&address.labels) == Some(owner.as_str())
}

/// The key and the installation of a server, for its address.
fn marks_of(server: &Server) -> Labels {
    let of = |label: &str| server.labels.get(label).map(|value| (label.to_owned(), value.clone()));
    [KEY, CLUSTER].into_iter().filter_map(of).collect()
}

/// Whether the project has addresses of pools. Most projects never have one, and a deletion should
/// not ask for it each time. Only this process creates addresses with our keys: another leader has
/// ended before it began, and each process asks once.
#[derive(Default)]
pub(crate) struct Pools {
    /// Set for good before the first address: a list that is still on its way may not show it.
    are_used: AtomicBool,
    /// When the last list that showed none began.
    absent_since: Mutex<Option<Instant>>,
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.absent_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn are_absent(&self) -> bool {
        let is_recent = self.lock().is_some_and(|since| since.elapsed() < ABSENT_FOR);
        is_recent && !self.are_used.load(Ordering::Relaxed)
    }

    fn note_absence(&self, began: Instant) {
        *self.lock() = Some(began);
    }

    fn note_use(&self) {
        self.are_used.store(true, Ordering::Relaxed);
    }
}

impl Account {
    /// Creates the address of a server, or assigns the existing address.
    ///
    /// # Errors
    /// An error of [`Error::in_progress`] until the address is assigned.
    pub(crate) async fn ensure_address(
        &self,
        server: &Server,
        class: &GardenerClass,
        pool: &str,
    ) -> Result<(), Error> {
        self.pools.note_use();
        let name = name_of(pool, &server.name);
        let named = Call::list(ADDRESSES).with("name", &name);
        let found: Vec<FloatingIp> = self.client.list(&named, "floating_ips").await?;
        let denied =
            |why: String| Err(Error::new(ErrorKind::Denied, format!("floating address {name} {why}")));
        let Some(address) = found.into_iter().find(|address| address.name == name) else {
            return self.create_address(server, class, pool, &name).await;
        };
        match address.server {
            Some(assigned) if assigned == server.id => Ok(()),
            Some(assigned) => denied(format!("is assigned to server {assigned}")),
            None if !is_of(&address, &server.name)
                || address.labels.get(MCM_CLUSTER) != Some(&class.cluster) =>
            {
                denied("does not carry the marks of the class".to_owned())
            }
            None => {
                // The key first: no search finds the address without it.
                let mut labels = address.labels.clone();
                labels.extend(marks_of(server));
                if labels != address.labels {
                    self.client.call(Call::update(ADDRESS, address.id, json!({"labels": labels}))).await?;
                }
                let assign =
                    Call::act("/floating_ips/-/actions/assign", address.id, json!({"server": server.id}));
                self.client.call(assign).await?;
                Err(Error::in_progress(format!("floating address {name} is being assigned")))
            }
        }
    }

    async fn create_address(
        &self,
        server: &Server,
        class: &GardenerClass,
        pool: &str,
        name: &str,
    ) -> Result<(), Error> {
        let mut labels = Labels::from([
            (MCM_CLUSTER.to_owned(), class.cluster.clone()),
            (POOL.to_owned(), pool.to_owned()),
        ]);
        labels.extend(marks_of(server));
        let body = json!({"type": "ipv4", "server": server.id, "name": name, "labels": labels});
        match self.client.call(Call::create(ADDRESSES, body)).await {
            Ok(mut answer) => {
                let address: FloatingIp = answer.take("floating_ip")?;
                let is_assigned = address.server == Some(server.id);
                let waits = || Error::in_progress(format!("floating address {name} is being assigned"));
                is_assigned.then_some(()).ok_or_else(waits)
            }
            Err(failure) if failure.is(Code::UniquenessError) => {
                let text = format!("a floating address has the name {name}, but lists do not show it yet");
                Err(Error::in_progress(text))
            }
            Err(failure) => Err(failure.error),
        }
    }

    /// Deletes the addresses that were made for a server, and those with that key that no server
    /// has. Other addresses of a user stay.
    pub(crate) async fn delete_addresses(
        &self,
        server: Option<&Server>,
        owner: &InstanceKey,
    ) -> Result<(), Error> {
        for address in self.addresses_of_pools().await? {
            if server.is_some_and(|server| is_assigned_to(&address, server)) || is_left_of(&address, owner) {
                self.delete_address(&address).await?;
            }
        }
        Ok(())
    }

    /// A text for each address with that key whose server has disappeared.
    pub(crate) async fn left_addresses(&self, owner: &InstanceKey) -> Result<Vec<String>, Error> {
        let all = self.addresses_of_pools().await?.into_iter();
        let left = all.filter(|address| is_left_of(address, owner));
        Ok(left.map(|address| format!("floating address {}", address.name)).collect())
    }

    /// Gives the addresses of a server its new key.
    pub(crate) async fn rekey_addresses(&self, server: &Server, to: &InstanceKey) -> Result<(), Error> {
        for mut address in self.addresses_of_pools().await? {
            if is_assigned_to(&address, server) {
                address.labels.insert(KEY.to_owned(), to.as_str().to_owned());
                let labels = json!({"labels": address.labels});
                self.client.call(Call::update(ADDRESS, address.id, labels)).await?;
            }
        }
        Ok(())
    }

    /// The addresses of all pools of the project.
    async fn addresses_of_pools(&self) -> Result<Vec<FloatingIp>, Error> {
        if self.pools.are_absent() {
            return Ok(Vec::new());
        }
        let began = Instant::now();
        let call = Call::list(ADDRESSES).with("label_selector", POOL);
        let found: Vec<FloatingIp> = self.client.list(&call, "floating_ips").await?;
        if found.is_empty() {
            self.pools.note_absence(began);
        }
        Ok(found)
    }

    async fn delete_address(&self, address: &FloatingIp) -> Result<(), Error> {
        match self.client.call(Call::delete(ADDRESS, address.id)).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_absence() => Ok(()),
            Err(failure) => Err(failure.error),
        }
    }
}
