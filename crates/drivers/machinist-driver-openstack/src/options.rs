//! Options of the provider.
//!
//! | Variable | |
//! |---|---|
//! | `OS_REGION_NAME` | region of calls that belong to no class |
//!
//! Deliberately absent: URLs and credentials, which are in the Secret of a class.

/// Options of the provider for all accounts.
///
/// ```
/// use machinist_driver_openstack::OpenStackOptions;
///
/// let variables = |name: &str| (name == "OS_REGION_NAME").then(|| "RegionOne".to_owned());
/// let options = OpenStackOptions::from_env(variables);
/// assert_eq!(options.region.as_deref(), Some("RegionOne"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenStackOptions {
    /// The region of an account that is opened without a place. `None`: an account without a place
    /// cannot be opened.
    pub region: Option<String>,
}

impl OpenStackOptions {
    /// Reads the options from environment variables. An empty variable counts as absent.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self { region: variable("OS_REGION_NAME").filter(|region| !region.is_empty()) }
    }
}
