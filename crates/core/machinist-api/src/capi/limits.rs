//! The largest values in the schemas of our kinds. Most are the values of the contract.

/// Number of failure domains.
pub(super) const MAX_FAILURE_DOMAINS: usize = 100;
/// Number of addresses of a machine.
pub(super) const MAX_ADDRESSES: usize = 256;
/// Number of conditions.
pub(super) const MAX_CONDITIONS: usize = 32;
/// Length of a name, of an address and of a condition's type.
pub(super) const MAX_NAME_LEN: usize = 256;
/// Length of a provider id, of a host and of a Message-Id.
pub(super) const MAX_ID_LEN: usize = 512;
/// Length of a condition's message.
pub(super) const MAX_MESSAGE_LEN: usize = 32_768;
/// Length of a mail address.
pub(super) const MAX_MAIL_ADDRESS_LEN: usize = 320;
