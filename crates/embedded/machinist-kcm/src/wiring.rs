//! Connects the controllers with the views they need, and runs all of them as one future, so that
//! dropping it stops everything.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all, select_all};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::{Client, Resource};
use machinist_kube::WatchFatal;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::bootstrap_tokens::{self, BootstrapTokens, TokenFacts};
use crate::certificates::request::RequestFacts;
use crate::certificates::{self, Certificates};
use crate::config::{GcResource, KcmConfig};
use crate::disruption::budget::BudgetFacts;
use crate::disruption::{self, Disruption};
use crate::facts::node::NodeFacts;
use crate::facts::pod::PodFacts;
use crate::garbage_collector::defined_kinds::{DefinedKinds, DefinitionFacts};
use crate::garbage_collector::graph::{Collected, Graph, ItemFacts};
use crate::garbage_collector::{self, GarbageCollector};
use crate::kinds::Kinds;
use crate::lost_pods::{self, LostPods};
use crate::namespaces::{self, NamespaceFacts, Namespaces};
use crate::node_lifecycle::decision::Patience;
use crate::node_lifecycle::{self, LEASE_NAMESPACE, LeaseFacts, NodeLifecycle};
use crate::provisions::{self, AccountFacts, Provisions, RootCaFacts};
use crate::view::View;
use crate::volume_protection::{self, ClaimFacts, VolumeFacts, VolumeProtection};
use crate::work::{Controller, work};

/// The garbage collector waits this long for all of its kinds to be listed. A kind that is not
/// served must not block it for longer.
const COLLECTED_KINDS_LISTED_WITHIN: Duration = Duration::from_secs(10);

/// All controllers and their views.
pub(crate) struct Controllers {
    seed: u64,
    nodes: Arc<View<NodeFacts>>,
    pods: Arc<View<PodFacts>>,
    leases: Arc<View<LeaseFacts>>,
    budgets: Arc<View<BudgetFacts>>,
    requests: Arc<View<RequestFacts>>,
    tokens: Arc<View<TokenFacts>>,
    spaces: Arc<View<NamespaceFacts>>,
    accounts: Arc<View<AccountFacts>>,
    root_cas: Arc<View<RootCaFacts>>,
    claims: Arc<View<ClaimFacts>>,
    volumes: Arc<View<VolumeFacts>>,
    garbage_collector: GarbageCollector,
    disruption: Disruption,
    certificates: Certificates,
    node_lifecycle: NodeLifecycle,
    lost_pods: LostPods,
    bootstrap_tokens: BootstrapTokens,
    namespaces: Namespaces,
    provisions: Provisions,
    volume_protection: VolumeProtection,
}

/// A running part; ends only if it can never succeed.
type Task<'a> = BoxFuture<'a, WatchFatal>;

