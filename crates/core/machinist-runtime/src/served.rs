//! The state of a process that the endpoints show: readiness and decisions, rendered.
//!
//! The rendered decisions contain no secrets, because planners never see a secret.

use machinist_core::{CLOUD_SILENT, ContractReason, Reason, Why, shared_section};
use machinist_serve::{Inspect, ProcessReadiness};
use serde_json::{Value, json};

use crate::contract::Contract;
use crate::inspector::Inspector;
use crate::key::QueueKey;
use crate::passes::WhyRecord;

/// A process is ready if all stores are complete and the contract has no objection. The text names
/// the silent API servers.
impl<C: Contract> Inspect for Inspector<C> {
    fn component(&self) -> &str {
        Self::component(self)
    }

    fn namespace(&self) -> &str {
        Self::namespace(self)
    }

    fn readiness(&self) -> ProcessReadiness {
        match self.not_ready() {
            None => {
                let remark = self.remark().map_or_else(|| "OK".to_owned(), |remark| format!("OK: {remark}"));
                ProcessReadiness::Ready(below_silence(self, &remark))
            }
            Some(reason) => ProcessReadiness::NotReady(below_silence(self, &reason)),
        }
    }

    fn stall(&self) -> Option<String> {
        Self::stall(self)
    }

    fn config(&self) -> Option<Value> {
        Self::config(self)
    }

    fn metrics(&self) -> String {
        self.metrics_text()
    }

    fn decisions(&self) -> Vec<Value> {
        self.whys().iter().map(|(key, record)| render(self, key, record, None)).collect()
    }

    async fn decision(&self, kind: &str, name: &str) -> Option<Value> {
        let key = <C::Key as QueueKey>::named(kind, Self::namespace(self), name)?;
        // Without a decision, the cloud is not asked.
        self.why(&key)?;
        let silent_cloud = self.silent_cloud_of(&key).await;
        self.why(&key).map(|record| render(self, &key, &record, silent_cloud))
    }
}

/// Puts the silent API servers before a text, one a line.
fn below_silence<C: Contract>(inspector: &Inspector<C>, text: &str) -> String {
    let silent = inspector.silent_servers().into_iter().map(|server| format!("{server}\n"));
    silent.chain([text.to_owned()]).collect()
}

/// Renders a decision. What does not answer comes first: a decision from before may be wrong by
/// now.
fn render<C: Contract>(
    inspector: &Inspector<C>,
    key: &C::Key,
    record: &WhyRecord<C::Reason>,
    silent_cloud: Option<String>,
) -> Value {
    let mut rendered = render_why(&record.why);
    rendered["object"] = Value::from(key.to_string());
    rendered["decidedAt"] = Value::from(record.at.to_string());
    rendered["actions"] = Value::from(record.actions.clone());
    let servers = inspector.silent_servers_of(key);
    let silent: Vec<String> =
        silent_cloud.clone().into_iter().chain(servers.iter().map(ToString::to_string)).collect();
    if !silent.is_empty() {
        let told = silent.join("; ");
        rendered["waitsFor"] = Value::from(match (&silent_cloud, &record.why.reason) {
            // The object may have changed since that decision.
            (Some(_), Reason::Settled) => told,
            (Some(_) | None, reason) => format!("{told}; last known: {reason}"),
        });
        rendered["silent"] = Value::from(silent);
    }
    if silent_cloud.is_some() {
        rendered["reason"] = Value::from(CLOUD_SILENT);
        rendered["page"] = Value::from(shared_section(CLOUD_SILENT));
    }
    rendered["from"] = Value::from(inspector.component());
    rendered
}

/// Renders a `Why` as JSON: the reason, its start, the next step, the deadline, and the section of
/// the book.
pub fn render_why<R: ContractReason>(why: &Why<R>) -> Value {
    json!({
        "reason": why.reason.code(),
        "waitsFor": why.reason.to_string(),
        "since": why.since.map(|since| since.to_string()),
        "next": why.next.to_string(),
        "deadline": why.deadline.as_ref().map(|deadline| json!({
            "at": deadline.at.to_string(),
            "then": deadline.then.to_string(),
        })),
        "page": why.reason.section(),
    })
}
