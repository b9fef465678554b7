//! Conditions: their summary, and their two formats.
//!
//! A planner reports the state of each condition as a [`ConditionReport`]. The functions here add
//! the summary `Ready` and write both formats. The time of a condition changes only with its
//! status, so an unchanged report causes no write. Conditions of other writers are kept.

use jiff::Timestamp;
use machinist_api::capi::constants::conditions::{PAUSED, READY};
use machinist_api::capi::{Condition, ConditionV1, Deprecated, DeprecatedV1Beta1};
use machinist_api::{ConditionStatus, WireTime};

/// Longest message of a condition in bytes. A longer one would make the whole status invalid.
const MAX_MESSAGE_LEN: usize = 16_384;

/// The state of one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionReport {
    /// Type of the condition.
    pub type_: &'static str,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Text for users.
    pub message: String,
    /// The same state in the contract v1beta1; absent if that contract has no such condition.
    pub v1: Option<ReportV1>,
}

/// The state of a condition in the contract v1beta1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportV1 {
    /// Type of the condition.
    pub type_: &'static str,
    /// CamelCase reason; not written if the status is True.
    pub reason: &'static str,
    /// `Info`, `Warning` or `Error`; written only if the status is False.
    pub severity: &'static str,
    /// Text for users; absent if both versions have the same text.
    pub message: Option<String>,
}

impl ConditionReport {
    /// The condition holds.
    pub fn yes(type_: &'static str, reason: &'static str) -> Self {
        Self { type_, status: ConditionStatus::True, reason, message: String::new(), v1: None }
    }

    /// The condition does not hold.
    pub fn no(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        let message = bounded(message.into());
        Self { type_, status: ConditionStatus::False, reason, message, v1: None }
    }

    /// The state is not known.
    pub fn unknown(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::Unknown, ..Self::no(type_, reason, message) }
    }

    /// Adds the state in the contract v1beta1.
    #[must_use]
    pub fn in_v1(mut self, type_: &'static str, reason: &'static str, severity: &'static str) -> Self {
        self.v1 = Some(ReportV1 { type_, reason, severity, message: None });
        self
    }

    /// Replaces the message in the contract v1beta1 by the number of conditions that hold, as in
    /// `1 of 2 completed`.
    #[must_use]
    pub fn with_steps_in_v1(mut self, parts: &[Self], steps: usize) -> Self {
        let hold = parts.iter().filter(|part| part.v1.is_some() && part.status == ConditionStatus::True);
        let message = format!("{} of {steps} completed", hold.count());
        if let Some(v1) = &mut self.v1 {
            v1.message = Some(message);
        }
        self
    }
}

/// Cuts a message at a boundary of characters.
pub(super) fn bounded(mut message: String) -> String {
    if MAX_MESSAGE_LEN < message.len() {
        let end = (0..=MAX_MESSAGE_LEN).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
    }
    message
}

/// Summarises conditions as `Ready`. A condition that is False makes the summary False. Otherwise a
/// condition that is Unknown makes the summary Unknown.
pub fn ready(parts: &[ConditionReport]) -> ConditionReport {
    let with = |status: ConditionStatus| parts.iter().filter(move |part| part.status == status);
    let (status, reason) = if with(ConditionStatus::False).next().is_some() {
        (ConditionStatus::False, "NotReady")
    } else if with(ConditionStatus::Unknown).next().is_some() {
        (ConditionStatus::Unknown, "ReadyUnknown")
    } else {
        (ConditionStatus::True, "Ready")
    };
    // Problems come first, then the unknown. A summary that is True only has hints.
    let causes: Vec<&ConditionReport> = match &status {
        ConditionStatus::True => parts.iter().filter(|part| !part.message.is_empty()).collect(),
        _ => with(ConditionStatus::False).chain(with(ConditionStatus::Unknown)).collect(),
    };
    let text = |part: &ConditionReport| {
        if part.message.is_empty() { part.reason.to_owned() } else { part.message.clone() }
    };
    let message = match causes.as_slice() {
        [] => String::new(),
        [only] => text(only),
        several => {
            let bullet =
                |part: &&ConditionReport| format!("* {}: {}", part.type_, text(part).replace('\n', "\n  "));
            several.iter().map(bullet).collect::<Vec<_>>().join("\n")
        }
    };
    let worst = with(ConditionStatus::False).find_map(|part| part.v1.as_ref());
    let (v1_reason, severity) = worst.map_or((reason, "Info"), |worst| (worst.reason, worst.severity));
    ConditionReport { type_: READY, status, reason, message: bounded(message), v1: None }
        .in_v1(READY, v1_reason, severity)
}

