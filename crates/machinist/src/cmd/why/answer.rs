//! The answer: who knows what, and how it reads.

use std::fmt::Write as _;

use jiff::Timestamp;
use machinist_api::{GoDuration, Machine, OperationState};
use machinist_controllers::{Explanation, render_why};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ask::Asked;

/// A reason as it comes from a controller, or from the planner here; the two are the same but for who looked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reported {
    /// Kind, namespace and name.
    #[serde(skip_serializing, default)]
    pub object: String,
    /// The CamelCase word for what it waits for.
    pub reason: String,
    /// The same for people.
    pub waits_for: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// What comes next.
    pub next: String,
    /// Until when, and what then.
    pub deadline: Option<Deadline>,
    /// When that was decided.
    pub decided_at: Timestamp,
    /// What was, or would be, done then.
    #[serde(default)]
    pub actions: Vec<String>,
    /// The component that says so; absent when it was decided here.
    #[serde(default, skip_serializing)]
    pub from: Option<String>,
}

/// A moment at which patience ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Deadline {
    /// When.
    pub at: Timestamp,
    /// What is done then.
    pub then: String,
}

/// What the status of a Machine says about an operation that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LastOperation {
    /// What was done.
    pub operation: String,
    /// What went wrong.
    pub description: String,
    /// When.
    pub at: Option<Timestamp>,
}

/// Who gave the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "who")]
enum Source {
    /// A running controller.
    #[serde(rename_all = "camelCase")]
    Controller {
        /// Which.
        component: String,
        /// Where.
        url: String,
    },
    /// The planner, from the API servers alone.
    Api,
}

/// Why an object is where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    object: String,
    #[serde(flatten)]
    why: Reported,
    source: Source,
    /// What the API servers alone say, where a controller said more.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_api: Option<Reported>,
    controllers: Vec<Asked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_operation: Option<LastOperation>,
    /// The object that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<Box<Answer>>,
}

impl Reported {
    /// What the planner says here, in the words of a controller.
    pub(super) fn of(explanation: &Explanation) -> Self {
        let mut rendered = render_why(&explanation.why);
        rendered["decidedAt"] = Value::from(explanation.at.to_string());
        rendered["actions"] = Value::from(explanation.actions.clone());
        serde_json::from_value(rendered).expect("a rendered reason has all fields of one")
    }
}

impl Reported {
    /// Nobody looks at its namespace, as far as is known.
    pub(super) fn unserved(namespace: &str, served: &str, at: Timestamp) -> Self {
        Self {
            object: String::new(),
            reason: "NamespaceNotServed".to_owned(),
            waits_for: format!(
                "a controller that serves namespace {namespace}: none that answers does ({served})"
            ),
            since: None,
            next: format!(
                "run the controllers with --namespace {namespace} too, or make the object in a namespace that is served"
            ),
            deadline: None,
            decided_at: at,
            actions: Vec::new(),
            from: None,
        }
    }
}

impl LastOperation {
    /// The last operation of a Machine, if it failed.
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
    /// Puts together what the API servers and a controller say.
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
        Self { object, why, source, from_api, controllers, last_operation, because }
    }

    /// The answer for people.
    pub(super) fn render(&self, now: Timestamp) -> String {
        let mut text = String::new();
        self.render_into(&mut text, now, "").expect("writing to a String cannot fail");
        text
    }

    fn render_into(&self, text: &mut String, now: Timestamp, indent: &str) -> std::fmt::Result {
        let Self { object, why, source, last_operation, because, .. } = self;
        writeln!(text, "{indent}{object} waits for {}", why.waits_for)?;
        if let Some(since) = why.since {
            writeln!(text, "{indent}  since     {}", moment(since, now))?;
        }
        if why.next != "nothing" {
            writeln!(text, "{indent}  next      {}", why.next)?;
        }
        if let Some(Deadline { at, then }) = &why.deadline {
            writeln!(text, "{indent}  deadline  {}: {then}", moment(*at, now))?;
        }
        if let Some(LastOperation { operation, description, at }) = last_operation {
            let at = at.map(|at| format!(" ({})", ago_or_ahead(at, now))).unwrap_or_default();
            writeln!(text, "{indent}  status    {operation} failed: {description}{at}")?;
        }
        match source {
            Source::Controller { component, url } => {
                let decided = ago_or_ahead(why.decided_at, now);
                writeln!(
                    text,
                    "{indent}  known     from the {component} at {url}, which decided so {decided}"
                )?;
            }
            Source::Api => writeln!(text, "{indent}  known     from the API server{}", self.who_else())?,
        }
        if let Some(because) = because {
            writeln!(text)?;
            because.render_into(text, now, indent)?;
        }
        Ok(())
    }

    /// What was heard from controllers, when the answer is not theirs.
    fn who_else(&self) -> String {
        let urls = |wanted: fn(&Asked) -> bool| {
            let asked = self.controllers.iter().filter(|asked| wanted(asked));
            asked.map(|asked| asked.url.as_str()).collect::<Vec<_>>().join(" or ")
        };
        if self.controllers.iter().any(Asked::is_answered) {
            return format!("; the controller at {} says less", urls(Asked::is_answered));
        }
        let silent = urls(Asked::is_silent);
        if silent.is_empty() {
            return String::new();
        }
        format!(
            "; no controller answers at {silent}, so its calls in flight and the cloud's last answers are not known"
        )
    }
}

/// Whether the API servers say more than the controller: who asks here also looks whether a bootstrap token was used, and what
/// the decision about the whole deployment waits for.
fn knows_more_than(api: &Reported, controller: &Reported) -> bool {
    match (controller.reason.as_str(), api.reason.as_str()) {
        ("Joining", "Joining") => controller.waits_for.len() < api.waits_for.len(),
        ("Unhealthy", other) => matches!(other, "ReplacementLimit" | "ReplacementGap" | "ClockSkew"),
        _ => false,
    }
}

/// A moment, and how far away it is.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let second = at.round(jiff::Unit::Second).unwrap_or(at);
    format!("{second}, {}", ago_or_ahead(at, now))
}

fn ago_or_ahead(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs();
    let distance = GoDuration::from_seconds(seconds.saturating_abs());
    if seconds < 0 { format!("in {distance}") } else { format!("{distance} ago") }
}
