//! Tests of the rendered table.

use expect_test::{Expect, expect};
use machinist_core::Step;
use machinist_plan::mcm::{McmReason, TokenUse};
use serde_json::json;

use super::*;

/// State of a cluster.
struct World {
    view: View,
    waits: Waits,
}

const WIDE: Size = Size { columns: 100, rows: 24 };

impl World {
    /// Creates a world with one deployment.
    fn new(wanted: u64, ready: u64) -> Self {
        let mut world = Self { view: View::of("default"), waits: Waits::new() };
        let deployment = json!({
            "metadata": {"name": "workers", "uid": "d"}, "spec": {"replicas": wanted}, "status": {"readyReplicas": ready}
        });
        world.see("machinedeployments.machine.sapcloud.io", "default/workers", &deployment);
        world
    }

    fn see(&mut self, resource: &str, key: &str, object: &serde_json::Value) {
        self.view.take_in_object(resource, key, Some(object));
    }

    fn machine(&mut self, name: &str, phase: &str) {
        let machine = json!({
            "metadata": {"name": name, "labels": {"node": format!("ip-{name}")}, "ownerReferences": [{"uid": "s", "controller": true}]},
            "status": {"currentStatus": {"phase": phase}}
        });
        self.see("machines.machine.sapcloud.io", &format!("default/{name}"), &machine);
    }

    fn node(&mut self, name: &str, ready: &str) {
        let node = json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        self.see("nodes", name, &node);
    }

    /// Adds a Machine with a ready Node.
    fn running(&mut self, name: &str) {
        self.machine(name, "Running");
        self.node(&format!("ip-{name}"), "True");
    }

    /// Adds a Machine without a Node.
    fn joining(&mut self, name: &str) {
        self.machine(name, "Pending");
        let node = format!("ip-{name}");
        self.waits(
            Key::Machine,
            name,
            Reason::Contract(McmReason::Joining { node, token: TokenUse::Unasked }),
        );
    }

    fn waits(&mut self, key: fn(ObjectKey) -> Key, name: &str, reason: Reason) {
        self.waits.insert(key(ObjectKey::new("default", name)), Why::new(reason, Step::Nothing));
    }

    fn pending(&mut self, available: u32, desired: u32, first: &str) {
        let first = Some(first.to_owned());
        self.waits(
            Key::Deployment,
            "workers",
            Reason::Contract(McmReason::MachinesPending { available, desired, first }),
        );
    }

    #[track_caller]
    fn shows(&self, size: Size, expected: &Expect) {
        let lines = render(&self.view, &self.waits, size);
        let mark = |look| match look {
            Look::Plain => ' ',
            Look::Strong => '*',
            Look::Waiting => '!',
            Look::Faint => '~',
        };
        let text: String = lines.iter().map(|line| format!("{}{}\n", mark(line.look), line.text)).collect();
        expected.assert_eq(&text);
        assert!(lines.len() < size.rows, "there is no free line for the cursor");
        assert!(
            lines.iter().all(|line| width(&line.text) < size.columns),
            "a line is wider than the terminal"
        );
    }
}