/// Returns the conditions to write: the reports, and the conditions of other writers that were
/// read.
pub fn merge(
    read: &[Condition],
    reports: &[ConditionReport],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let is_reported = |condition: &Condition| reports.iter().any(|report| report.type_ == condition.type_);
    let mut all: Vec<Condition> = read.iter().filter(|condition| !is_reported(condition)).cloned().collect();
    for report in reports {
        let before = read.iter().find(|condition| condition.type_ == report.type_);
        let since = before.filter(|before| before.status == report.status);
        let since = since.and_then(|before| before.last_transition_time.clone());
        all.push(Condition {
            type_: report.type_.to_owned(),
            status: report.status.clone(),
            observed_generation: generation,
            last_transition_time: Some(since.unwrap_or_else(|| WireTime::from(now))),
            reason: report.reason.to_owned(),
            message: report.message.clone(),
        });
    }
    all.sort_by(|a, b| rank(&a.type_).cmp(&rank(&b.type_)));
    all
}

/// The order of conditions: the summary first, the pause last.
fn rank(type_: &str) -> (u8, &str) {
    match type_ {
        "Available" => (0, type_),
        READY => (1, type_),
        "Deleting" => (3, type_),
        PAUSED => (4, type_),
        other => (2, other),
    }
}

/// Returns the conditions of the contract v1beta1 to write.
pub fn merge_v1(
    read: Option<&Deprecated>,
    reports: &[ConditionReport],
    now: Timestamp,
) -> Option<Deprecated> {
    let read = read.and_then(|deprecated| deprecated.v1_beta1.as_ref()).map_or(&[][..], |v1| &v1.conditions);
    let reported = || reports.iter().filter_map(|report| Some((report, report.v1.as_ref()?)));
    let is_reported = |condition: &ConditionV1| reported().any(|(_, v1)| v1.type_ == condition.type_);
    let mut all: Vec<ConditionV1> =
        read.iter().filter(|condition| !is_reported(condition)).cloned().collect();
    for (report, v1) in reported() {
        let before = read.iter().find(|condition| condition.type_ == v1.type_);
        let since = before.filter(|before| before.status == report.status);
        let since = since.and_then(|before| before.last_transition_time.clone());
        let is_true = report.status == ConditionStatus::True;
        let is_false = report.status == ConditionStatus::False;
        all.push(ConditionV1 {
            type_: v1.type_.to_owned(),
            status: report.status.clone(),
            severity: is_false.then(|| v1.severity.to_owned()),
            last_transition_time: Some(since.unwrap_or_else(|| WireTime::from(now))),
            reason: (!is_true).then(|| v1.reason.to_owned()),
            message: Some(v1.message.as_ref().unwrap_or(&report.message).clone())
                .filter(|message| !is_true && !message.is_empty()),
        });
    }
    all.sort_by(|a, b| rank(&a.type_).cmp(&rank(&b.type_)));
    (!all.is_empty()).then_some(Deprecated { v1_beta1: Some(DeprecatedV1Beta1 { conditions: all }) })
}

/// A problem for which there is an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem<'c> {
    /// CamelCase reason.
    pub reason: &'c str,
    /// Text for users.
    pub message: &'c str,
}

/// Returns the problems that a new status is the first to report. Only the contract v1beta1
/// separates problems from waits. A message that changes while the problem lasts is not news.
pub fn new_problems<'c>(old: Option<&Deprecated>, new: Option<&'c Deprecated>) -> Vec<Problem<'c>> {
    let is_known = |condition: &&ConditionV1| {
        let same = |known: &ConditionV1| {
            (&known.type_, &known.status, &known.reason)
                == (&condition.type_, &condition.status, &condition.reason)
        };
        v1_conditions(old).iter().any(same)
    };
    let news = v1_conditions(new)
        .iter()
        .filter(|condition| condition.type_ != READY)
        .filter(|condition| is_trouble(condition));
    news.filter(|condition| !is_known(condition))
        .map(|condition| {
            let reason = condition.reason.as_deref().unwrap_or(&condition.type_);
            Problem { reason, message: condition.message.as_deref().unwrap_or(reason) }
        })
        .collect()
}

/// Returns the condition of the contract v1beta1 with this type, if it shows a problem.
///
/// A planner keeps a condition that shows a problem during the next attempt. Otherwise each failed
/// attempt would count as a new problem.
pub fn shown_trouble<'c>(shown: Option<&'c Deprecated>, type_: &str) -> Option<&'c ConditionV1> {
    v1_conditions(shown).iter().find(|condition| condition.type_ == type_ && is_trouble(condition))
}

fn v1_conditions(status: Option<&Deprecated>) -> &[ConditionV1] {
    status.and_then(|deprecated| deprecated.v1_beta1.as_ref()).map_or(&[], |v1| &v1.conditions)
}

fn is_trouble(condition: &ConditionV1) -> bool {
    match condition.status {
        ConditionStatus::False => matches!(condition.severity.as_deref(), Some("Warning" | "Error")),
        ConditionStatus::Unknown => true,
        _ => false,
    }
}

