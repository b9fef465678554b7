//! The largest values in the schemas of our kinds. Most are those of the contract.

/// Number of failure domains.
pub(super) const MOST_FAILURE_DOMAINS: usize = 100;
/// Number of addresses of a machine.
pub(super) const MOST_ADDRESSES: usize = 256;
/// Number of conditions.
pub(super) const MOST_CONDITIONS: usize = 32;
/// Length of a name, of an address and of a condition's type.
pub(super) const LONGEST_NAME: usize = 256;
/// Length of a provider id, of a host and of a Message-Id.
pub(super) const LONGEST_ID: usize = 512;
/// Length of a condition's message.
pub(super) const LONGEST_MESSAGE: usize = 32_768;
/// Length of a mail address.
pub(super) const LONGEST_MAIL_ADDRESS: usize = 320;
