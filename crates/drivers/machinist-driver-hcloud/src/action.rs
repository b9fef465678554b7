//! Waits a moment for the end of an action.
//!
//! Most actions take one or two seconds. A call that waits for a moment can continue with the next
//! change, and needs fewer calls in sum than a caller that starts again. But no call waits longer
//! than the pauses of one [`Patience`], so that no worker is held by a slow cloud.

use std::time::Duration;

use crate::client::Client;
use crate::client::call::Call;
use crate::client::failure::{Failure, action_failed};
use crate::model::{Action, ActionStatus};

/// The pauses before the checks of one action.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// Number of checks during one call of the driver.
const CHECKS_PER_CALL: u32 = 6;

/// The checks that are left during one call of the driver.
pub(crate) struct Patience(u32);

impl Default for Patience {
    fn default() -> Self {
        Self(CHECKS_PER_CALL)
    }
}

/// The state of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    /// The action has not ended yet.
    Pending,
}

impl Client {
    /// Checks an action until it ends or the patience is used up.
    ///
    /// # Errors
    /// The failure of the action, or of the call that reads the action.
    pub(crate) async fn follow(&self, mut action: Action, patience: &mut Patience) -> Result<End, Failure> {
        for pause in PAUSES {
            if action.status != ActionStatus::Running || patience.0 == 0 {
                break;
            }
            patience.0 -= 1;
            tokio::time::sleep(pause).await;
            action = self.call(Call::get("/actions/-", action.id)).await?.take("action")?;
        }
        end(&action)
    }
}

fn end(action: &Action) -> Result<End, Failure> {
    match action.status {
        ActionStatus::Running => Ok(End::Pending),
        ActionStatus::Success => Ok(End::Success),
        ActionStatus::Error => {
            let error = action.error.clone().unwrap_or_default();
            Err(action_failed(&action.command, &error.code, &error.message))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_action_runs_succeeds_or_fails() {
        let action = |status: &str| {
            let error = json!({"code": "action_failed", "message": "no address left"});
            let action = json!({"id": 1, "command": "attach_to_network", "status": status, "error": error});
            end(&serde_json::from_value(action).expect("an action"))
        };
        assert_eq!(action("running"), Ok(End::Pending));
        assert_eq!(action("success"), Ok(End::Success));
        let failure = action("error").expect_err("failed");
        assert!(failure.error.message.contains("no address left"), "{}", failure.error);
    }
}
