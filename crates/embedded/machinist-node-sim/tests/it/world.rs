//! The test world: a cluster with its controllers, a cloud, and the fleet that connects them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use machinist_apiserver::{AuditRecord, Config, Identity, SeededIds, Server, Subscription, TokioClock};
use machinist_cloud_sim::{Clock, Cloud, CreateRequest, DeleteRequest, Reply, Request, Settings};
use machinist_instance::{Instance, InstanceKey, InstanceRef, NodeName, ProviderId, UserData};
use machinist_kcm::CaPair;
use machinist_kube::{ClientOptions, SharedClock, layer_client};
use machinist_node_sim::{
    Auth, ClientConnector, ClientError, Fleet, FleetOptions, Metadata, NODE_USER_AGENT, SeededKeys,
};
use serde_json::json;
use tokio::task::AbortHandle;

pub(crate) const TOKEN: &str = "626a68.h1ux0hjsri1jgwro";

/// Longer than joining takes without faults.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) fn epoch() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) cloud: Cloud,
    pub(crate) fleet: Option<Fleet>,
    pub(crate) audit: Subscription<Arc<AuditRecord>>,
    kcm: AbortHandle,
}

impl World {
    /// A cluster with one bootstrap token, an instant cloud, and a fleet.
    pub(crate) async fn new() -> Self {
        Self::with_cloud(Cloud::in_memory(Settings::default(), Clock::starting_at(epoch()))).await
    }

    pub(crate) async fn on_disk(folder: &Path) -> Self {
        let clock = Clock::starting_at(epoch());
        Self::with_cloud(Cloud::open(folder, Settings::default(), clock).expect("a new folder")).await
    }

    async fn with_cloud(cloud: Cloud) -> Self {
        let server = Server::new(Config {
            clock: Arc::new(TokioClock::starting_at(epoch())),
            ids: Arc::new(SeededIds::new(1)),
            ..Config::default()
        });
        let clock = Arc::new(machinist_kube::TokioClock::starting_at(epoch()));
        let mut world = Self::over(server, cloud, clock, "2026-01-01T00:20:00Z").await;
        world.start_fleet();
        world
    }

    /// Creates a cluster with one bootstrap token, and a cloud without a fleet.
    pub(crate) async fn over(server: Server, cloud: Cloud, clock: SharedClock, expiration: &str) -> Self {
        let mut config = machinist_kcm::KcmConfig::new(clock);
        let ca = server.ca().expect("a CA");
        config.ca = Some(CaPair::from_pem(ca.certificate_pem(), ca.key_pem()).expect("a pair"));
        let audit = server.audit();
        let client = admin(&server);
        let kcm = tokio::spawn(async move { machinist_kcm::run(client, config).await }).abort_handle();
        let world = Self { server, cloud, fleet: None, audit, kcm };
        world.add_token(TOKEN, expiration).await;
        world
    }

    /// Stops the controllers: from now on none signs requests, collects garbage or marks Nodes as
    /// lost.
    pub(crate) fn stop_controllers(&self) {
        self.kcm.abort();
    }

    pub(crate) fn fleet_options(&self) -> FleetOptions {
        let metadata = Metadata { server: "https://in-process".to_owned(), ca_pem: String::new() };
        let mut options = FleetOptions::new(metadata, Arc::new(InProcess(self.server.clone())));
        options.keys = Arc::new(SeededKeys(1));
        options
    }

    pub(crate) fn start_fleet(&mut self) {
        self.fleet = Some(Fleet::start(&self.cloud, self.fleet_options()));
    }

    pub(crate) fn client(&self) -> Client {
        admin(&self.server)
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client(), "default")
    }

    pub(crate) async fn add_token(&self, token: &str, expiration: &str) {
        let (id, secret) = token.split_once('.').expect("a token");
        let data = [
            ("token-id", id),
            ("token-secret", secret),
            ("expiration", expiration),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", ""),
        ];
        let secret = Secret {
            metadata: ObjectMeta { name: Some(format!("bootstrap-token-{id}")), ..ObjectMeta::default() },
            type_: Some("bootstrap.kubernetes.io/token".to_owned()),
            string_data: Some(data.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..Secret::default()
        };
        let api: Api<Secret> = Api::namespaced(self.client(), "kube-system");
        api.create(&PostParams::default(), &secret).await.expect("created");
    }

    /// Makes the cloud create an instance with that token.
    pub(crate) async fn make(&self, name: &str, token: &str) -> Instance {
        let user_data = format!(
            "#cloud-config\nwrite_files:\n- path: /var/lib/bootstrap-token\n  content: {token}\n\
             - path: /etc/machine-name\n  content: {name}\n"
        );
        self.make_from(name, &user_data).await
    }

    pub(crate) async fn make_from(&self, name: &str, user_data: &str) -> Instance {
        let request = CreateRequest {
            key: InstanceKey::new(format!("uid-of-{name}")),
            name: NodeName::new(name).expect("not empty"),
            cluster: "c".to_owned(),
            instance_type: "m5.large".to_owned(),
            region: None,
            zone: None,
            image: None,
            boot_seconds: None,
            user_data: UserData::new(user_data),
            tags: Default::default(),
            adopt_made_since: None,
        };
        match self.cloud.call(None, Request::Ensure(request)).await {
            Ok(Ok(Reply::Instance(instance))) => instance,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn delete(&self, instance: &Instance) {
        let which = InstanceRef { id: Some(instance.id.clone()), ..InstanceRef::default() };
        let owner = instance.key.clone().expect("it has a key");
        let answer = self.cloud.call(None, Request::Delete(DeleteRequest { which, owner })).await;
        answer.expect("an answer").expect("accepted");
    }

    /// The machines' requests to the server since the last call.
    pub(crate) fn machine_requests(&mut self) -> Vec<Arc<AuditRecord>> {
        let mut requests = self.audit.drain();
        requests.retain(|request| request.user_agent == NODE_USER_AGENT);
        requests
    }

    pub(crate) fn console(&self, id: &ProviderId) -> String {
        self.cloud.console(id, 100).join("\n")
    }

    pub(crate) async fn bind_pod(&self, name: &str, node: &str, grace_seconds: i64) -> Pod {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": grace_seconds,
                "containers": [{"name": "main", "image": "example.org/main:1"}],
            },
        });
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("created")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kcm.abort();
    }
}

fn admin(server: &Server) -> Client {
    layer_client(server.service_as(Identity::admin()), &ClientOptions::new("test"))
}

/// Connects directly to the server, with the credential that the machine presents.
struct InProcess(Server);

impl ClientConnector for InProcess {
    fn connect(&self, _metadata: &Metadata, auth: &Auth) -> Result<Client, ClientError> {
        let service = match auth {
            Auth::Bearer(token) => self.0.service_with_bearer(token),
            Auth::ClientCert { cert_pem, .. } => {
                self.0.service_with_client_cert(cert_pem).map_err(|error| ClientError(error.to_string()))?
            }
        };
        Ok(layer_client(service, &ClientOptions::new(NODE_USER_AGENT)))
    }
}

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
