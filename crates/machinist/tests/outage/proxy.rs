//! A proxy between the controllers and the API server of the Nodes. The API server can be made
//! unreachable for the controllers only.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How the API server of the Nodes is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Connections are closed, and new ones are closed at once.
    Refuse,
    /// Connections stay open and carry nothing.
    Hang,
    /// The process of the API server is suspended, for users and machines too.
    Suspend,
}

/// The proxy. Dropping it ends all connections.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    server: SocketAddr,
    fault: watch::Sender<Option<Fault>>,
}

impl Proxy {
    /// Starts a proxy to that server on a free port.
    #[expect(clippy::disallowed_methods, reason = "every connection watches the fault")]
    pub(crate) async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (fault, faults) = watch::channel(None);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, faults.clone()));
            }
        });
        Ok(Self { address, server, fault })
    }

    /// Starts or ends a fault.
    pub(crate) fn set(&self, fault: Option<Fault>) -> Result<()> {
        let was = self.fault.send_replace(fault);
        if fault == Some(Fault::Suspend) {
            signal(self.server, "-STOP")?;
        } else if was == Some(Fault::Suspend) {
            signal(self.server, "-CONT")?;
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A suspended server would keep the run from ending.
        let _ = self.set(None);
    }
}

/// Carries one connection until it ends, or until a fault ends or freezes it.
async fn carry(mut client: TcpStream, server: SocketAddr, mut faults: watch::Receiver<Option<Fault>>) {
    let is_away = |fault: &Option<Fault>| matches!(fault, Some(Fault::Refuse | Fault::Hang));
    let away_with = *faults.borrow_and_update();
    if !is_away(&away_with) {
        let Ok(mut onward) = TcpStream::connect(server).await else { return };
        tokio::select! {
            biased;
            _ = faults.wait_for(is_away) => {}
            _ = copy_bidirectional(&mut client, &mut onward) => return,
        }
    }
    // A refused connection is dropped here. A hanging one stays open until the fault ends.
    if *faults.borrow() == Some(Fault::Hang) {
        let _ = faults.wait_for(|fault| *fault != Some(Fault::Hang)).await;
    }
}

/// Sends a signal to the process of a kube-apiserver, which is found by its port.
fn signal(server: SocketAddr, signal: &str) -> Result<()> {
    let pattern = format!("kube-apiserver.*--secure-port={}( |$)", server.port());
    let sent =
        Command::new("pkill").args([signal, "--full", &pattern]).status().context("cannot run pkill")?;
    ensure!(sent.success(), "no kube-apiserver has the port {}", server.port());
    Ok(())
}
