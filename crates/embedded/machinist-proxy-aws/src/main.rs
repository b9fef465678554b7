//! Serves the proxy on a loopback address. The first line of output is its URL.

use std::net::SocketAddr;

use anyhow::Context;
use clap::Parser;
use machinist_proxy_aws::{HttpBackend, LoopbackServer, Proxy};

/// A proxy in front of moto, which adds signatures, client tokens, delays and faults of AWS
#[derive(Parser)]
#[command(name = "machinist-proxy-aws")]
struct Args {
    /// URL of moto
    #[arg(long, value_name = "URL")]
    backend: String,

    /// Loopback address to listen on; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Access key and secret key of accepted requests (may be given several times). Other users of
    /// this computer can read it, so it must not be a key of AWS
    #[arg(long = "key", value_name = "ID=SECRET")]
    keys: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let proxy = Proxy::new(HttpBackend::new(&args.backend).context("--backend")?);
    for key in &args.keys {
        let (access_key, secret_key) = key.split_once('=').context("--key: expected ID=SECRET")?;
        proxy.accept(access_key, secret_key);
    }
    let server = LoopbackServer::bind(proxy, args.listen).await.context("--listen")?;
    #[expect(clippy::print_stdout, reason = "the address is the output of this program")]
    {
        println!("{}", server.url());
    }
    server.serve(std::future::pending()).await;
    Ok(())
}
