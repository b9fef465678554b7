//! Says that the served namespace is being deleted. Kubernetes then deletes the Leases, roles and
//! pods in it as well, so that often no process can finish the Machines.

use std::convert::Infallible;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use machinist_kube::Delta;
use machinist_kube::watch::{WatchOptions, run_watch};
use machinist_serve::{Gauge, Metrics};

const DELETING: Gauge = Gauge::new(
    "machinist_namespace_deleting",
    "1 while the namespace of the machine objects is being deleted.",
);

/// Watches the namespace. Without permission to read it, only says so.
pub(super) async fn tell_of_deletion(client: kube::Client, name: &str, metrics: Metrics) -> Infallible {
    let api: Api<Namespace> = Api::all(client);
    if let Err(kube::Error::Api(status)) = api.get_opt(name).await
        && status.code == 403
    {
        tracing::info!(
            namespace = name,
            "No permission to read the namespace, so its deletion would not be reported"
        );
        return std::future::pending().await;
    }
    metrics.set(&DELETING, &[], 0.0);
    let options =
        WatchOptions { field_selector: Some(format!("metadata.name={name}")), ..WatchOptions::default() };
    let is_ending = |namespace: Namespace| namespace.metadata.deletion_timestamp.is_some();
    let mut is_reported = false;
    let fatal = run_watch(api, options, is_ending, |delta: Delta<bool>| {
        let is_ending = match delta {
            Delta::Upsert(_, namespace) => *namespace.facts,
            Delta::Relist(list) => list.items.iter().any(|(_, namespace)| *namespace.facts),
            _ => return,
        };
        metrics.set_number(&DELETING, &[], usize::from(is_ending));
        if is_ending && !std::mem::replace(&mut is_reported, true) {
            tracing::error!(
                namespace = name,
                "The namespace is being deleted. Its Machines are deleted with it; without rights outside of the \
                 namespace no process can finish them, and instances run on. See the page Uninstall"
            );
        }
    })
    .await;
    tracing::warn!(error = %fatal, "The namespace is no longer watched");
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use kube::api::{DeleteParams, PostParams};
    use machinist_apiserver::{Authorization, Config, Identity, Server};
    use machinist_serve::samples_of;
    use serde_json::json;
    use tokio::task::JoinHandle;
    use tokio::time::sleep;
    use tracing::Dispatch;
    use tracing::subscriber::NoSubscriber;
    use tracing_subscriber::util::SubscriberInitExt as _;

    use super::*;

    /// The log of a test.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        /// Returns the lines that contain this text.
        fn lines_with(&self, part: &str) -> Vec<String> {
            let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = String::from_utf8_lossy(&bytes);
            lines.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
        }
    }

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Captures the log of this test, which runs on one thread, until the guard is dropped.
    fn capture() -> (Log, impl Sized) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        // With only one subscriber, the first test that reaches a log line decides whether that
        // line is ever logged.
        (log, (subscriber.set_default(), Dispatch::new(NoSubscriber::default())))
    }

    /// A server with the served namespace `team` and another one, and a process that watches the
    /// first.
    struct World {
        namespaces: Api<Namespace>,
        metrics: Metrics,
        _process: JoinHandle<Infallible>,
    }

    impl World {
        async fn new(authorization: Authorization, process: Identity) -> Self {
            let server = Server::new(Config { authorization, ..Config::default() });
            let namespaces: Api<Namespace> =
                Api::all(kube::Client::new(server.service_as(Identity::admin()), "default"));
            for name in ["team", "other"] {
                let namespace = json!({"metadata": {"name": name}});
                let namespace = serde_json::from_value(namespace).expect("a Namespace");
                namespaces.create(&PostParams::default(), &namespace).await.expect("created");
            }
            let client = kube::Client::new(server.service_as(process), "default");
            let metrics = Metrics::default();
            let measured = metrics.clone();
            let process = tokio::spawn(async move { tell_of_deletion(client, "team", measured).await });
            sleep(Duration::from_secs(5)).await;
            Self { namespaces, metrics, _process: process }
        }

        async fn delete(&self, name: &str) {
            self.namespaces.delete(name, &DeleteParams::default()).await.expect("the deletion begins");
            sleep(Duration::from_secs(1)).await;
        }

        fn gauge(&self) -> Option<f64> {
            let samples = samples_of(&self.metrics.text());
            samples.into_iter().find(|(name, _)| name == DELETING.name()).map(|(_, value)| value)
        }
    }

    /// The process reports it at once, although nothing is deleted yet, and once.
    #[tokio::test(start_paused = true)]
    async fn a_deletion_of_the_served_namespace_is_reported() {
        let (log, _guard) = capture();
        let world = World::new(Authorization::default(), Identity::admin()).await;
        assert_eq!(world.gauge(), Some(0.0));
        world.delete("other").await;
        assert_eq!(world.gauge(), Some(0.0), "another namespace");
        assert_eq!(log.lines_with("is being deleted"), [""; 0]);
        world.delete("team").await;
        assert_eq!(world.gauge(), Some(1.0));
        world.delete("team").await;
        sleep(Duration::from_secs(3600)).await;
        let lines = log.lines_with("is being deleted");
        let [line] = lines.as_slice() else { panic!("expected one line, got {lines:#?}") };
        for part in ["ERROR", "team", "instances run on", "Uninstall"] {
            assert!(line.contains(part), "expected {part:?} in {line}");
        }
    }

    /// The process starts while the namespace is being deleted.
    #[tokio::test(start_paused = true)]
    async fn a_deletion_from_before_the_start_is_reported() {
        let (log, _guard) = capture();
        let world = World::new(Authorization::default(), Identity::admin()).await;
        world.delete("other").await;
        let metrics = world.metrics.clone();
        let client = world.namespaces.clone().into_client();
        let _second = tokio::spawn(async move { tell_of_deletion(client, "other", metrics).await });
        sleep(Duration::from_secs(5)).await;
        assert_eq!(world.gauge(), Some(1.0));
        assert_eq!(log.lines_with("is being deleted").len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_without_the_permission_says_so() {
        let (log, _guard) = capture();
        let process = Identity::new("system:serviceaccount:controllers:mc", ["system:authenticated"]);
        let world = World::new(Authorization::Rbac, process).await;
        assert_eq!(world.gauge(), None);
        assert_eq!(log.lines_with("No permission to read the namespace").len(), 1);
        world.delete("team").await;
        assert_eq!(world.gauge(), None);
    }
}
