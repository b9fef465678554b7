//! The embedded server alone, for kubectl: `cargo run -p machinist-apiserver --example serve --
//! [FOLDER] [ADDRESS]`.

#![expect(clippy::print_stdout, reason = "it prints the path of the kubeconfig")]

use std::error::Error;
use std::path::PathBuf;

use machinist_apiserver::{Config, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(|| PathBuf::from("machinist-serve"), PathBuf::from);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let server = Server::new(Config::default());
        let serving = server.serve(address, &folder).await?;
        println!("{} is up; KUBECONFIG={}", serving.url(), serving.kubeconfig.display());
        tokio::signal::ctrl_c().await?;
        serving.shutdown().await;
        Ok(())
    })
}
