//! Floating addresses of classes with a pool, as 23technologies' provider names and labels them.
//!
//! The address is created after the server, for the server, and named after it. It is deleted
//! before the server, so that no address stays if the process ends in between. If a server
//! disappeared otherwise, its address is found by the key.
//!
//! Deliberately absent: the address inside of the server. The user data of the class adds it there.

use machinist_instance::{Error, ErrorKind, InstanceKey};
use serde_json::json;

use crate::client::call::Call;
use crate::client::failure::Code;
use crate::driver::Account;
use crate::gardener::GardenerClass;
use crate::label::{self, CLUSTER, KEY, Labels, MCM_CLUSTER};
use crate::model::{FloatingIp, Server};
use crate::reply;

/// The label with the pool of an address.
const POOL: &str = "networking.hcloud.mcm.gardener.cloud/floating-pool";

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

impl Account {
    /// Creates the address of a server, or assigns the one that exists.
    ///
    /// # Errors
    /// An error of [`Error::in_progress`] until the address is assigned.
    pub(crate) async fn ensure_address(
        &self,
        server: &Server,
        class: &GardenerClass,
        pool: &str,
    ) -> Result<(), Error> {
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
        for label in [KEY, CLUSTER] {
            labels.extend(server.labels.get(label).map(|value| (label.to_owned(), value.clone())));
        }
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

    /// Deletes the addresses that were made for a server. Other addresses of a user stay.
    pub(crate) async fn delete_addresses(&self, server: &Server) -> Result<(), Error> {
        if server.public_net.floating_ips.is_empty() {
            return Ok(());
        }
        for address in self.addresses_of_pools().await? {
            if address.server == Some(server.id) && is_of(&address, &server.name) {
                self.delete_address(&address).await?;
            }
        }
        Ok(())
    }

    /// Deletes the addresses with that key whose server has disappeared.
    pub(crate) async fn delete_left_addresses(&self, owner: &InstanceKey) -> Result<(), Error> {
        for address in self.addresses_of_pools().await? {
            if address.server.is_none() && reply::key(&address.labels) == Some(owner.as_str()) {
                self.delete_address(&address).await?;
            }
        }
        Ok(())
    }

    /// Gives the addresses of a server its new key.
    pub(crate) async fn rekey_addresses(&self, server: &Server, to: &InstanceKey) -> Result<(), Error> {
        if server.public_net.floating_ips.is_empty() {
            return Ok(());
        }
        for mut address in self.addresses_of_pools().await? {
            if address.server == Some(server.id) && is_of(&address, &server.name) {
                address.labels.insert(KEY.to_owned(), to.as_str().to_owned());
                let labels = json!({"labels": address.labels});
                self.client.call(Call::update(ADDRESS, address.id, labels)).await?;
            }
        }
        Ok(())
    }

    async fn addresses_of_pools(&self) -> Result<Vec<FloatingIp>, Error> {
        let call = Call::list(ADDRESSES).with("label_selector", POOL);
        Ok(self.client.list(&call, "floating_ips").await?)
    }

    async fn delete_address(&self, address: &FloatingIp) -> Result<(), Error> {
        match self.client.call(Call::delete(ADDRESS, address.id)).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_absence() => Ok(()),
            Err(failure) => Err(failure.error),
        }
    }
}

/// Checks the name of a pool, which becomes a part of the address' name and a label.
///
/// # Errors
/// `InvalidSpec`.
pub(crate) fn check_pool(pool: &str) -> Result<(), Error> {
    label::check_value("providerSpec.floatingPoolName", pool)
}
