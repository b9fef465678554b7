//! The answer of `why`: combines the sources and renders the text.

use std::fmt::Write as _;

use jiff::Timestamp;
use machinist_api::{GoDuration, Machine, OperationState};
use machinist_controllers::render_why;
use machinist_core::{ContractReason, Why, shared_section};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ask::Asked;

/// A reason from a controller, or from the planner in this process. Both have the same fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reported {
    /// Kind, namespace and name of the object.
    #[serde(skip_serializing, default)]
    pub object: String,
    /// The reason as a CamelCase word.
    pub reason: String,
    /// The reason as text.
    pub waits_for: String,
    /// Start of the wait.
    pub since: Option<Timestamp>,
    /// The next step.
    pub next: String,
    pub deadline: Option<Deadline>,
    /// Time of the decision.
    pub decided_at: Timestamp,
    /// Actions that were planned by this decision.
    #[serde(default)]
    pub actions: Vec<String>,
    /// Section of the book about the reason; absent if the controller is older than this field.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page: Option<String>,
    /// Component that decided; absent for the planner in this process.
    #[serde(default, skip_serializing)]
    pub from: Option<String>,
}

/// End of a wait, and the action at that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Deadline {
    pub at: Timestamp,
    /// Action at that time.
    pub then: String,
}

/// Failed operation in the status of a Machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LastOperation {
    pub operation: String,
    /// Error message.
    pub description: String,
    pub at: Option<Timestamp>,
}

/// Source of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "who")]
enum Source {
    /// A running controller.
    #[serde(rename_all = "camelCase")]
    Controller { component: String, url: String },
    /// The planner in this process, with data from the API servers only.
    Api,
}

/// Explanation of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    object: String,
    #[serde(flatten)]
    why: Reported,
    source: Source,
    /// Reason from the API servers only, if a controller answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_api: Option<Reported>,
    controllers: Vec<Asked>,
    /// The API servers and the cloud that did not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_operation: Option<LastOperation>,
    /// Explanation of the object that this object waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<Box<Answer>>,
}

impl Reported {
    /// Converts the result of the planner to the format of a controller.
    pub(super) fn of<R: ContractReason>(why: &Why<R>, at: Timestamp, actions: &[String]) -> Self {
        let mut rendered = render_why(why);
        rendered["decidedAt"] = Value::from(at.to_string());
        rendered["actions"] = Value::from(actions.to_vec());
        serde_json::from_value(rendered).expect("a rendered reason has all fields of one")
    }
}

impl Reported {
    /// Creates the reason for a namespace that no known controller serves.
    pub(super) fn unserved(namespace: &str, served: &str, at: Timestamp) -> Self {
        let reason = "NamespaceNotServed";
        Self {
            object: String::new(),
            reason: reason.to_owned(),
            page: Some(shared_section(reason)),
            waits_for: format!("no running controller serves namespace {namespace} ({served})"),
            since: None,
            next: format!(
                "run controllers with --namespace {namespace}, or create the object in a served namespace"
            ),
            deadline: None,
            decided_at: at,
            actions: Vec::new(),
            from: None,
        }
    }
}

impl LastOperation {
    /// Returns the last operation of a Machine if it failed.
    pub(super) fn of(machine: &Machine) -> Option<Self> {
        let last = machine.last_operation()?;
        (last.state == Some(OperationState::Failed)).then(|| Self {
            operation: last
                .type_
                .as_ref()
                .map_or_else(|| "its last operation".to_owned(), ToString::to_string),
            description: last.description.clone().unwrap_or_default(),
            at: last.last_update_time.as_ref().map(|time| time.0),
        })
    }
}

impl Answer {
    /// Combines the answers of the API servers and of a controller.
    pub(super) fn new(
        object: String,
        api: Reported,
        controller: Option<(String, Reported)>,
        controllers: Vec<Asked>,
        last_operation: Option<LastOperation>,
        because: Option<Box<Answer>>,
    ) -> Self {
        let (why, source, from_api) = match controller {
            Some((url, report)) if !knows_more_than(&api, &report) => {
                let component = report.from.clone().unwrap_or_else(|| "controller".to_owned());
                (report, Source::Controller { component, url }, Some(api))
            }
            Some(_) | None => (api, Source::Api, None),
        };
        Self { object, why, source, from_api, controllers, silent: Vec::new(), last_operation, because }
    }

    /// The answer of a controller alone.
    pub(super) fn of_controller(
        object: String,
        url: String,
        why: Reported,
        controllers: Vec<Asked>,
        silent: Vec<String>,
    ) -> Self {
        let component = why.from.clone().unwrap_or_else(|| "controller".to_owned());
        let source = Source::Controller { component, url };
        Self { object, why, source, from_api: None, controllers, silent, last_operation: None, because: None }
    }

    /// Puts what does not answer before the answer.
    pub(super) fn below(self, silent: Vec<String>) -> Self {
        Self { silent, ..self }
    }

    /// Renders the answer as text.
    pub(super) fn render(&self, now: Timestamp) -> String {
        let mut text = String::new();
        self.render_into(&mut text, now, &mut Vec::new()).expect("writing to a String cannot fail");
        text
    }

