//! Serves the stand-in on a loopback address, for experiments with other clients.
//!
//! Usage: `serve_hcloud [ADDRESS [SPEED]]`. SPEED is `instant` (actions have ended when they are
//! answered), `quick` (actions take a tenth of a second) or `usual` (actions take a second). The
//! first line of output is the endpoint. Tokens: `stand-in`, `read-only` for the same project, and
//! `other`.

use std::net::SocketAddr;
use std::time::Duration;

use machinist_cloud_sim::Clock;
use machinist_standin_hcloud::http::LoopbackServer;
use machinist_standin_hcloud::{Access, Settings, Standin};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:7080").parse()?;
    let mut settings = match arguments.next().as_deref() {
        Some("instant") => Settings::instant(),
        Some("quick") => {
            let tenth = Duration::from_millis(100);
            Settings { action: tenth, create: tenth, start: tenth, ..Settings::default() }
        }
        _ => Settings::default(),
    };
    settings.tokens.set("read-only", "default", Access::ReadOnly);
    settings.tokens.set("other", "other", Access::ReadWrite);
    let standin = Standin::in_memory(settings, Clock::wall());
    let server = LoopbackServer::bind(standin, address).await?;
    #[expect(clippy::print_stdout, reason = "the address is the output of this program")]
    {
        println!("{}", server.url());
    }
    server.serve(std::future::pending()).await;
    Ok(())
}
