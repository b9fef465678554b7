//! The taints of a Node that this program changes. All other taints stay in order.

use k8s_openapi::api::core::v1::Taint;

use super::names::{
    NO_EXECUTE, NO_SCHEDULE, NODE_SHUTDOWN, OUT_OF_SERVICE_TAINT, SHUTDOWN_TAINT, UNINITIALIZED_TAINT,
};

/// Returns the taints of an initialised Node, if they differ: those without the taint
/// `uninitialized`, with any value and effect.
pub fn initialized(current: &[Taint]) -> Option<Vec<Taint>> {
    let kept: Vec<Taint> = current.iter().filter(|taint| taint.key != UNINITIALIZED_TAINT).cloned().collect();
    (kept.len() != current.len()).then_some(kept)
}

/// Returns the taints of the Node of a stopped instance, if they differ.
pub fn shut_down(current: &[Taint]) -> Option<Vec<Taint>> {
    let ours = Taint {
        key: SHUTDOWN_TAINT.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        value: None,
        time_added: None,
    };
    match current.iter().position(is_shutdown) {
        Some(at) if current[at].value.as_deref().unwrap_or_default().is_empty() => None,
        Some(at) => {
            let mut taints = current.to_vec();
            taints[at] = ours;
            Some(taints)
        }
        None => Some(current.iter().cloned().chain([ours]).collect()),
    }
}

/// Returns the taints of the Node of a running instance, if they differ: without those that this
/// program sets for stopped instances. A taint `out-of-service` that a user has set stays.
pub fn running(current: &[Taint]) -> Option<Vec<Taint>> {
    let is_ours = |taint: &&Taint| is_shutdown(taint) || is_our_out_of_service(taint);
    let kept: Vec<Taint> = current.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    (kept.len() != current.len()).then_some(kept)
}

/// Returns the taints of the Node of an instance that is certainly stopped, if they differ: with
/// both taints, and so that the volumes of its pods can be attached to other Nodes.
pub fn out_of_service(current: &[Taint]) -> Option<Vec<Taint>> {
    let tainted = shut_down(current);
    let taints = tainted.as_deref().unwrap_or(current);
    if taints.iter().any(is_out_of_service) {
        return tainted;
    }
    let ours = Taint {
        key: OUT_OF_SERVICE_TAINT.to_owned(),
        effect: NO_EXECUTE.to_owned(),
        value: Some(NODE_SHUTDOWN.to_owned()),
        time_added: None,
    };
    Some(taints.iter().cloned().chain([ours]).collect())
}

/// Whether this is the taint of a stopped instance: key and effect identify a taint.
fn is_shutdown(taint: &Taint) -> bool {
    taint.key == SHUTDOWN_TAINT && taint.effect == NO_SCHEDULE
}

/// Whether this is a taint `out-of-service`, set by this program or by a user.
fn is_out_of_service(taint: &Taint) -> bool {
    taint.key == OUT_OF_SERVICE_TAINT && taint.effect == NO_EXECUTE
}

fn is_our_out_of_service(taint: &Taint) -> bool {
    is_out_of_service(taint) && taint.value.as_deref() == Some(NODE_SHUTDOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, effect: &str, value: Option<&str>) -> Taint {
        let value = value.map(str::to_owned);
        Taint { key: key.to_owned(), effect: effect.to_owned(), value, time_added: None }
    }

    #[test]
    fn only_the_uninitialized_taint_is_removed() {
        let other = taint("other", "NoExecute", Some("1"));
        let all = [
            taint(UNINITIALIZED_TAINT, "NoSchedule", Some("true")),
            other.clone(),
            taint(UNINITIALIZED_TAINT, "NoExecute", None),
        ];
        assert_eq!(initialized(&all), Some(vec![other.clone()]));
        assert_eq!(initialized(&[other]), None);
    }

    #[test]
    fn the_shutdown_taint_is_added_once_and_removed() {
        let other = taint("other", "NoSchedule", None);
        let ours = taint(SHUTDOWN_TAINT, "NoSchedule", None);
        let both = vec![other.clone(), ours.clone()];
        assert_eq!(shut_down(std::slice::from_ref(&other)), Some(both.clone()));
        assert_eq!(shut_down(&both), None);
        let valued = [taint(SHUTDOWN_TAINT, "NoSchedule", Some("x")), other.clone()];
        assert_eq!(shut_down(&valued), Some(vec![ours, other.clone()]), "the value is replaced");
        assert_eq!(running(&both), Some(vec![other.clone()]));
        assert_eq!(running(&[other]), None);
        let execute = taint(SHUTDOWN_TAINT, "NoExecute", None);
        assert_eq!(running(&[execute]), None, "another effect is another taint");
    }

    #[test]
    fn out_of_service_is_added_and_removed_with_shutdown() {
        let other = taint("other", "NoSchedule", None);
        let ours = taint(SHUTDOWN_TAINT, "NoSchedule", None);
        let both = vec![other.clone(), ours.clone()];
        let away = taint(OUT_OF_SERVICE_TAINT, "NoExecute", Some(NODE_SHUTDOWN));
        let all = vec![other.clone(), ours.clone(), away.clone()];
        assert_eq!(out_of_service(std::slice::from_ref(&other)), Some(all.clone()), "both are added");
        assert_eq!(out_of_service(&both), Some(all.clone()));
        assert_eq!(out_of_service(&all), None);
        assert_eq!(running(&all), Some(vec![other.clone()]));
        assert_eq!(running(&[away]), Some(vec![]), "also if the flag is off, or another removed the first");
        let by_user = taint(OUT_OF_SERVICE_TAINT, "NoExecute", Some("nodeshutdown"));
        assert_eq!(running(&[ours.clone(), by_user.clone()]), Some(vec![by_user.clone()]));
        let both = [ours, by_user];
        assert_eq!(out_of_service(&both), None, "the taint of the user is enough");
    }
}
