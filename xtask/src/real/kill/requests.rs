//! The requests that our processes send to each cloud: how the lane counts and disturbs them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::real::deployment::observer::{Cloud, Counterpart};
use crate::real::operator::control;

/// How long reads do not show a new instance. Each driver promises to bear this.
const IN_LISTS_SECONDS: u64 = 8;
const BY_ID_SECONDS: u64 = 3;

/// Number of requests so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Requests {
    /// Those that create or delete an instance or a part of it.
    pub(super) changes: u64,
    pub(super) all: u64,
}

impl Requests {
    pub(super) fn so_far(cloud: &mut Cloud) -> Result<Self> {
        Ok(match &mut cloud.counterpart {
            Counterpart::Proxied { proxy, .. } => {
                let Described { requests } =
                    serde_json::from_value(control(&proxy.endpoint, "GET", "", &Value::Null)?)?;
                Self::of(&requests, |action| ["RunInstances", "TerminateInstances"].contains(&action))
            }
            Counterpart::Standin { url, .. } => {
                let counters = serde_json::from_value(control(url, "GET", "/counters", &Value::Null)?)?;
                Self::of(&counters, |name| is_change(name, &["/servers", "/floating_ips"]))
            }
            Counterpart::OpenStack { services } => {
                Self::of(services.requests()?, |name| is_change(name, &["/servers", "/ports", "/volumes"]))
            }
            Counterpart::Moto { .. } => bail!("moto does not count requests"),
        })
    }

    fn of(counters: &BTreeMap<String, u64>, is_change: impl Fn(&str) -> bool) -> Self {
        let changes = counters.iter().filter(|(name, _)| is_change(name)).map(|(_, count)| count).sum();
        Self { changes, all: counters.values().sum() }
    }
}

#[derive(Deserialize)]
struct Described {
    requests: BTreeMap<String, u64>,
}

/// Whether a request creates or deletes an object of these lists. Its name is its method and its
/// path, with `{id}` for each id.
fn is_change(name: &str, lists: &[&str]) -> bool {
    lists.iter().any(|list| {
        (name.starts_with("POST ") && name.ends_with(list))
            || (name.starts_with("DELETE ") && name.ends_with(&format!("{list}/{{id}}")))
    })
}

/// Lets reads show a new instance late. Nova shows a server at once.
pub(super) fn delay_reads(cloud: &Cloud) -> Result<()> {
    match &cloud.counterpart {
        Counterpart::Proxied { proxy, .. } => {
            let lag = json!({"inListsSeconds": IN_LISTS_SECONDS, "byIdSeconds": BY_ID_SECONDS});
            control(&proxy.endpoint, "PUT", "/delay", &lag)?;
        }
        Counterpart::Standin { url, .. } => {
            let lag = json!({"visibleInListsSeconds": IN_LISTS_SECONDS, "visibleByIdSeconds": BY_ID_SECONDS});
            control(url, "PATCH", "/settings", &lag)?;
        }
        Counterpart::OpenStack { .. } | Counterpart::Moto { .. } => {}
    }
    Ok(())
}

/// Lets the answers of that many next creations get lost, each after its effect. On OpenStack, only
/// a kill loses an answer.
pub(super) fn lose_answers(cloud: &Cloud, times: u32) -> Result<()> {
    match &cloud.counterpart {
        Counterpart::Proxied { proxy, .. } => {
            let fault =
                json!({"action": "RunInstances", "times": times, "fault": {"kind": "effectThenClose"}});
            control(&proxy.endpoint, "POST", "/faults", &fault).map(drop)
        }
        Counterpart::Standin { url, .. } => ["/v1/servers", "/v1/floating_ips"].iter().try_for_each(|path| {
            let fault = json!({
                "method": "POST", "path": path, "times": times, "fault": {"kind": "effectThenReset"},
            });
            control(url, "POST", "/faults", &fault).map(drop)
        }),
        Counterpart::OpenStack { .. } | Counterpart::Moto { .. } => Ok(()),
    }
    .context("cannot lose answers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creations_and_deletions_are_changes() {
        let is_change = |name| is_change(name, &["/servers", "/ports"]);
        let changes = ["POST /v2.1/servers", "DELETE /v2.1/servers/{id}", "POST /v2.0/ports"];
        assert!(changes.into_iter().all(is_change));
        let others = ["GET /v2.1/servers", "POST /v1/servers/{id}/actions/poweron", "PUT /v2.0/ports/{id}"];
        assert!(!others.into_iter().any(is_change));
    }
}
