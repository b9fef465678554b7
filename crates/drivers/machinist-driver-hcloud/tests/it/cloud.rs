//! A stand-in with a network, and the driver of an account over pipes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_cloud_sim::Clock;
use machinist_driver::{Driver, Provider as _};
use machinist_driver_hcloud::{BalancerDefaults, Endpoint, HcloudOptions, HcloudProvider};
use machinist_instance::{AccountId, Credential, InstanceKey, InstanceSpec, NodeName, Place, UserData};
use machinist_standin_hcloud::{Access, HcloudServer, Network, NewServer, Settings, SshKey, Standin, Subnet};
use serde_json::json;

use crate::pipe;

pub(crate) const TOKEN: &str = "token-of-the-account";
pub(crate) const OTHER_TOKEN: &str = "token-of-another-account";
pub(crate) const PROJECT: &str = "a";

/// The id of the network `cluster` of the project. The other project has one of the same name.
pub(crate) const NETWORK: i64 = 4711;

/// The id of the SSH key of the project.
pub(crate) const SSH_KEY: i64 = 4712;

pub(crate) struct Cloud {
    pub(crate) standin: Standin,
    pub(crate) provider: HcloudProvider,
}

/// Settings with two projects. Actions take a second.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.tokens.set(TOKEN, PROJECT, Access::ReadWrite);
    settings.tokens.set(OTHER_TOKEN, "b", Access::ReadWrite);
    settings
}

/// Options with the network `cluster` and a location for balancers.
pub(crate) fn options() -> HcloudOptions {
    HcloudOptions {
        endpoint: Endpoint::parse("http://stand-in/v1").expect("a URL"),
        network: Some("cluster".to_owned()),
        balancer_defaults: BalancerDefaults {
            location: Some("fsn1".to_owned()),
            balancer_type: Some("lb11".to_owned()),
            ..BalancerDefaults::default()
        },
        ..HcloudOptions::default()
    }
}

impl Cloud {
    pub(crate) fn new() -> Self {
        Self::with(settings(), options())
    }

    /// A cloud whose actions have ended when they are answered.
    pub(crate) fn instant() -> Self {
        Self::with(Settings { tokens: settings().tokens, ..Settings::instant() }, options())
    }

    pub(crate) fn with(settings: Settings, options: HcloudOptions) -> Self {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let standin = Standin::in_memory(settings, Clock::starting_at(epoch));
        let mut state = standin.dump();
        for (id, project) in [(NETWORK, PROJECT), (NETWORK + 1, "b")] {
            state.networks.insert(id, network(id, project));
        }
        state.ssh_keys.insert(SSH_KEY, ssh_key(epoch));
        standin.load(state).expect("in memory");
        let clock = standin.clone();
        let provider =
            HcloudProvider::over(pipe::http(standin.clone()), options).with_clock(move || clock.now());
        Self { standin, provider }
    }

    pub(crate) fn account(&self) -> (AccountId, Credential) {
        let credential = credential(TOKEN);
        (self.provider.account(&credential, &Place::WHOLE), credential)
    }

    /// A new driver of the account, without memory of earlier calls.
    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        let (account, credential) = self.account();
        self.provider.open(&account, &credential, &Place::WHOLE).expect("a token")
    }

    /// Creates a server that is attached to the network, as another program would.
    pub(crate) fn server(&self, name: &str) -> HcloudServer {
        let new = NewServer { networks: vec![NETWORK], ..NewServer::new(PROJECT, name) };
        self.standin.create_server(&new).expect("a server")
    }

    /// Number of requests so far by method, for example `GET`.
    pub(crate) fn requests(&self, is_counted: impl Fn(&str) -> bool) -> u64 {
        let counters = self.standin.counters();
        let counted =
            counters.iter().filter(|(label, _)| is_counted(label.split(' ').next().unwrap_or_default()));
        counted.map(|(_, count)| count).sum()
    }

    pub(crate) fn reads(&self) -> u64 {
        self.requests(|method| method == "GET")
    }

    pub(crate) fn changes(&self) -> u64 {
        self.requests(|method| method != "GET")
    }
}

pub(crate) fn credential(token: &str) -> Credential {
    Credential::new(BTreeMap::from([("token".to_owned(), token.as_bytes().to_vec())]))
}

pub(crate) fn instance_spec(name: &str) -> InstanceSpec {
    InstanceSpec {
        key: InstanceKey::new(format!("uid-of-{name}")),
        name: NodeName::new(name).expect("not empty"),
        cluster: "default".to_owned(),
        provider_spec: json!({"serverType": "cx22", "image": "ubuntu-24.04", "networks": [NETWORK]}),
        user_data: UserData::new(*b"token: canary"),
        tags: BTreeMap::new(),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    }
}

fn ssh_key(created: Timestamp) -> SshKey {
    SshKey {
        id: SSH_KEY,
        project: PROJECT.to_owned(),
        name: "shoot--foo--hc".to_owned(),
        created,
        labels: BTreeMap::new(),
        public_key: "ssh-ed25519 AAAA".to_owned(),
    }
}

fn network(id: i64, project: &str) -> Network {
    Network {
        id,
        project: project.to_owned(),
        name: "cluster".to_owned(),
        created: "2026-01-01T00:00:00Z".parse().expect("a time"),
        ip_range: "10.0.0.0/8".to_owned(),
        subnets: vec![Subnet {
            kind: "cloud".to_owned(),
            ip_range: "10.0.0.0/16".to_owned(),
            network_zone: "eu-central".to_owned(),
            gateway: "10.0.0.1".to_owned(),
            vswitch_id: None,
        }],
        routes: Vec::new(),
        labels: BTreeMap::new(),
        protected: false,
        expose_routes_to_vswitch: false,
    }
}