/// Returns the condition about the pause of an object.
pub fn paused(kind: &str, cluster_is_paused: bool, object_is_paused: bool) -> ConditionReport {
    let mut causes = Vec::new();
    if cluster_is_paused {
        causes.push("Cluster spec.paused is set to true".to_owned());
    }
    if object_is_paused {
        causes.push(format!("{kind} has the cluster.x-k8s.io/paused annotation"));
    }
    if causes.is_empty() {
        return ConditionReport::no(PAUSED, "NotPaused", "");
    }
    ConditionReport { message: causes.join(", "), ..ConditionReport::yes(PAUSED, "Paused") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn the_summary_follows_the_worst_condition() {
        let yes = || ConditionReport::yes("A", "Fine");
        let no = |type_| ConditionReport::no(type_, "Bad", "it broke");
        let unknown = || ConditionReport::unknown("C", "Waiting", "");
        for (parts, status, message) in [
            (vec![yes()], "True", ""),
            (vec![], "True", ""),
            (vec![yes(), unknown()], "Unknown", "Waiting"),
            (vec![unknown(), no("B")], "False", "* B: it broke\n* C: Waiting"),
            (vec![yes(), no("B")], "False", "it broke"),
        ] {
            let summary = ready(&parts);
            assert_eq!((summary.status.as_str(), summary.message.as_str()), (status, message), "{parts:?}");
        }
    }

    #[test]
    fn the_time_changes_only_with_the_status() {
        let first = merge(&[], &[ConditionReport::no("A", "One", "x")], Some(1), at(0));
        let second = merge(&first, &[ConditionReport::no("A", "Two", "y")], Some(2), at(60));
        assert_eq!(second[0].last_transition_time, first[0].last_transition_time);
        assert_eq!((second[0].reason.as_str(), second[0].observed_generation), ("Two", Some(2)));
        let third = merge(&second, &[ConditionReport::yes("A", "Three")], Some(2), at(120));
        assert_eq!(third[0].last_transition_time, Some(WireTime::from(at(120))));
    }

    /// Conditions of other writers stay, in the canonical order.
    #[test]
    fn foreign_conditions_survive() {
        let foreign = merge(&[], &[ConditionReport::yes("Zebra", "Theirs")], None, at(0));
        let reports =
            [paused("DockerMachine", false, false), ready(&[]), ConditionReport::yes("Ape", "Ours")];
        let all = merge(&foreign, &reports, Some(1), at(1));
        let types: Vec<&str> = all.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Ready", "Ape", "Zebra", "Paused"]);
        assert_eq!(all[2], foreign[0]);
    }

    /// The message joins the causes.
    #[test]
    fn the_pause_names_its_causes() {
        let text =
            "Cluster spec.paused is set to true, DockerCluster has the cluster.x-k8s.io/paused annotation";
        assert_eq!(paused("DockerCluster", true, true).message, text);
        assert_eq!(paused("DockerCluster", false, false).reason, "NotPaused");
    }

    #[test]
    fn the_older_format_has_a_severity_only_if_false() {
        let no = ConditionReport::no("B", "NotNow", "later").in_v1("Old", "Waiting", "Info");
        let old = merge_v1(None, &[no], at(0)).expect("a condition");
        let old = &old.v1_beta1.as_ref().expect("conditions").conditions[0];
        assert_eq!((old.type_.as_str(), old.severity.as_deref()), ("Old", Some("Info")));
        let yes = ConditionReport::yes("B", "Fine").in_v1("Old", "Fine", "Info");
        let old = merge_v1(None, &[yes], at(0)).expect("a condition");
        let old = &old.v1_beta1.as_ref().expect("conditions").conditions[0];
        assert_eq!((old.severity.as_deref(), old.reason.as_deref()), (None, None));
        assert_eq!(merge_v1(None, &[ConditionReport::yes("B", "Fine")], at(0)), None);
    }

    #[test]
    fn a_problem_is_reported_once() {
        let state = |report: ConditionReport| {
            let reports = [ready(std::slice::from_ref(&report)), report];
            merge_v1(None, &reports, at(0))
        };
        let emitted = |old: &Option<Deprecated>, new: &Option<Deprecated>| -> Vec<String> {
            let new_problems = new_problems(old.as_ref(), new.as_ref());
            new_problems.iter().map(|trouble| format!("{}: {}", trouble.reason, trouble.message)).collect()
        };
        let failed =
            |message| state(ConditionReport::no("A", "Failed", message).in_v1("A", "Failed", "Warning"));
        let waits = state(ConditionReport::no("A", "Waiting", "").in_v1("A", "Waiting", "Info"));
        let unknown =
            state(ConditionReport::unknown("A", "Uncertain", "").in_v1("A", "Uncertain", "Warning"));
        let fine = state(ConditionReport::yes("A", "Fine").in_v1("A", "Fine", "Info"));
        assert_eq!(emitted(&None, &failed("one")), ["Failed: one"]);
        assert_eq!(emitted(&failed("one"), &failed("two")), [""; 0], "the problem lasts");
        assert_eq!(emitted(&fine, &failed("two")), ["Failed: two"], "it is back");
        assert_eq!(emitted(&failed("one"), &unknown), ["Uncertain: Uncertain"]);
        assert_eq!(emitted(&None, &waits), [""; 0]);
        assert_eq!(emitted(&failed("one"), &fine), [""; 0]);
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let report = ConditionReport::no("A", "Bad", "ä".repeat(MAX_MESSAGE_LEN));
        assert!(report.message.len() <= MAX_MESSAGE_LEN && report.message.ends_with('ä'));
    }
}
