//! Records golden answers from a real kube-apiserver:
//! `cargo run -p machinist-apiserver --features conformance --example record -- KUBECONFIG ETCD_URL [CASE]...`
//!
//! The server must be a scratch one without kube-controller-manager, with the ServiceAccount admission on. Every case gets a
//! namespace of its own, which stays behind.

#![expect(clippy::print_stdout, reason = "it tells what it wrote")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use machinist_apiserver::conformance::{Endpoint, Remote, choose, load, prepare, run};
use machinist_apiserver::{Ids, RandomIds};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = arguments.next().map(PathBuf::from).ok_or("which kubeconfig?")?;
    let etcd = arguments.next().ok_or("which etcd?")?;
    let wanted: Vec<String> = arguments.collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
    let endpoint = Endpoint::Remote(Arc::new(Remote::from_kubeconfig(&kubeconfig, Some(etcd))?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        prepare(&endpoint, &folder.join("definitions")).await?;
        for case in choose(load(&folder.join("cases"))?, &wanted)? {
            let namespace = format!("case-{}", RandomIds.suffix());
            let transcript = run(&endpoint, &case, &namespace).await?;
            let file = folder.join("golden").join(format!("{}.json", case.name));
            std::fs::write(&file, transcript.text())?;
            println!("{}", file.display());
        }
        Ok(())
    })
}