impl Controllers {
    /// Connects queues and views. The views are shared from then on.
    pub(crate) fn new(client: &Client, config: KcmConfig) -> Self {
        let seed = config.seed;
        let client = || client.clone();
        let clock = || config.clock.clone();
        let patience = Patience {
            grace: config.node_monitor_grace,
            startup_grace: config.node_startup_grace,
            pod_eviction_after: config.pod_eviction_after,
        };
        let collected = config.gc_resources.into_iter().map(|GcResource(resource)| resource);
        let kinds = Arc::new(Kinds::new(client(), collected.clone()));

        let mut nodes = View::new(&[]);
        let mut pods = View::new(&[
            (PodFacts::BY_NODE, |pod: &PodFacts, values| values.extend(pod.node.clone())),
            (PodFacts::BY_NAMESPACE, |pod, values| values.push(pod.namespace.clone())),
            (PodFacts::BY_CLAIM, |pod, values| {
                values.extend(pod.claimed.iter().map(|volume| format!("{}/{}", pod.namespace, volume.claim)));
            }),
        ]);
        let mut leases = View::new(&[]);
        let mut budgets = View::new(&[(BudgetFacts::BY_NAMESPACE, |budget: &BudgetFacts, values| {
            values.push(budget.namespace.clone());
        })]);
        let mut requests = View::new(&[]);
        let mut tokens = View::new(&[]);
        let mut spaces = View::new(&[]);
        let mut accounts = View::new(&[]);
        let mut root_cas = View::new(&[]);
        let mut claims = View::new(&[(ClaimFacts::WAITING, |claim: &ClaimFacts, values| {
            values.extend(claim.waiting_in());
        })]);
        let mut volumes = View::new(&[]);

        let life = node_lifecycle::NodeListener::new(config.node_monitor_period, seed);
        life.listen(&mut nodes, &mut pods, &mut leases);
        let lost = lost_pods::listen(&mut nodes, &mut pods, seed);
        let to_empty = namespaces::listen(&mut spaces, &mut pods, seed);
        let to_provide = provisions::listen(&mut spaces, &mut accounts, &mut root_cas, seed);
        let (spaces, accounts, root_cas) = (Arc::new(spaces), Arc::new(accounts), Arc::new(root_cas));
        let root_ca = config.ca.as_ref().map(|ca| ca.certificate_pem().to_owned());
        let to_sign = certificates::listen(&mut requests, seed);
        let to_expire = bootstrap_tokens::listen(&mut tokens, seed);
        let to_count = disruption::listen_to_budgets(&mut budgets, seed);
        let budgets = Arc::new(budgets);
        disruption::listen_to_pods(&mut pods, &budgets, &to_count);
        let to_let_go = volume_protection::listen(&mut claims, &mut volumes, seed);
        let (claims, volumes) = (Arc::new(claims), Arc::new(volumes));
        volume_protection::listen_to_pods(&mut pods, &claims, &to_let_go);
        let (nodes, pods) = (Arc::new(nodes), Arc::new(pods));
        let (requests, tokens) = (Arc::new(requests), Arc::new(tokens));

        let to_collect = garbage_collector::queue(seed);
        let collected = collected.map(|resource| {
            let mut view = Graph::view();
            garbage_collector::listen(&mut view, &to_collect);
            Collected { resource, view: Arc::new(view) }
        });
        let graph = Graph::new(collected.collect());
        let defined_kinds = config.collect_defined_kinds.then(DefinedKinds::new);

        Self {
            seed,
            garbage_collector: GarbageCollector::new(
                client(),
                kinds.clone(),
                to_collect,
                graph,
                defined_kinds,
            ),
            disruption: Disruption::new(client(), clock(), kinds, to_count, budgets.clone(), pods.clone()),
            certificates: Certificates::new(
                client(),
                clock(),
                config.ca,
                config.certificate_life,
                to_sign,
                requests.clone(),
            ),
            node_lifecycle: NodeLifecycle::new(
                client(),
                clock(),
                patience,
                &life,
                nodes.clone(),
                pods.clone(),
            ),
            lost_pods: LostPods::new(
                client(),
                config.missing_node_quarantine,
                lost,
                nodes.clone(),
                pods.clone(),
            ),
            bootstrap_tokens: BootstrapTokens::new(client(), clock(), config.skew, to_expire, tokens.clone()),
            namespaces: Namespaces::new(client(), clock(), to_empty),
            provisions: Provisions {
                client: client(),
                root_ca,
                queue: to_provide,
                namespaces: spaces.clone(),
                accounts: accounts.clone(),
                root_cas: root_cas.clone(),
            },
            volume_protection: VolumeProtection {
                client: client(),
                queue: to_let_go,
                claims: claims.clone(),
                volumes: volumes.clone(),
                pods: pods.clone(),
            },
            nodes,
            pods,
            spaces,
            accounts,
            root_cas,
            claims,
            volumes,
            leases: Arc::new(leases),
            budgets,
            requests,
            tokens,
        }
    }

    /// Runs until one of the watches can never succeed.
    pub(crate) async fn run(&self, client: &Client) -> WatchFatal {
        let mut tasks = self.watches(client);
        tasks.extend(self.passes());
        let (ended, _, _) = select_all(tasks).await;
        ended
    }

