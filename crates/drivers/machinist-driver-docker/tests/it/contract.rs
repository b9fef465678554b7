//! Runs the driver contract against a real engine.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_driver::Provider;
use machinist_driver::contract::{Hook, Subject, Trouble, run};
use machinist_instance::{AccountId, Credential, InstanceKey, NodeName, Place};
use serde_json::{Value, json};

use crate::engine::{Engine, NODE_IMAGE};

/// A real engine cannot be made to fail, has one account, never changes a label, and has no routes.
/// It counts no requests; `an_equal_balancer_causes_only_reads` looks at its events instead.
const SKIPPED: &[&str] = &[
    "ensure_adopts_a_recent_instance_without_a_key",
    "ensure_does_not_adopt_an_older_instance",
    "other_spellings_name_the_same_instance",
    "reads_show_a_new_instance_within_the_promised_time",
    "delete_refuses_an_instance_without_key",
    "an_instance_without_key_is_deleted_by_its_id",
    "find_shows_an_instance_until_its_deletion_ends",
    "parts_of_a_failed_creation_are_used_again",
    "parts_of_a_failed_creation_are_deleted",
    "rekey_changes_the_key",
    "rekey_can_be_repeated",
    "rekey_refuses_the_instance_of_a_third_key",
    "account_names_are_stable_and_unique",
    "another_account_cannot_see_the_instance",
    "places_of_one_credential_are_two_accounts",
    "another_place_cannot_see_the_instance",
    "a_place_refuses_the_spec_of_another_place",
    "ensure_failing_after_its_effect_is_ambiguous_and_repeatable",
    "ensure_without_an_answer_is_ambiguous_and_repeatable",
    "ensure_with_a_late_effect_creates_one_instance",
    "delete_failing_after_its_effect_is_ambiguous_and_repeatable",
    "delete_without_an_answer_is_ambiguous_and_repeatable",
    "an_outage_is_unavailable_and_has_no_effect",
    "throttling_returns_retry_after",
    "a_revoked_credential_is_denied",
    "a_used_up_quota_is_exhausted_and_has_no_effect",
    "a_used_up_stock_is_exhausted_and_has_no_effect",
    "ensure_of_an_equal_balancer_only_reads",
    "a_created_route_names_its_instance",
    "create_of_an_existing_route_only_reads",
    "create_replaces_a_route_to_another_instance",
    "create_refuses_an_address_that_the_instance_lacks",
    "delete_leaves_a_route_to_another_gateway",
    "delete_of_an_absent_route_succeeds",
    "volumes_of_this_cloud_have_an_id_of_their_own",
    "volumes_of_another_cloud_have_no_id",
    "an_initialization_can_be_repeated",
    "an_instance_of_another_owner_is_not_initialized",
    "an_absent_instance_is_not_initialized",
];

#[tokio::test]
async fn the_driver_keeps_the_contract() {
    let Some(engine) = Engine::open("contract").await else { return };
    let report = run(&engine).await;
    println!("{report}");
    engine.sweep().await;
    assert!(report.failed().next().is_none(), "\n{report}");
    let skipped: Vec<&str> = report.skipped().map(|(name, _)| name).collect();
    assert_eq!(skipped, SKIPPED, "\n{report}");
}

#[async_trait]
impl Subject for Engine {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn account(&self) -> (AccountId, Credential) {
        let credential = Credential::default();
        (self.provider.account(&credential, &Place::WHOLE), credential)
    }

    fn another_account(&self) -> Option<Credential> {
        None
    }

    fn provider_spec(&self) -> Value {
        json!({"image": NODE_IMAGE, "privileges": "none"})
    }

    fn broken_spec(&self) -> (Value, &'static str) {
        (json!({"image": NODE_IMAGE, "role": "master"}), "providerSpec.role")
    }

    fn foreign_ids(&self) -> Vec<String> {
        ["aws:///eu-west-1a/i-1", "kind://docker/c1/w-1"].map(str::to_owned).into()
    }

    fn malformed_ids(&self) -> Vec<String> {
        ["docker://", "docker:////", "docker:////a/b"].map(str::to_owned).into()
    }

    fn run_id(&self) -> String {
        self.run.clone()
    }

    #[expect(clippy::disallowed_methods, reason = "the engine uses the real clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Calls of an engine without trouble have their effect when they return.
    async fn wait(&self, _: Duration) {}

    async fn inject(&self, _: Trouble) -> Hook {
        Hook::Missing
    }

    async fn clear_trouble(&self) {}

    /// Labels of a container never change, so the driver cannot adopt one.
    async fn made_by_others(&self, _: &NodeName, _: Timestamp) -> Hook {
        Hook::Missing
    }

    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize> {
        let filter = format!("label=machinist.dev/owner-uid={key}");
        let ids = self.docker(&["ps", "-aq", "--filter", &filter]).await;
        Some(ids.lines().count())
    }
}
