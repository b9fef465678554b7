//! Serves the stand-in on a loopback address, for experiments with other clients.
//!
//! Usage: `serve [ADDRESS [SPEED]]`. With `instant` as the speed, actions have ended when they are
//! answered.

use std::net::SocketAddr;

use machinist_cloud_sim::Clock;
use machinist_standin_hcloud::http::Server;
use machinist_standin_hcloud::{Access, Settings, Standin};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:7080").parse()?;
    let mut settings = match arguments.next().as_deref() {
        Some("instant") => Settings::instant(),
        _ => Settings::default(),
    };
    settings.tokens.set("read-only", "default", Access::ReadOnly);
    settings.tokens.set("other", "other", Access::ReadWrite);
    let standin = Standin::in_memory(settings, Clock::wall());
    let server = Server::bind(standin, address).await?;
    #[expect(clippy::print_stdout, reason = "the address is the output of this program")]
    {
        println!("{}", server.endpoint());
    }
    server.serve(std::future::pending()).await;
    Ok(())
}
