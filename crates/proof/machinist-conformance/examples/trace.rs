//! Records kubectl's requests to a real server as cases: `cargo xtask conformance --trace` runs
//! this program, and records the answers.
//!
//! The program is a proxy between kubectl and the server. It runs the commands in
//! `corpus/kubectl/traced.txt`, and writes one case for each section. The proxy never requests
//! protobuf answers, even if kubectl prefers them, because the case has to be readable.

#![expect(clippy::print_stdout, reason = "it prints the files that it wrote")]

use std::convert::Infallible;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clap::Parser;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use machinist_apiserver::Body;
use machinist_conformance::{
    Corpus, ExaminedServer, Remote, RequestTrace, make_namespace, prepare, unused_namespace,
};
use serde_json::Value;
use tokio::net::TcpListener;

#[derive(Parser)]
struct Args {
    /// The real server
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,

    /// The kubectl to run
    #[arg(long, value_name = "FILE")]
    kubectl: PathBuf,
}

/// State that the proxy shares with the loop that runs the commands.
#[derive(Clone)]
struct Proxy {
    server: ExaminedServer,
    trace: Arc<Mutex<Option<RequestTrace>>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(record(&args))
}

async fn record(args: &Args) -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let corpus = Corpus::load(&folder)?;
    let server = ExaminedServer::Remote(Arc::new(Remote::from_kubeconfig(&args.kubeconfig, None)?));
    prepare(&server, &corpus.definitions()).await?;
    let proxy = Proxy { server, trace: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, proxy.clone()));

    let home = tempfile::tempdir()?;
    let text = std::fs::read_to_string(folder.join("kubectl/traced.txt"))?;
    for section in text.split("\n## ").skip(1) {
        let (title, commands) = section.split_once('\n').unwrap_or((section, ""));
        let (name, shows) =
            title.split_once(": ").ok_or("a section needs the heading `NAME: DESCRIPTION`")?;
        let namespace = unused_namespace();
        let config = home.path().join(name);
        std::fs::write(&config, kubeconfig(&address.to_string(), &namespace))?;
        make_namespace(&proxy.server, &namespace).await?;
        *proxy.trace.lock().unwrap_or_else(|e| e.into_inner()) = Some(RequestTrace::new(&namespace));
        for line in commands.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let line = line.replace("NAMESPACE", &namespace);
            let status = tokio::process::Command::new("sh")
                .args(["-c", &line])
                .current_dir(folder.join("kubectl"))
                .env("PATH", path_with(args.kubectl.parent().unwrap_or(Path::new(".")))?)
                .env("HOME", home.path())
                .env("KUBECONFIG", &config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .await?;
            println!("{name}: {line}: {status}");
            if let Some(trace) = &mut *proxy.trace.lock().unwrap_or_else(|e| e.into_inner()) {
                trace.end_watches();
            }
        }
        let trace = proxy.trace.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(trace) = trace {
            let case = trace.case(name, shows);
            std::fs::write(folder.join("cases").join(format!("{name}.yaml")), case.yaml())?;
        }
    }
    Ok(())
}

/// Kubeconfig for plain HTTP. The proxy sends the user's identity to the real server.
fn kubeconfig(address: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u, namespace: {namespace}}}}}]\n"
    )
}

fn path_with(folder: &Path) -> Result<std::ffi::OsString, std::env::JoinPathsError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path)))
}

async fn serve(listener: TcpListener, proxy: Proxy) {
    while let Ok((stream, _)) = listener.accept().await {
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| pass(proxy.clone(), request));
            // A client that disconnects is not an error.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn pass(
    proxy: Proxy,
    request: Request<Incoming>,
) -> Result<Response<Body>, Box<dyn Error + Send + Sync>> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let accept =
        parts.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("protobuf") {
        parts.headers.insert(http::header::ACCEPT, http::HeaderValue::from_static("application/json"));
    }
    // The proxy cannot read compressed answers.
    parts.headers.remove(http::header::ACCEPT_ENCODING);
    let noted = proxy
        .trace
        .lock()
        .unwrap_or_else(|e| e.into_inner())
        .as_mut()
        .and_then(|trace| trace.request(&parts, &body));
    let is_watch = parts.uri.query().unwrap_or_default().contains("watch=");
    let answer = proxy.server.pass(Request::from_parts(parts, Full::new(body))).await?;
    let Some(id) = noted else { return Ok(answer) };
    let (head, body) = answer.into_parts();
    if is_watch {
        return Ok(Response::from_parts(head, noting(body, id, proxy.trace)));
    }
    let bytes = body.collect().await?.to_bytes();
    if let (Ok(value), Some(trace)) =
        (serde_json::from_slice(&bytes), &mut *proxy.trace.lock().unwrap_or_else(|e| e.into_inner()))
    {
        trace.answer(&id, &value);
    }
    Ok(Response::from_parts(head, Full::new(bytes).map_err(|never| match never {}).boxed_unsync()))
}

/// Passes the events on and records each.
fn noting(body: Body, id: String, trace: Arc<Mutex<Option<RequestTrace>>>) -> Body {
    let frames = futures::stream::unfold(
        (body, Vec::new(), id, trace),
        |(mut body, mut line, id, trace)| async move {
            let data: Bytes = body.frame().await?.ok()?.into_data().unwrap_or_default();
            line.extend_from_slice(&data);
            while let Some(end) = line.iter().position(|b| *b == b'\n') {
                let event: Vec<u8> = line.drain(..=end).collect();
                if let (Ok(event), Some(trace)) = (
                    serde_json::from_slice::<Value>(&event),
                    &mut *trace.lock().unwrap_or_else(|e| e.into_inner()),
                ) {
                    trace.event(&id, &event);
                }
            }
            Some((Ok::<_, Infallible>(Frame::data(data)), (body, line, id, trace)))
        },
    );
    StreamBody::new(frames).map_err(|never| match never {}).boxed_unsync()
}
