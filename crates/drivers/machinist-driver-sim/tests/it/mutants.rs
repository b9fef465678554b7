//! Broken drivers that the contract must detect. Each mutation is caught by a named rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use machinist_cloud_sim::{Caller, Cloud, CloudRefusal, Code, NoAnswer, Reply, Request};
use machinist_driver::contract::run;
use machinist_driver::{Driver, Provider};
use machinist_driver_sim::{PROMISES, SimProvider, Transport};
use machinist_instance::{AccountId, Credential, Error, InstanceKey, Place, ProviderId, RecordedId};
use serde_json::Value;

use crate::subject::{SimSubject, TOKEN, cloud};

#[derive(Debug, Clone, Copy)]
enum Mutation {
    FreshKeyOnEveryCall,
    ListStopsEarly,
    DeleteAsAnybody,
    LostMeansNotSent,
    ErrorAfterEffectMeansNoEffect,
    QuotaIsAnOutage,
    NothingIsEverFoundByName,
    DeniedMeansAbsent,
    RekeyWithoutLooking,
    OneAccountForAll,
}

struct Mutant {
    cloud: Cloud,
    mutation: Mutation,
    calls: AtomicU64,
}

#[async_trait]
impl Transport for Mutant {
    fn endpoint(&self) -> &str {
        self.cloud.endpoint()
    }

    async fn call(
        &self,
        caller: Caller<'_>,
        request: Request,
    ) -> Result<Result<Reply, CloudRefusal>, NoAnswer> {
        let (cloud, mut request) = (&self.cloud, request);
        match self.mutation {
            Mutation::FreshKeyOnEveryCall => {
                if let Request::Ensure(create) = &mut request {
                    let call = self.calls.fetch_add(1, Ordering::Relaxed);
                    create.key = InstanceKey::new(format!("{}-{call}", create.key));
                    create.name = machinist_instance::NodeName::new(format!("{}-{call}", create.name))
                        .expect("not empty");
                }
                cloud.call(caller, request).await
            }
            Mutation::ListStopsEarly => Ok(match cloud.call(caller, request).await? {
                Ok(Reply::Instances(all)) => Ok(Reply::Instances(all.into_iter().take(3).collect())),
                other => other,
            }),
            Mutation::DeleteAsAnybody => {
                if let Request::Delete(delete) = &mut request {
                    let found = cloud
                        .ledger()
                        .alive()
                        .find(|entry| {
                            delete.which.id.as_ref() == Some(&entry.id)
                                || delete.which.name.as_ref() == Some(&entry.name)
                        })
                        .and_then(|entry| entry.key.clone());
                    delete.owner = found.unwrap_or_else(|| delete.owner.clone());
                }
                cloud.call(caller, request).await
            }
            Mutation::LostMeansNotSent => {
                cloud.call(caller, request).await.map_err(|_| NoAnswer::NotSent(String::new()))
            }
            Mutation::ErrorAfterEffectMeansNoEffect => cloud.call(caller, request).await.map(|answer| {
                answer.map_err(|refusal| recode(refusal, Code::InternalError, Code::ServiceUnavailable))
            }),
            Mutation::QuotaIsAnOutage => cloud.call(caller, request).await.map(|answer| {
                answer.map_err(|refusal| recode(refusal, Code::QuotaExceeded, Code::ServiceUnavailable))
            }),
            Mutation::NothingIsEverFoundByName => {
                if let Request::Find(which) = &mut request {
                    which.name = None;
                }
                cloud.call(caller, request).await
            }
            Mutation::DeniedMeansAbsent => {
                let finds = matches!(request, Request::Find(_));
                Ok(match cloud.call(caller, request).await? {
                    Err(refusal) if finds && refusal.code == Code::Unauthorized => Ok(Reply::Found(None)),
                    other => other,
                })
            }
            Mutation::RekeyWithoutLooking => {
                if let Request::Rekey { id, from, .. } = &mut request {
                    let found = cloud.ledger().alive().find(|entry| entry.id == *id).cloned();
                    *from = found.and_then(|entry| entry.key).unwrap_or_else(|| from.clone());
                }
                cloud.call(caller, request).await
            }
            Mutation::OneAccountForAll => cloud.call(Caller { token: Some(TOKEN), ..caller }, request).await,
        }
    }
}

