//! The table of `up`: deployments, machines and nodes, and what each of them waits for. A pure
//! function renders the lines.
//!
//! The reason of an object is the last decision of its controller, which `machinist why` shows
//! first. No controller decides about a Node, so the table shows the reason of its Machine. Names
//! have the form that `machinist why` accepts.
//!
//! If not all rows fit, waiting objects come first and the other objects are only counted.

use std::collections::BTreeMap;

use machinist_controllers::mcm::Key;
use machinist_kube::ObjectKey;
use machinist_plan::mcm::{Reason, Why};

use super::progress::{phase_word, readiness, render_counts};
use super::view::{Listed, Replicas, View};
use crate::output::{Line, Look, Size, fit, width};

/// Reason of each object. Objects without a reason are absent or settled.
pub(super) type Waits = BTreeMap<Key, Why>;

/// Space between two columns.
const GAP: &str = "  ";

/// Headings of the columns.
const COLUMNS: [&str; 3] = ["NAME", "STATE", "WHY"];

/// Row of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    kind: Kind,
    /// `kind/name`.
    name: String,
    state: String,
    waits_for: Option<String>,
}

/// Kind of an object, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Deployment,
    Set,
    Machine,
    Node,
}

/// Renders the table. It leaves one line of the terminal free for the cursor.
pub(super) fn render(view: &View, waits: &Waits, size: Size) -> Vec<Line> {
    let counts = render_counts(view.running(), view.wanted(), view.machines(), view.nodes_ready());
    let columns = size.columns.saturating_sub(1);
    let mut lines = vec![Line { look: Look::Strong, text: fit(&counts, columns) }];
    let (shown, left_out) = choose(rows(view, waits), size.rows.saturating_sub(1 + lines.len()));
    lines.extend(layout(&shown, columns));
    if let Some(left_out) = left_out {
        lines.push(Line { look: Look::Faint, text: fit(&left_out, columns) });
    }
    lines.truncate(size.rows.saturating_sub(1));
    lines
}

fn rows(view: &View, waits: &Waits) -> Vec<Row> {
    let waits_for = |key: fn(ObjectKey) -> Key, name: &str| {
        let why = waits.get(&key(ObjectKey::new(view.served(), name)))?;
        (why.reason != Reason::Settled).then(|| why.reason.to_string())
    };
    let mut waits_of_node = BTreeMap::new();
    for listed in view.listed() {
        if let Listed::Machine { name, node: Some(node), .. } = listed {
            waits_of_node.insert(node, waits_for(Key::Machine, name));
        }
    }
    let row = |listed| match listed {
        Listed::Deployment(name, replicas) => Row {
            kind: Kind::Deployment,
            name: format!("machinedeployment/{name}"),
            state: state_of(replicas),
            waits_for: waits_for(Key::Deployment, name),
        },
        Listed::Set(name, replicas) => Row {
            kind: Kind::Set,
            name: format!("machineset/{name}"),
            state: state_of(replicas),
            waits_for: waits_for(Key::Set, name),
        },
        Listed::Machine { name, phase, .. } => Row {
            kind: Kind::Machine,
            name: format!("machine/{name}"),
            state: phase_word(phase).to_owned(),
            waits_for: waits_for(Key::Machine, name),
        },
        Listed::Node { name, ready } => Row {
            kind: Kind::Node,
            name: format!("node/{name}"),
            state: readiness(ready).to_owned(),
            waits_for: waits_of_node.get(name).cloned().flatten(),
        },
    };
    view.listed().map(row).collect()
}

fn state_of(replicas: Replicas) -> String {
    match replicas {
        Replicas { is_leaving: true, .. } => "deleting".to_owned(),
        Replicas { ready, wanted, is_leaving: false } => format!("{ready}/{wanted} ready"),
    }
}

/// Returns the rows that fit into `lines`, including the heading, and a text that counts the other
/// rows.
fn choose(mut rows: Vec<Row>, lines: usize) -> (Vec<Row>, Option<String>) {
    let mut room = lines.saturating_sub(1);
    let mut left_out = Vec::new();
    if room < rows.len() {
        // One line is reserved for the count of the other rows.
        room = room.saturating_sub(1);
        rows.sort_by_key(|row| (row.waits_for.is_none(), row.kind));
        left_out = rows.split_off(room);
    }
    rows.sort_by_key(|row| (row.kind, row.waits_for.is_none()));
    (rows, render_rest(&left_out))
}

/// Counts the hidden rows by kind and state.
fn render_rest(rows: &[Row]) -> Option<String> {
    let mut counts: BTreeMap<(Kind, &str), usize> = BTreeMap::new();
    for row in rows {
        // The state of an owner contains its replicas, so owners are counted without a state.
        let state = if row.kind <= Kind::Set { "" } else { row.state.as_str() };
        *counts.entry((row.kind, state)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|((kind, _), count)| (*kind, std::cmp::Reverse(*count)));
    let each = counts.into_iter().map(|((kind, state), count)| {
        let noun = match kind {
            Kind::Deployment => "deployment",
            Kind::Set => "set",
            Kind::Machine => "machine",
            Kind::Node => "node",
        };
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} more {noun}{plural} {state}").trim_end().to_owned()
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("and {}", each.join(", ")))
}

/// Renders the heading and the rows. Each column is as wide as its content; the last one gets the
/// rest of the line.
fn layout(rows: &[Row], columns: usize) -> Vec<Line> {
    if rows.is_empty() {
        return Vec::new();
    }
    let widest = |heading: &str, cell: fn(&Row) -> &str| {
        rows.iter().map(|row| width(cell(row))).max().unwrap_or_default().max(width(heading))
    };
    let [name_heading, state_heading, waits_heading] = COLUMNS;
    let names = widest(name_heading, |row| &row.name);
    let states = widest(state_heading, |row| &row.state);
    let line = |look, name: &str, state: &str, waits_for: &str| {
        let text = format!("{name:names$}{GAP}{state:states$}{GAP}{waits_for}");
        Line { look, text: fit(text.trim_end(), columns) }
    };
    let heading = line(Look::Strong, name_heading, state_heading, waits_heading);
    let rows = rows.iter().map(|row| match &row.waits_for {
        Some(waits_for) => line(Look::Waiting, &row.name, &row.state, waits_for),
        None => line(Look::Plain, &row.name, &row.state, ""),
    });
    std::iter::once(heading).chain(rows).collect()
}

#[cfg(test)]
mod tests;
