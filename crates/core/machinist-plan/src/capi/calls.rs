//! Calls whose failure has a sentence of its own in `why`.

use machinist_core::Call;

/// Completes the Node in the workload cluster.
pub const COMPLETE_NODE: Call = Call::change("complete the Node");
/// Sends a mail.
pub const SEND: Call = Call::change("send the mail");
/// Looks a mail up.
pub const LOOK_UP: Call = Call::look("look the mail up");
