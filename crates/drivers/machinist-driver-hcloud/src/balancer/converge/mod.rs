//! Brings a balancer into the wanted state: performs the steps of a plan, reads the balancer, and
//! plans again until no difference is left.
//!
//! If the cloud rejects a setting, or an option is invalid, the targets follow the Nodes all the
//! same. Then the call fails with the first error.

mod driver;

pub(super) use driver::Created;