#[test]
fn waiting_objects_come_first_with_their_reason() {
    let mut world = World::new(3, 1);
    world.running("a");
    world.joining("b");
    world.machine("c", "");
    world.node("ip-b", "False");
    world.pending(1, 3, "b");
    world.shows(
        WIDE,
        &expect![[r#"
        *1 of 3 machines Running, 1 Nodes ready
        *NAME                       STATE      WHY
        !machinedeployment/workers  1/3 ready  1 of 3 machines available; the first unavailable machine is b
        !machine/b                  Pending    waiting for Node ip-b to register
         machine/a                  Running
         machine/c                  created
        !node/ip-b                  NotReady   waiting for Node ip-b to register
         node/ip-a                  Ready
    "#]],
    );
}

#[test]
fn a_settled_object_shows_no_reason() {
    let mut world = World::new(1, 1);
    world.running("a");
    world.waits(Key::Machine, "a", Reason::Settled);
    world.shows(
        WIDE,
        &expect![[r#"
        *1 of 1 machines Running, 1 Nodes ready
        *NAME                       STATE      WHY
         machinedeployment/workers  1/1 ready
         machine/a                  Running
         node/ip-a                  Ready
    "#]],
    );
}

#[test]
fn hidden_rows_are_counted_and_waiting_rows_hidden_last() {
    let mut world = World::new(1000, 997);
    for number in 0..997 {
        world.running(&format!("m{number:04}"));
    }
    for name in ["x", "y", "z"] {
        world.joining(name);
    }
    world.pending(997, 1000, "x");
    world.shows(
        Size { columns: 80, rows: 10 },
        &expect![[r#"
        *997 of 1000 machines Running, 997 Nodes ready
        *NAME                       STATE           WHY
        !machinedeployment/workers  997/1000 ready  997 of 1000 machines available; the…
        !machine/x                  Pending         waiting for Node ip-x to register
        !machine/y                  Pending         waiting for Node ip-y to register
        !machine/z                  Pending         waiting for Node ip-z to register
         machine/m0000              Running
         machine/m0001              Running
        ~and 995 more machines Running, 997 more nodes Ready
    "#]],
    );
    world.shows(
        Size { columns: 80, rows: 7 },
        &expect![[r#"
        *997 of 1000 machines Running, 997 Nodes ready
        *NAME                       STATE           WHY
        !machinedeployment/workers  997/1000 ready  997 of 1000 machines available; the…
        !machine/x                  Pending         waiting for Node ip-x to register
        !machine/y                  Pending         waiting for Node ip-y to register
        ~and 997 more machines Running, 1 more machine Pending, 997 more nodes Ready
    "#]],
    );
}

#[test]
fn the_last_line_of_the_terminal_stays_free() {
    let mut world = World::new(3, 0);
    world.joining("a");
    world.running("b");
    for rows in 1..8 {
        for columns in [1, 2, 10, 40] {
            let size = Size { columns, rows };
            let lines = render(&world.view, &world.waits, size);
            assert!(lines.len() < rows, "{size:?}: {lines:?}");
            assert!(lines.iter().all(|line| width(&line.text) < columns), "{size:?}: {lines:?}");
        }
    }
    world.shows(
        Size { columns: 40, rows: 5 },
        &expect![[r#"
        *1 of 3 machines Running (2 exist), 1 N…
        *NAME       STATE    WHY
        !machine/a  Pending  waiting for Node i…
        ~and 1 more deployment, 1 more machine …
    "#]],
    );
}

#[test]
fn only_sets_without_a_deployment_are_shown() {
    let mut world = World::new(1, 0);
    for (name, owners) in [("owned", json!([{"uid": "d", "controller": true}])), ("own", json!([]))] {
        let set = json!({"metadata": {"name": name, "uid": name, "ownerReferences": owners}, "spec": {"replicas": 2}});
        world.see("machinesets.machine.sapcloud.io", &format!("default/{name}"), &set);
    }
    world.waits(Key::Set, "own", Reason::Contract(McmReason::Paused));
    let deleted = json!({"metadata": {"name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"replicas": 2}});
    world.see("machinedeployments.machine.sapcloud.io", "default/w", &deleted);
    world.shows(
        WIDE,
        &expect![[r#"
        *0 of 3 machines Running (0 exist), 0 Nodes ready
        *NAME                       STATE      WHY
         machinedeployment/w        deleting
         machinedeployment/workers  0/1 ready
        !machineset/own             0/2 ready  paused by spec.paused
    "#]],
    );
}

#[test]
fn control_characters_of_a_reason_are_removed() {
    let mut world = World::new(1, 0);
    world.machine("a", "Pending");
    world.waits(
        Key::Machine,
        "a",
        Reason::Contract(McmReason::InvalidSpec("\x1b[2J\nall\u{9b}2J gone".to_owned())),
    );
    let lines = render(&world.view, &world.waits, WIDE);
    assert!(lines.iter().all(|line| !line.text.contains(char::is_control)), "{lines:?}");
}
