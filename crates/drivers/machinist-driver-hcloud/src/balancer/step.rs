//! One change of a balancer: the request, and the meaning of a refusal. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use machinist_instance::{BalancerNote, SkipCause, SkippedTarget};
use serde_json::{Value, json};

use super::wanted::WantedTarget;
use crate::client::call::Call;
use crate::client::failure::{Code, Failure};
use crate::label::Labels;
use crate::options::Algorithm;

/// One change of a balancer, which is one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Update { name: String, labels: Labels },
    ChangeDnsPtr { ip: IpAddr, dns_ptr: String },
    ChangeAlgorithm(Algorithm),
    ChangeType(String),
    DetachFromNetwork(i64),
    AttachToNetwork { network: i64, ip: Option<Ipv4Addr>, ip_range: Option<String> },
    EnablePublicInterface,
    DisablePublicInterface,
    DeleteService(u16),
    AddService { listen_port: u16, body: Value },
    UpdateService { listen_port: u16, body: Value },
    RemoveTarget(OldTarget),
    AddTarget { target: WantedTarget, use_private_ip: bool },
}

/// A target that the balancer has and must not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OldTarget {
    Server(i64),
    Ip(String),
}

/// The meaning of a refused step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refused {
    /// The cloud already is as wanted.
    AlreadyDone,
    /// Another action holds the balancer. The step can be repeated later.
    Busy,
    /// The step concerns one target or the name only, and the others continue.
    Skipped(Failure),
    /// The call for the balancer fails.
    Fatal(Failure),
}

impl Step {
    /// The word of the cloud for the change.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Update { .. } => "update_load_balancer",
            Self::ChangeDnsPtr { .. } => "change_dns_ptr",
            Self::ChangeAlgorithm(_) => "change_algorithm",
            Self::ChangeType(_) => "change_load_balancer_type",
            Self::DetachFromNetwork(_) => "detach_from_network",
            Self::AttachToNetwork { .. } => "attach_to_network",
            Self::EnablePublicInterface => "enable_public_interface",
            Self::DisablePublicInterface => "disable_public_interface",
            Self::DeleteService(_) => "delete_service",
            Self::AddService { .. } => "add_service",
            Self::UpdateService { .. } => "update_service",
            Self::RemoveTarget(_) => "remove_target",
            Self::AddTarget { .. } => "add_target",
        }
    }

    /// The request for the balancer with that id.
    pub(crate) fn call(&self, id: i64) -> Call {
        let act = |endpoint, body| Call::act(endpoint, id, body);
        match self {
            Self::Update { name, labels } => {
                Call::update("/load_balancers/-", id, json!({ "name": name, "labels": labels }))
            }
            Self::ChangeDnsPtr { ip, dns_ptr } => {
                act("/load_balancers/-/actions/change_dns_ptr", json!({ "ip": ip, "dns_ptr": dns_ptr }))
            }
            Self::ChangeAlgorithm(algorithm) => {
                act("/load_balancers/-/actions/change_algorithm", json!({ "type": algorithm.as_str() }))
            }
            Self::ChangeType(name) => {
                act("/load_balancers/-/actions/change_type", json!({ "load_balancer_type": name }))
            }
            Self::DetachFromNetwork(network) => {
                act("/load_balancers/-/actions/detach_from_network", json!({ "network": network }))
            }
            Self::AttachToNetwork { network, ip, ip_range } => {
                let mut body = json!({ "network": network });
                if let Some(ip) = ip {
                    body["ip"] = json!(ip);
                }
                if let Some(range) = ip_range {
                    body["ip_range"] = json!(range);
                }
                act("/load_balancers/-/actions/attach_to_network", body)
            }
            Self::EnablePublicInterface => {
                act("/load_balancers/-/actions/enable_public_interface", json!({}))
            }
            Self::DisablePublicInterface => {
                act("/load_balancers/-/actions/disable_public_interface", json!({}))
            }
            Self::DeleteService(port) => {
                act("/load_balancers/-/actions/delete_service", json!({ "listen_port": port }))
            }
            Self::AddService { body, .. } => act("/load_balancers/-/actions/add_service", body.clone()),
            Self::UpdateService { body, .. } => act("/load_balancers/-/actions/update_service", body.clone()),
            Self::RemoveTarget(OldTarget::Server(server)) => act(
                "/load_balancers/-/actions/remove_target",
                json!({ "type": "server", "server": { "id": server } }),
            ),
            Self::RemoveTarget(OldTarget::Ip(ip)) => {
                act("/load_balancers/-/actions/remove_target", json!({ "type": "ip", "ip": { "ip": ip } }))
            }
            Self::AddTarget { target, use_private_ip } => {
                act("/load_balancers/-/actions/add_target", target.body(*use_private_ip))
            }
        }
    }

    /// The meaning of a refusal of this step, at once or as the end of its action.
    pub(crate) fn refused(&self, failure: Failure) -> Refused {
        if failure.is_busy() {
            return Refused::Busy;
        }
        match (self, &failure.code) {
            (Self::AttachToNetwork { .. }, Some(Code::LoadBalancerAlreadyAttached))
            | (Self::DetachFromNetwork(_), Some(Code::LoadBalancerNotAttachedToNetwork))
            | (Self::DeleteService(_) | Self::RemoveTarget(_), Some(Code::NotFound))
            | (Self::AddTarget { .. }, Some(Code::TargetAlreadyDefined)) => Refused::AlreadyDone,
            (Self::AddTarget { .. }, Some(Code::LoadBalancerNotAttachedToNetwork)) => Refused::Busy,
            // The balancer keeps its name.
            (Self::Update { .. }, Some(Code::UniquenessError)) => Refused::Skipped(failure),
            (Self::AddTarget { .. }, Some(code)) if concerns_one_target(code) => Refused::Skipped(failure),
            _ => Refused::Fatal(failure),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command())?;
        match self {
            Self::Update { name, .. } => write!(f, " {name}"),
            Self::ChangeDnsPtr { ip, dns_ptr } => write!(f, " {ip} {dns_ptr}"),
            Self::ChangeAlgorithm(algorithm) => write!(f, " {}", algorithm.as_str()),
            Self::ChangeType(name) => write!(f, " {name}"),
            Self::DetachFromNetwork(network) | Self::AttachToNetwork { network, .. } => {
                write!(f, " {network}")
            }
            Self::EnablePublicInterface | Self::DisablePublicInterface => Ok(()),
            Self::DeleteService(port)
            | Self::AddService { listen_port: port, .. }
            | Self::UpdateService { listen_port: port, .. } => write!(f, " port {port}"),
            Self::RemoveTarget(OldTarget::Server(server)) => write!(f, " server {server}"),
            Self::RemoveTarget(OldTarget::Ip(ip)) => write!(f, " {ip}"),
            Self::AddTarget { target, .. } => write!(f, " server {} (Node {})", target.server, target.node),
        }
    }
}

