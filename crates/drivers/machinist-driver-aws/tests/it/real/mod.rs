//! The driver with a counterpart that is another program: moto, a server of the API of EC2, behind
//! the proxy `machinist-proxy-aws` at the URL of `MACHINIST_AWS_ENDPOINT`. Without the variable,
//! the tests print that they are skipped. `cargo xtask real --lane aws` starts both programs.
//!
//! moto decodes requests and writes answers from the API definitions of AWS. The proxy adds what
//! moto lacks: signatures, client tokens, reads that lag, and faults. Neither shares code with the
//! driver.

mod faults;
mod moto;

use std::collections::BTreeSet;

use futures::future::try_join_all;
use machinist_driver::Provider as _;
use machinist_driver::contract::{Subject as _, run};
use machinist_driver_aws::{AwsOptions, Endpoint};
use machinist_instance::{Credential, Instance, InstanceSpec, Place, Power, ProviderId, Scope, Sighting};

use crate::cloud::{REGION, by_id, by_key, found, instance_spec};
use crate::fake::WORKLOAD_TOKEN;
use moto::{Moto, provider, run_id};

/// The cases that fail, because the trait has one name for a Machine and its Node.
const KNOWN: [&str; 1] = [
    // An instance gets its name from EC2, and the contract expects the name of the spec.
    "ensure_creates_the_instance_of_the_spec",
];

/// Why a case may be skipped.
const ABSENT: [&str; 6] = [
    "this driver has no balancers",
    "this driver has no routes",
    "this cloud cannot inject RefusedAfterParts",
    // moto terminates an instance at once.
    "this cloud cannot inject SlowDeletion",
    // moto has one account.
    "the subject has no second account",
    // moto creates instances in the present only, and a second may have begun.
    "this cloud cannot create instances without a key",
];

#[tokio::test]
async fn the_driver_keeps_the_contract_with_moto() {
    let Some(moto) = Moto::prepare().await else { return };
    let report = run(&moto).await;
    println!("{report}");
    let failed: Vec<&str> = report.failed().map(|(name, _)| name).collect();
    assert_eq!(failed, KNOWN, "\n{report}");
    let skipped: Vec<_> = report.skipped().filter(|(_, why)| !ABSENT.contains(why)).collect();
    assert!(skipped.is_empty(), "{skipped:?}");
}

/// Creates, finds, lists and deletes twenty instances.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test deletes what it created")]
async fn twenty_instances_live_and_end_on_moto() {
    let Some(moto) = Moto::prepare().await else { return };
    let driver = moto.driver();
    let cluster = format!("twenty-{}", run_id());
    let specs: Vec<InstanceSpec> = (0..20)
        .map(|number| {
            let spec = instance_spec(&format!("{cluster}-{number}"), moto.provider_spec());
            InstanceSpec { cluster: cluster.clone(), ..spec }
        })
        .collect();
    let made: Vec<Instance> =
        try_join_all(specs.iter().map(|spec| driver.instances().ensure(spec))).await.expect("created");
    let ids: BTreeSet<&ProviderId> = made.iter().map(|instance| &instance.id).collect();
    assert_eq!(ids.len(), 20);
    for (spec, instance) in specs.iter().zip(&made) {
        let again = driver.instances().ensure(spec).await.expect("the same");
        assert_eq!(again.id, instance.id);
        assert!(again.name.as_str().ends_with(".compute.internal"), "{}", again.name);
        assert_eq!(found(&*driver, &by_key(&spec.key)).await.power, Power::Running);
        let initializer = driver.initialization().expect("a driver with initialization");
        let class = moto.uninitialized_spec().expect("a class");
        initializer.initialize(&instance.id, &spec.key, &class).await.expect("initialized");
    }
    let ours = Scope::Ours(cluster);
    assert_eq!(driver.instances().list(&ours).await.expect("a list").len(), 20);
    for (spec, instance) in specs.iter().zip(&made) {
        driver.instances().delete(&by_id(&instance.id), &spec.key).await.expect("deleted");
    }
    for instance in &made {
        assert_eq!(driver.instances().find(&by_id(&instance.id)).await, Ok(Sighting::Ended));
    }
    assert!(driver.instances().list(&ours).await.expect("a list").is_empty());
}

#[tokio::test]
async fn a_workload_gets_keys_from_moto() {
    let Some(moto) = Moto::prepare().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, WORKLOAD_TOKEN).expect("written");
    let url = Endpoint::parse(&moto.endpoint).ok();
    let token_folder = folder.path().to_owned();
    let provider = provider(AwsOptions { ec2: url.clone(), sts: url, token_folder, ..AwsOptions::default() });
    let entries = [
        ("workloadIdentityTokenFile", file.to_str().expect("UTF-8")),
        ("roleARN", "arn:aws:iam::123456789012:role/machines"),
    ];
    let entries = entries.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    let (credential, place) = (Credential::new(entries.into()), Place::new(REGION));
    let account = provider.account(&credential, &place);
    let driver = provider.open(&account, &credential, &place).expect("a credential");
    driver.instances().list(&Scope::Visible).await.expect("a list with temporary keys");
}
