//! Routes of the configured network. `plan` decides (pure), and `driver` awaits.
//!
//! A deletion always names the destination and the gateway, so it never deletes a route that
//! another call created for the same destination in the meantime.
//!
//! Deliberately absent: the choice of the routes, which is the controller's, and routes of IPv6
//! destinations, which the cloud does not have.

mod driver;
mod plan;