    fn watches(&self, client: &Client) -> Vec<Task<'_>> {
        let all = || client.clone();
        let mut watches: Vec<Task<'_>> = vec![
            self.follow(&self.nodes, Api::<Node>::all(all()), None, NodeFacts::parse),
            self.follow(&self.pods, Api::<Pod>::all(all()), None, PodFacts::parse),
            self.follow(
                &self.leases,
                Api::<Lease>::namespaced(all(), LEASE_NAMESPACE),
                None,
                LeaseFacts::parse,
            ),
            self.follow(&self.budgets, Api::<PodDisruptionBudget>::all(all()), None, BudgetFacts::parse),
            self.follow(
                &self.requests,
                Api::<CertificateSigningRequest>::all(all()),
                None,
                RequestFacts::parse,
            ),
            self.follow(
                &self.tokens,
                Api::<Secret>::namespaced(all(), bootstrap_tokens::NAMESPACE),
                Some(bootstrap_tokens::FIELD_SELECTOR),
                TokenFacts::parse,
            ),
            self.follow(&self.spaces, Api::<Namespace>::all(all()), None, NamespaceFacts::parse),
            self.follow(
                &self.accounts,
                Api::<ServiceAccount>::all(all()),
                Some(provisions::ACCOUNT_SELECTOR),
                AccountFacts::parse,
            ),
            self.follow(
                &self.root_cas,
                Api::<ConfigMap>::all(all()),
                Some(provisions::ROOT_CA_SELECTOR),
                RootCaFacts::parse,
            ),
            self.follow(&self.claims, Api::<PersistentVolumeClaim>::all(all()), None, ClaimFacts::parse),
            self.follow(&self.volumes, Api::<PersistentVolume>::all(all()), None, VolumeFacts::parse),
        ];
        for kind in self.garbage_collector.graph().kinds() {
            let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(all(), &kind.resource.api);
            let view = kind.view.clone();
            let follow = async move { view.follow(api, None, self.seed, ItemFacts::parse).await };
            watches.push(follow.boxed());
        }
        if let Some(defined) = self.garbage_collector.defined_kinds() {
            let api = Api::<CustomResourceDefinition>::all(all());
            watches.push(self.follow(&defined.definitions, api, None, DefinitionFacts::parse));
            watches.push(self.garbage_collector.collect_defined_kinds(self.seed).boxed());
        }
        watches
    }

    fn follow<'a, K, F>(
        &self,
        view: &'a View<F>,
        api: Api<K>,
        field_selector: Option<&'a str>,
        parse: fn(K) -> F,
    ) -> Task<'a>
    where
        K: Resource + DeserializeOwned + Send + 'static,
        F: Send + Sync + 'static,
    {
        view.follow(api, field_selector, self.seed, parse).boxed()
    }

    /// Starts each controller once all of its views were listed.
    fn passes(&self) -> Vec<Task<'_>> {
        let node_views = || async {
            self.nodes.synced().await;
            self.pods.synced().await;
            self.leases.synced().await;
        };
        let budget_views = || async {
            self.budgets.synced().await;
            self.pods.synced().await;
        };
        let provision_views = || async {
            self.spaces.synced().await;
            self.accounts.synced().await;
            self.root_cas.synced().await;
        };
        let claim_views = || async {
            self.claims.synced().await;
            self.volumes.synced().await;
            self.pods.synced().await;
        };
        vec![
            begin(&self.namespaces, self.spaces.synced()),
            begin(&self.provisions, provision_views()),
            begin(&self.volume_protection, claim_views()),
            begin(&self.garbage_collector, self.collected_kinds_listed()),
            begin(&self.disruption, budget_views()),
            begin(&self.certificates, self.requests.synced()),
            begin(&self.node_lifecycle, node_views()),
            begin(&self.lost_pods, node_views()),
            begin(&self.bootstrap_tokens, self.tokens.synced()),
            async { match self.node_lifecycle.keep_listening().await {} }.boxed(),
        ]
    }

    async fn collected_kinds_listed(&self) {
        let kinds = self.garbage_collector.graph().kinds();
        let listed = join_all(kinds.iter().map(|kind| kind.view.synced()));
        if timeout(COLLECTED_KINDS_LISTED_WITHIN, listed).await.is_err() {
            let missing: Vec<&str> = kinds
                .iter()
                .filter(|kind| !kind.view.store().synced())
                .map(|kind| kind.resource.api.plural.as_str())
                .collect();
            tracing::warn!(?missing, "Collecting garbage although some kinds could not be listed");
        }
    }
}

fn begin<'a, C: Controller>(controller: &'a C, ready: impl Future<Output = ()> + Send + 'a) -> Task<'a> {
    async move {
        ready.await;
        match work(controller).await {}
    }
    .boxed()
}