fn recode(refusal: CloudRefusal, from: Code, to: Code) -> CloudRefusal {
    if refusal.code == from { CloudRefusal { code: to, ..refusal } } else { refusal }
}

/// Wrong ways to read ids, which would lose an instance or accept another instance's Node.
#[derive(Debug, Clone, Copy)]
enum Misreading {
    ItsOwnIdsAreForeign,
    AllIdsAreItsOwn,
    NothingIsUnset,
    AllInstancesAreTheSame,
    OneSpellingOnly,
}

struct Misreader {
    provider: SimProvider,
    misreading: Misreading,
}

impl Provider for Misreader {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        self.provider.validate(provider_spec)
    }

    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        self.provider.account(credential, place)
    }

    fn parse_id(&self, text: &str) -> RecordedId {
        let read = self.provider.parse_id(text);
        match (self.misreading, read) {
            (Misreading::ItsOwnIdsAreForeign, RecordedId::Ours(_)) => {
                RecordedId::NotOurs { expected: String::new() }
            }
            (Misreading::AllIdsAreItsOwn, _) => RecordedId::any(text),
            (Misreading::NothingIsUnset, RecordedId::Unset) => {
                RecordedId::Malformed { expected: String::new() }
            }
            (_, read) => read,
        }
    }

    fn same_instance(&self, a: &ProviderId, b: &ProviderId) -> bool {
        match self.misreading {
            Misreading::AllInstancesAreTheSame => true,
            Misreading::OneSpellingOnly => a.as_str() == "one" && a == b,
            _ => self.provider.same_instance(a, b),
        }
    }

    fn open(
        &self,
        account: &AccountId,
        credential: &Credential,
        place: &Place,
    ) -> Result<Arc<dyn Driver>, Error> {
        self.provider.open(account, credential, place)
    }
}

#[tokio::test(start_paused = true)]
async fn every_misreading_of_ids_fails_its_rule() {
    let expected = [
        (Misreading::ItsOwnIdsAreForeign, "the_id_of_a_created_instance_parses_as_ours"),
        (Misreading::AllIdsAreItsOwn, "foreign_and_malformed_ids_are_recognized"),
        (Misreading::NothingIsUnset, "an_empty_id_is_unset"),
        (Misreading::AllInstancesAreTheSame, "different_instances_are_never_the_same"),
        (Misreading::OneSpellingOnly, "other_spellings_name_the_same_instance"),
    ];
    for (misreading, rule) in expected {
        let cloud = cloud();
        let provider = Misreader { provider: SimProvider::in_process(cloud.clone()), misreading };
        let report = run(&SimSubject::new(cloud, provider)).await;
        assert!(report.failed().any(|(name, _)| name == rule), "{misreading:?} passes {rule}\n{report}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_mutant_fails_the_rule_that_it_breaks() {
    let expected = [
        (Mutation::FreshKeyOnEveryCall, "ensure_twice_returns_the_same_instance"),
        (Mutation::ListStopsEarly, "list_is_complete_and_filters_by_cluster"),
        (Mutation::DeleteAsAnybody, "delete_refuses_the_instance_of_another_key"),
        (Mutation::LostMeansNotSent, "ensure_with_a_late_effect_creates_one_instance"),
        (
            Mutation::ErrorAfterEffectMeansNoEffect,
            "ensure_failing_after_its_effect_is_ambiguous_and_repeatable",
        ),
        (Mutation::QuotaIsAnOutage, "a_used_up_quota_is_exhausted_and_has_no_effect"),
        (Mutation::NothingIsEverFoundByName, "find_works_by_id_key_and_name"),
        (Mutation::DeniedMeansAbsent, "a_revoked_credential_is_denied"),
        (Mutation::RekeyWithoutLooking, "rekey_refuses_the_instance_of_a_third_key"),
        (Mutation::OneAccountForAll, "another_account_cannot_see_the_instance"),
    ];
    for (mutation, rule) in expected {
        let cloud = cloud();
        let mutant = Mutant { cloud: cloud.clone(), mutation, calls: AtomicU64::new(0) };
        let provider = SimProvider::over(Arc::new(mutant), PROMISES);
        let report = run(&SimSubject::new(cloud, provider)).await;
        assert!(report.failed().any(|(name, _)| name == rule), "{mutation:?} passes {rule}\n{report}");
    }
}