    /// Renders this object and the objects that it waits for. `named` has the sections of the book
    /// that the text above names already.
    fn render_into<'a>(
        &'a self,
        text: &mut String,
        now: Timestamp,
        named: &mut Vec<&'a str>,
    ) -> std::fmt::Result {
        let Self { object, why, source, silent, last_operation, because, .. } = self;
        for silent in silent {
            writeln!(text, "{silent}")?;
        }
        writeln!(text, "{object}: {}", why.waits_for)?;
        if let Some(since) = why.since {
            writeln!(text, "  since     {}", moment(since, now))?;
        }
        if why.next != "nothing" {
            writeln!(text, "  next      {}", why.next)?;
        }
        if let Some(Deadline { at, then }) = &why.deadline {
            writeln!(text, "  deadline  {}: {then}", moment(*at, now))?;
        }
        if let Some(LastOperation { operation, description, at }) = last_operation {
            let at = at.map(|at| format!(" ({})", ago_or_ahead(at, now))).unwrap_or_default();
            writeln!(text, "  status    {operation} failed: {description}{at}")?;
        }
        match source {
            Source::Controller { component, url } => {
                let decided = ago_or_ahead(why.decided_at, now);
                writeln!(text, "  known     from the {component} at {url}, which decided this {decided}")?;
            }
            Source::Api => writeln!(text, "  known     from the API server{}", self.who_else())?,
        }
        if let Some(page) = why.page.as_deref().filter(|page| !named.contains(page)) {
            writeln!(text, "  more      {page}")?;
            named.push(page);
        }
        if let Some(because) = because {
            writeln!(text)?;
            because.render_into(text, now, named)?;
        }
        Ok(())
    }

    /// Describes the controllers' answers if the answer comes from the API server.
    fn who_else(&self) -> String {
        let urls = |wanted: fn(&Asked) -> bool| {
            let asked = self.controllers.iter().filter(|asked| wanted(asked));
            asked.map(|asked| asked.url.as_str()).collect::<Vec<_>>().join(" or ")
        };
        if self.controllers.iter().any(Asked::is_answered) {
            return format!("; the controller at {} reports less", urls(Asked::is_answered));
        }
        let mut text = String::new();
        for asked in &self.controllers {
            if let Some(reason) = asked.refusal() {
                write!(text, "; the controller at {} gave no answer: {reason}", asked.url)
                    .expect("writing to a String cannot fail");
            }
        }
        let silent = urls(Asked::is_silent);
        if !silent.is_empty() {
            write!(
                text,
                "; no controller answers at {silent}, so calls in flight and the cloud's last answers are unknown"
            )
            .expect("writing to a String cannot fail");
        }
        text
    }
}

/// Returns whether the answer from the API servers has more details than the answer of the
/// controller. Only this process checks whether a bootstrap token was used, and what the decision
/// about the whole deployment waits for.
fn knows_more_than(api: &Reported, controller: &Reported) -> bool {
    match (controller.reason.as_str(), api.reason.as_str()) {
        ("Joining", "Joining") => controller.waits_for.len() < api.waits_for.len(),
        ("Unhealthy" | "Joining", other) => {
            matches!(other, "ReplacementLimit" | "ReplacementGap" | "ReplacementImpossible" | "ClockSkew")
        }
        _ => false,
    }
}

/// Formats a time with its distance from now.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let second = at.round(jiff::Unit::Second).unwrap_or(at);
    format!("{second}, {}", ago_or_ahead(at, now))
}

fn ago_or_ahead(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs();
    let distance = GoDuration::from_seconds(seconds.saturating_abs());
    if seconds < 0 { format!("in {distance}") } else { format!("{distance} ago") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_cluster_comes_before_the_answer_of_the_controller() {
        let mut reported = Reported::unserved("team", "", Timestamp::UNIX_EPOCH);
        reported.from = Some("machine-controller".to_owned());
        reported.waits_for = "waiting for Node a to register".to_owned();
        let silent =
            vec!["kubeconfig target: the API server did not answer: no answer within 5 s".to_owned()];
        let url = "http://127.0.0.1:10259".to_owned();
        let asked = vec![Asked::answered(&url)];
        let answer = Answer::of_controller("machine team/a".to_owned(), url, reported, asked, silent);
        let text = answer.render(Timestamp::UNIX_EPOCH);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "kubeconfig target: the API server did not answer: no answer within 5 s");
        assert_eq!(lines[1], "machine team/a: waiting for Node a to register");
        assert!(text.contains("from the machine-controller at http://127.0.0.1:10259"), "{text}");
    }

    #[test]
    fn a_section_of_the_book_is_named_once() {
        let machine = |name: &str, because| {
            let reported = Reported::unserved("team", "", Timestamp::UNIX_EPOCH);
            Answer::new(format!("machine team/{name}"), reported, None, Vec::new(), None, because)
        };
        let text = machine("a", Some(Box::new(machine("b", None)))).render(Timestamp::UNIX_EPOCH);
        assert_eq!(
            text.matches("\n  more      docs/src/stuck.md#namespace-not-served\n").count(),
            1,
            "{text}"
        );
    }

    #[test]
    fn the_book_quotes_the_reason_for_an_unserved_namespace() {
        let page = include_str!("../../../../../docs/src/stuck.md");
        let served = "the machine-controller serves default";
        let reported = Reported::unserved("team", served, Timestamp::UNIX_EPOCH);
        assert!(page.contains(&format!("```text\n{}\n```\n", reported.waits_for)), "{}", reported.waits_for);
        assert_eq!(reported.reason, "NamespaceNotServed", "the anchor below is named after it");
        assert!(page.contains("<a id=\"namespace-not-served\"></a>\n"));
    }
}
