//! One request to the cloud, as data.

use machinist_driver_http::{ESCAPED, Nature};
use percent_encoding::utf8_percent_encode;

/// One request: the action and its parameters. The parameters may contain user data or a token, so
/// the type has no `Debug` and no message shows them.
#[derive(Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) service: Service,
    pub(crate) action: &'static str,
    pub(crate) nature: Nature,
    parameters: Vec<(String, String)>,
}

/// A service of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Instances.
    Ec2,
    /// Keys for the identity of a workload.
    Sts,
}

impl Service {
    /// The name in host names and signatures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Sts => "sts",
        }
    }

    /// The version of the API that this driver uses.
    fn version(self) -> &'static str {
        match self {
            Self::Ec2 => "2016-11-15",
            Self::Sts => "2011-06-15",
        }
    }
}

impl Call {
    fn new(service: Service, action: &'static str, nature: Nature) -> Self {
        Self { service, action, nature, parameters: Vec::new() }
    }

    /// An action of EC2 that only reads.
    pub(crate) fn read(action: &'static str) -> Self {
        Self::new(Service::Ec2, action, Nature::Reads)
    }

    /// An action of EC2 that changes something.
    pub(crate) fn change(action: &'static str) -> Self {
        Self::new(Service::Ec2, action, Nature::Changes)
    }

    /// An action of STS. Actions of STS create keys and change nothing.
    pub(crate) fn sts(action: &'static str) -> Self {
        Self::new(Service::Sts, action, Nature::Reads)
    }

    /// Adds a parameter.
    #[must_use]
    pub(crate) fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// Adds a parameter if there is a value.
    #[must_use]
    pub(crate) fn with_some(self, name: impl Into<String>, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The parameters in their order.
    #[cfg(test)]
    pub(crate) fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// The parameters as the body of a form.
    pub(crate) fn body(&self) -> String {
        let mut body = format!("Action={}&Version={}", self.action, self.service.version());
        for (name, value) in &self.parameters {
            body.push('&');
            body.extend(utf8_percent_encode(name, ESCAPED));
            body.push('=');
            body.extend(utf8_percent_encode(value, ESCAPED));
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_an_escaped_form() {
        let call =
            Call::read("DescribeInstances").with("Filter.1.Name", "tag:a b/ü").with_some("X", None::<&str>);
        let expected = "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Aa%20b%2F%C3%BC";
        assert_eq!(call.body(), expected);
        assert!(Call::sts("AssumeRoleWithWebIdentity").body().ends_with("&Version=2011-06-15"));
    }
}
