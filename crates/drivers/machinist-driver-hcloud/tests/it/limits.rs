//! Pages, the rate limit and the counters of the client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use machinist_driver::Provider as _;
use machinist_driver_hcloud::{HcloudOptions, HcloudProvider, NoAnswer, Transport};
use machinist_instance::{ErrorKind, Place, Scope};
use machinist_standin_hcloud::{Fault, FaultRule, NewServer, Settings, Standin};

use crate::cloud::{Cloud, PROJECT, TOKEN, options, settings};
use crate::pipe;

/// Number of servers for three pages.
const SERVERS: usize = 120;

fn large_cloud() -> Cloud {
    let instant = Settings { tokens: settings().tokens, ..Settings::instant() };
    let cloud = Cloud::with(instant, HcloudOptions { network: None, ..options() });
    for number in 0..SERVERS {
        cloud.server(&format!("w-{number}"));
    }
    cloud
}

#[tokio::test(start_paused = true)]
async fn a_list_reads_pages_of_fifty() {
    let cloud = large_cloud();
    let listed = cloud.driver().instances().list(&Scope::Visible).await.expect("a list");
    assert_eq!(listed.len(), SERVERS);
    assert_eq!(cloud.reads(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_between_pages_is_read_again() {
    let cloud = large_cloud();
    let second_page =
        FaultRule { skip: 1, ..FaultRule::once("GET", "/v1/servers", Fault::OmitAtPageBoundary) };
    cloud.standin.add_fault(second_page);
    let listed = cloud.driver().instances().list(&Scope::Visible).await.expect("the second list agrees");
    assert_eq!((listed.len(), cloud.reads()), (SERVERS, 6));
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_list_is_an_error() {
    let cloud = large_cloud();
    cloud.standin.add_fault(FaultRule::always("GET", "/v1/servers", Fault::OmitAtPageBoundary));
    let error = cloud.driver().instances().list(&Scope::Visible).await.expect_err("incomplete");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("changed between its pages"), "{error}");
}

/// Deletes one server and creates another, directly after the first answer.
struct Swap {
    http: Arc<dyn Transport>,
    standin: Standin,
    deleted: i64,
    has_swapped: AtomicBool,
}

#[async_trait]
impl Transport for Swap {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let answer = self.http.send(request).await;
        if !self.has_swapped.swap(true, Ordering::Relaxed) {
            self.standin.delete_server(self.deleted).expect("it exists");
            self.standin.create_server(&NewServer::new(PROJECT, "new")).expect("a server");
        }
        answer
    }
}

/// The number of servers stays the same, so it does not show the change.
#[tokio::test(start_paused = true)]
async fn a_list_misses_no_server_when_one_replaces_another() {
    let ids =
        |cloud: &Cloud| cloud.standin.servers_ever().into_iter().map(|server| server.id).collect::<Vec<_>>();
    // A deletion of the newest moves no other server. One of the oldest moves some to a later page:
    // the second page repeats a server, and the list begins again.
    for (is_newest, reads) in [(true, 3), (false, 5)] {
        let cloud = large_cloud();
        let before = ids(&cloud);
        let deleted = *if is_newest { before.iter().max() } else { before.iter().min() }.expect("a server");
        let swap = Swap {
            http: pipe::http(cloud.standin.clone()),
            standin: cloud.standin.clone(),
            deleted,
            has_swapped: AtomicBool::new(false),
        };
        let clock = cloud.standin.clone();
        let options = HcloudOptions { network: None, ..options() };
        let provider = HcloudProvider::over(Arc::new(swap), options).with_clock(move || clock.now());
        let (account, credential) = cloud.account();
        let driver = provider.open(&account, &credential, &Place::WHOLE).expect("a token");
        let listed = driver.instances().list(&Scope::Visible).await.expect("a list");
        for id in before.iter().filter(|id| **id != deleted) {
            let id = format!("hcloud://{id}");
            assert!(listed.iter().any(|instance| instance.id.as_str() == id), "{id} is missing");
        }
        assert_eq!(cloud.reads(), reads);
    }
}

/// Each answer says how many calls are left.
#[tokio::test(start_paused = true)]
async fn an_empty_bucket_throttles_with_a_wait() {
    let cloud = Cloud::with(settings(), HcloudOptions { network: None, ..options() });
    let driver = cloud.driver();
    cloud.standin.set_rate(PROJECT, 3600, 1);
    driver.instances().list(&Scope::Visible).await.expect("the last call");
    let error = driver.instances().list(&Scope::Visible).await.expect_err("throttled");
    let wait = Some(Duration::from_secs(60));
    assert_eq!(error.kind, ErrorKind::Throttled { retry_after: wait });
    let (account, _) = cloud.account();
    let rate = cloud.provider.rates().of(&account).expect("an answer arrived");
    assert_eq!((rate.limit, rate.remaining), (3600, 0));
    assert!(driver.clock_skew().is_some(), "answers have a date");
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_method_path_and_status() {
    let cloud = Cloud::with(settings(), HcloudOptions { network: None, ..options() });
    let driver = cloud.driver();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let counted = seen.clone();
    cloud.provider.traffic().observe(move |call, _| {
        let line = format!("{} {}: {}", call.method, call.endpoint, call.code_text());
        counted.lock().expect("no panic").push(line);
    });
    cloud.standin.add_fault(FaultRule::once("GET", "/v1/servers", Fault::Reset));
    let _ = driver.instances().list(&Scope::Visible).await;
    cloud.standin.revoke_token(TOKEN);
    let error = driver.instances().list(&Scope::Visible).await.expect_err("revoked");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.contains("unauthorized"), "{error}");
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    assert_eq!(seen, ["GET /servers: error", "GET /servers: 401"]);
    let agents = cloud.standin.requests().into_iter().map(|request| request.user_agent);
    assert!(agents.into_iter().all(|agent| agent.starts_with("machinist/")));
}
