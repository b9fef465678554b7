//! Measures the server's throughput in process: `cargo run --profile dist -p machinist-apiserver
//! --example throughput -- [WATCHERS]`.
//!
//! A few writers patch ConfigMaps while watchers read the events. The program prints writes and
//! deliveries per second. It does not judge the result; the benchmarks in `cargo xtask bench` do.

#![expect(clippy::print_stdout, reason = "it prints its measurements")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use machinist_apiserver::{Config, Identity, Server};
use tower::Service;

const WRITERS: u64 = 8;
const WRITES: u64 = 20_000;
const OBJECTS: u64 = 1_000;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let watchers: u64 = std::env::args().nth(1).map_or(Ok(100), |n| n.parse())?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let server = Server::new(Config::default());
        for n in 0..OBJECTS {
            send(
                &server,
                "POST",
                PATH,
                &format!(r#"{{"metadata":{{"name":"m{n}"}},"data":{{"text":"{}"}}}}"#, "x".repeat(1000)),
            )
            .await?;
        }
        let lines = Arc::new(AtomicU64::new(0));
        for _ in 0..watchers {
            let request = Request::get(format!("{PATH}?watch=1&resourceVersion={}", server.revision()))
                .body(Full::<Bytes>::default())?;
            let mut body = server.service_as(Identity::admin()).call(request).await?.into_body();
            let lines = lines.clone();
            tokio::spawn(async move {
                while let Some(Ok(_)) = body.frame().await {
                    lines.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let started = Instant::now();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let server = server.clone();
            writers.spawn(async move {
                for n in 0..WRITES / WRITERS {
                    let path = format!("{PATH}/m{}", (n * WRITERS + writer) % OBJECTS);
                    let body = format!(r#"{{"data":{{"n":"{n}"}}}}"#);
                    send(&server, "PATCH", &path, &body).await.map_err(|e| e.to_string())?;
                }
                Ok::<(), String>(())
            });
        }
        while let Some(done) = writers.join_next().await {
            done??;
        }
        let seconds = started.elapsed().as_secs_f64();
        let writes = WRITES as f64 / seconds;
        println!(
            "{writes:.0} writes/s, {:.0} deliveries/s to {watchers} watchers",
            lines.load(Ordering::Relaxed) as f64 / seconds
        );
        let started = Instant::now();
        for _ in 0..20 {
            send(&server, "GET", PATH, "").await?;
        }
        println!("{:.1} lists/s of {OBJECTS} objects", 20.0 / started.elapsed().as_secs_f64());
        Ok(())
    })
}

async fn send(
    server: &Server,
    verb: &str,
    path: &str,
    body: &str,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let content_type = if verb == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(verb)
        .uri(path)
        .header("Content-Type", content_type)
        .body(Full::new(Bytes::from(body.to_owned())))?;
    let response = server.service_as(Identity::admin()).call(request).await?;
    if !response.status().is_success() {
        return Err(format!("{verb} {path}: {}", response.status()).into());
    }
    response.into_body().collect().await?;
    Ok(())
}