/// Whether the cloud refuses a target for a reason that other targets need not share.
pub(crate) fn concerns_one_target(code: &Code) -> bool {
    matches!(
        code,
        Code::ResourceLimitExceeded
            | Code::MissingIpv4
            | Code::ServerNotAttachedToNetwork
            | Code::CloudResourceIpNotAllowed
            | Code::IpNotOwned
            | Code::NotFound
            | Code::InvalidInput
    )
}

impl WantedTarget {
    /// The target in a request.
    pub(crate) fn body(&self, use_private_ip: bool) -> Value {
        json!({ "type": "server", "server": { "id": self.server }, "use_private_ip": use_private_ip })
    }
}

/// Whether the cloud's data about servers can explain a refused target.
pub(crate) fn is_explained_by_servers(failure: &Failure) -> bool {
    matches!(failure.code, Some(Code::MissingIpv4 | Code::ServerNotAttachedToNetwork | Code::NotFound))
}

/// The note about a target that the balancer lacks.
pub(crate) fn note(skipped: &SkippedTarget) -> BalancerNote {
    BalancerNote {
        reason: match skipped.cause {
            SkipCause::Full => "MaxTargetsReached",
            SkipCause::Shown(_) | SkipCause::Refused => "TargetSkipped",
        },
        message: format!("Node {} is not a target: {}", skipped.node, skipped.message),
    }
}

#[cfg(test)]
mod tests {
    use machinist_instance::ErrorKind;

    use super::*;

    fn failure(code: &str) -> Failure {
        Failure { code: Some(Code::parse(code)), ..Failure::new(ErrorKind::InvalidSpec, code) }
    }

    fn add_target() -> Step {
        Step::AddTarget { target: WantedTarget { server: 7, node: "w-1".to_owned() }, use_private_ip: true }
    }

    #[test]
    fn each_step_is_one_request() {
        let call = add_target().call(5);
        assert_eq!(call.path, "/load_balancers/5/actions/add_target");
        let expected = json!({"type": "server", "server": {"id": 7}, "use_private_ip": true});
        assert_eq!(call.body, Some(expected));
        let attach = Step::AttachToNetwork { network: 3, ip: None, ip_range: Some("10.0.1.0/24".to_owned()) };
        assert_eq!(attach.call(5).body, Some(json!({"network": 3, "ip_range": "10.0.1.0/24"})));
        let update = Step::Update { name: "a".to_owned(), labels: Labels::new() };
        assert_eq!(update.call(5).label(), "PUT /load_balancers/-");
    }

    /// A locked balancer is not an error, so the next call repeats the step.
    #[test]
    fn a_locked_balancer_is_busy() {
        let attach = Step::AttachToNetwork { network: 3, ip: None, ip_range: None };
        for code in ["locked", "conflict", "resource_locked"] {
            assert_eq!(attach.refused(failure(code)), Refused::Busy, "{code}");
        }
    }

    #[test]
    fn a_refused_target_does_not_stop_the_others() {
        for code in ["resource_limit_exceeded", "missing_ipv4", "server_not_attached_to_network", "not_found"]
        {
            assert!(matches!(add_target().refused(failure(code)), Refused::Skipped(_)), "{code}");
        }
        assert_eq!(add_target().refused(failure("target_already_defined")), Refused::AlreadyDone);
        assert!(matches!(add_target().refused(failure("unauthorized")), Refused::Fatal(_)));
    }

    #[test]
    fn removing_what_is_absent_has_succeeded() {
        for step in [Step::DeleteService(80), Step::RemoveTarget(OldTarget::Server(7))] {
            assert_eq!(step.refused(failure("not_found")), Refused::AlreadyDone);
        }
        assert!(matches!(Step::EnablePublicInterface.refused(failure("not_found")), Refused::Fatal(_)));
    }
}
