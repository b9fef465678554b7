//! Performs the changes of routes.

use async_trait::async_trait;
use machinist_driver::Routes;
use machinist_instance::{Error, ErrorKind, Progress, Route, RouteSpec, RouteTable};
use serde_json::json;

use super::plan::{self, Next};
use crate::action::{End, Patience};
use crate::client::call::Call;
use crate::client::failure::{Code, Failure};
use crate::driver::Account;
use crate::model::{Network, NetworkRoute};
use crate::{id, request};

const ADD: &str = "add_route";
const DELETE: &str = "delete_route";

#[async_trait]
impl Routes for Account {
    async fn list(&self) -> Result<RouteTable, Error> {
        let network = self.route_network().await?;
        let servers = self.servers(request::all()).await?;
        Ok(plan::table(&network, &servers))
    }

    async fn create(&self, spec: &RouteSpec) -> Result<Progress<()>, Error> {
        plan::check_destination(&spec.destination)?;
        let server = self.server(id::server(&spec.instance)?).await?;
        let missing = || Error::new(ErrorKind::InvalidSpec, format!("{} does not exist", spec.instance));
        let server = server.ok_or_else(missing)?;
        let network = self.route_network().await?;
        let gateway = plan::gateway(spec, network.id, &server)?;
        let mut patience = Patience::default();
        match plan::next(&network, &spec.destination, gateway)? {
            Next::Nothing => return Ok(Progress::Done(())),
            Next::Add => {}
            Next::Delete(old) => {
                if let Progress::Working(command) = self.delete_route(network.id, &old, &mut patience).await?
                {
                    return Ok(Progress::Working(command));
                }
            }
        }
        let route = NetworkRoute { destination: spec.destination.clone(), gateway };
        let call = Call::act("/networks/-/actions/add_route", network.id, body(&route));
        match self.act(call, &mut patience).await {
            Ok(End::Success) => Ok(Progress::Done(())),
            Ok(End::Pending) => Ok(Progress::Working(ADD.to_owned())),
            Err(failure) if failure.is_busy() => Ok(Progress::Working(ADD.to_owned())),
            Err(failure) => Err(failure.error),
        }
    }

    async fn delete(&self, route: &Route) -> Result<Progress<()>, Error> {
        let network = self.route_network_id().await?;
        let route = NetworkRoute { destination: route.destination.clone(), gateway: route.gateway };
        self.delete_route(network, &route, &mut Patience::default()).await
    }
}

impl Account {
    async fn route_network_id(&self) -> Result<i64, Error> {
        // The account offers routes only with a network.
        let missing = || Error::unsupported("routes without HCLOUD_NETWORK");
        self.network().await?.ok_or_else(missing)
    }

    async fn route_network(&self) -> Result<Network, Error> {
        let id = self.route_network_id().await?;
        let found = self.client.find(Call::get("/networks/-", id), "network").await?;
        if found.is_none() {
            self.forget_network(id).await;
        }
        let missing =
            || Error::new(ErrorKind::InvalidSpec, format!("HCLOUD_NETWORK: network {id} does not exist"));
        found.ok_or_else(missing)
    }

    async fn delete_route(
        &self,
        network: i64,
        route: &NetworkRoute,
        patience: &mut Patience,
    ) -> Result<Progress<()>, Error> {
        let call = Call::act("/networks/-/actions/delete_route", network, body(route));
        match self.act(call, patience).await {
            Ok(End::Success) => Ok(Progress::Done(())),
            Ok(End::Pending) => Ok(Progress::Working(DELETE.to_owned())),
            Err(failure) if failure.is_busy() => Ok(Progress::Working(DELETE.to_owned())),
            Err(failure) if failure.is_absence() => Ok(Progress::Done(())),
            // The cloud may report an absent route as wrong input, so a read decides.
            Err(failure) if failure.is(Code::InvalidInput) => {
                let shown = self.route_network().await?;
                if shown.routes.contains(route) { Err(failure.error) } else { Ok(Progress::Done(())) }
            }
            Err(failure) => Err(failure.error),
        }
    }

    async fn act(&self, call: Call, patience: &mut Patience) -> Result<End, Failure> {
        let action = self.client.call(call).await?.take("action")?;
        self.client.follow(action, patience).await
    }
}

fn body(route: &NetworkRoute) -> serde_json::Value {
    json!({ "destination": route.destination, "gateway": route.gateway })
}
