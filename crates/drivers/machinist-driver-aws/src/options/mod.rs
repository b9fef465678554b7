//! Options of the provider, under the names of the AWS programs where those have a name.
//!
//! | Variable | |
//! |---|---|
//! | `AWS_ENDPOINT_URL_EC2`, `AWS_ENDPOINT_URL_STS` | base URL of one API |
//! | `AWS_ENDPOINT_URL` | base URL of both APIs |
//! | `AWS_REGION` | region of calls that belong to no class |
//! | `MACHINIST_AWS_TOKEN_FOLDER` | folder below which tokens of workloads are read |
//! | `MACHINIST_AWS_SEND_ALL_FIELDS` | `true`: also send the fields that Go's provider ignores |
//!
//! Deliberately absent: credentials, which are in the Secret of a class.

mod region;

use std::path::PathBuf;

use machinist_driver_http::Endpoint;

use crate::client::call::Service;

/// The folder in which Gardener mounts the token of a workload.
const TOKEN_FOLDER: &str = "/var/run/secrets/gardener.cloud/workload-identity";

/// Options of the provider for all accounts.
///
/// ```
/// use machinist_driver_aws::AwsOptions;
///
/// let variables = |name: &str| (name == "AWS_REGION").then(|| "eu-west-1".to_owned());
/// let options = AwsOptions::from_env(variables)?;
/// assert_eq!(options.region.as_deref(), Some("eu-west-1"));
///
/// let wrong = AwsOptions::from_env(|name| (name == "AWS_ENDPOINT_URL").then(|| "x".to_owned()));
/// let expected = "AWS_ENDPOINT_URL: expected http://HOST/PATH or https://HOST/PATH";
/// assert_eq!(wrong.map_err(|error| error.to_string()), Err(expected.to_owned()));
/// # Ok::<(), machinist_driver_aws::OptionsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsOptions {
    /// The base URL of EC2. `None`: the endpoint of the region.
    pub ec2: Option<Endpoint>,
    /// The base URL of STS. `None`: the endpoint of the region.
    pub sts: Option<Endpoint>,
    /// The region of an account that is opened without a place. `None`: an account without a place
    /// cannot be opened.
    pub region: Option<String>,
    /// The folder below which the tokens of workloads are read. A user who may write Secrets cannot
    /// make the program send another file to the cloud.
    pub token_folder: PathBuf,
    /// Whether the fields `kmsKeyID`, `noDevice`, `virtualName`, `ebsOptimized` and `monitoring` of
    /// classes are sent. Gardener's provider never sends them, so existing classes may contain
    /// wrong values.
    pub sends_all_fields: bool,
}

impl Default for AwsOptions {
    fn default() -> Self {
        Self {
            ec2: None,
            sts: None,
            region: None,
            token_folder: TOKEN_FOLDER.into(),
            sends_all_fields: false,
        }
    }
}

/// A variable has a wrong value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: expected {expected}")]
pub struct OptionsError {
    /// Name of the variable.
    pub variable: String,
    /// The accepted values.
    pub expected: String,
}

impl AwsOptions {
    /// Reads the options from environment variables. An empty variable counts as absent.
    ///
    /// # Errors
    /// Names the first variable with a wrong value.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, OptionsError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let endpoint = |name: &str| {
            let url = set(name).map(|url| Endpoint::parse(&url));
            url.transpose().map_err(|error| wrong(name, &error.to_string()))
        };
        let both = endpoint("AWS_ENDPOINT_URL")?;
        let sends_all_fields = match set("MACHINIST_AWS_SEND_ALL_FIELDS").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(wrong("MACHINIST_AWS_SEND_ALL_FIELDS", "true or false")),
        };
        Ok(Self {
            ec2: endpoint("AWS_ENDPOINT_URL_EC2")?.or_else(|| both.clone()),
            sts: endpoint("AWS_ENDPOINT_URL_STS")?.or(both),
            region: set("AWS_REGION"),
            token_folder: set("MACHINIST_AWS_TOKEN_FOLDER")
                .map_or_else(|| TOKEN_FOLDER.into(), PathBuf::from),
            sends_all_fields,
        })
    }

    /// Whether no endpoint uses HTTPS.
    pub(crate) fn is_plain(&self) -> bool {
        [&self.ec2, &self.sts].iter().all(|url| url.as_ref().is_some_and(|url| !url.is_https()))
    }

    /// The URL of an API in a region.
    pub(crate) fn url(&self, service: Service, region: &str) -> String {
        let configured = match service {
            Service::Ec2 => &self.ec2,
            Service::Sts => &self.sts,
        };
        match configured {
            Some(endpoint) => endpoint.uri("/"),
            None => region::endpoint_of(service.name(), region),
        }
    }
}

fn wrong(variable: &str, expected: &str) -> OptionsError {
    let expected = expected.strip_prefix("expected ").unwrap_or(expected).to_owned();
    OptionsError { variable: variable.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> Result<AwsOptions, OptionsError> {
        AwsOptions::from_env(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_endpoint_of_one_api_wins() {
        let both = [("AWS_ENDPOINT_URL", "http://a:1"), ("AWS_ENDPOINT_URL_STS", "https://b/p/")];
        let options = options(&both).expect("valid");
        assert_eq!(options.url(Service::Ec2, "eu-west-1"), "http://a:1/");
        assert_eq!(options.url(Service::Sts, "eu-west-1"), "https://b/p/");
        assert!(!options.is_plain());
    }

    #[test]
    fn wrong_values_name_their_variable() {
        let message = |variable, value| options(&[(variable, value)]).expect_err("wrong").to_string();
        let expected = "MACHINIST_AWS_SEND_ALL_FIELDS: expected true or false";
        assert_eq!(message("MACHINIST_AWS_SEND_ALL_FIELDS", "yes"), expected);
        assert!(
            message("AWS_ENDPOINT_URL_EC2", "ftp://a").starts_with("AWS_ENDPOINT_URL_EC2: expected http")
        );
        assert_eq!(options(&[("AWS_ENDPOINT_URL", "")]), Ok(AwsOptions::default()));
    }
}
