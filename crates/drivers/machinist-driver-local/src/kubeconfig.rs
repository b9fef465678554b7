//! The credential of a class: the entry `kubeconfig` of its Secrets.
//!
//! Users who may write a Secret must not read the files of the controller, and must not run
//! programs there. So a kubeconfig that names a file or a program is refused, as Gardener does.

use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use machinist_instance::{Credential, Error, ErrorKind};

/// The entry of the Secret.
const ENTRY: &str = "kubeconfig";

/// The cluster that a credential names.
#[derive(Clone)]
pub(crate) enum Login {
    /// The control cluster.
    Control,
    /// The cluster of a kubeconfig.
    Kubeconfig(Box<Kubeconfig>),
}

impl Login {
    /// Reads a credential.
    ///
    /// # Errors
    /// `Denied` names the field of the kubeconfig and the expected value. No value is shown.
    pub(crate) fn parse(credential: &Credential) -> Result<Self, Error> {
        let Some(text) = credential.text(ENTRY).filter(|text| !text.trim().is_empty()) else {
            return Ok(Self::Control);
        };
        // The error of the parser may quote a secret.
        let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| wrong("", "YAML of kind Config"))?;
        check_cluster(cluster(&kubeconfig)?)?;
        check_user(user(&kubeconfig)?)?;
        Ok(Self::Kubeconfig(Box::new(kubeconfig)))
    }

    /// The configuration of a client; `None` for the control cluster.
    ///
    /// # Errors
    /// `Denied` if the kubeconfig cannot be used.
    pub(crate) async fn config(&self) -> Result<Option<kube::Config>, Error> {
        let Self::Kubeconfig(kubeconfig) = self else { return Ok(None) };
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig((**kubeconfig).clone(), &options);
        let unusable = |_| wrong("", "a usable server, certificate authority and user");
        config.await.map(Some).map_err(unusable)
    }
}

/// The address of the API server of a credential; `None` for the control cluster and for a
/// credential that cannot be read.
pub(crate) fn address(credential: &Credential) -> Option<String> {
    match Login::parse(credential) {
        Ok(Login::Kubeconfig(kubeconfig)) => {
            let server = cluster(&kubeconfig).ok()?.server.as_deref()?;
            Some(server.trim_end_matches('/').to_owned())
        }
        Ok(Login::Control) | Err(_) => None,
    }
}

fn context(kubeconfig: &Kubeconfig) -> Result<&kube::config::Context, Error> {
    let current = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
    let current = current.ok_or_else(|| wrong("current-context", "the name of a context"))?;
    let named = kubeconfig.contexts.iter().find(|context| context.name == current);
    named.and_then(|named| named.context.as_ref()).ok_or_else(|| wrong("contexts", "the current context"))
}

fn cluster(kubeconfig: &Kubeconfig) -> Result<&Cluster, Error> {
    let name = &context(kubeconfig)?.cluster;
    let named = kubeconfig.clusters.iter().find(|cluster| cluster.name == *name);
    let cluster = named.and_then(|named| named.cluster.as_ref());
    cluster.ok_or_else(|| wrong("clusters", "the cluster of the current context"))
}

fn user(kubeconfig: &Kubeconfig) -> Result<&AuthInfo, Error> {
    let name = context(kubeconfig)?.user.as_deref().unwrap_or_default();
    let named = kubeconfig.auth_infos.iter().find(|user| user.name == name);
    let user = named.and_then(|named| named.auth_info.as_ref());
    user.ok_or_else(|| wrong("users", "the user of the current context"))
}

fn check_cluster(cluster: &Cluster) -> Result<(), Error> {
    let server = cluster.server.as_deref().unwrap_or_default();
    if !["https://", "http://"].iter().any(|scheme| server.starts_with(scheme)) {
        return Err(wrong("clusters[].cluster.server", "the URL of an API server"));
    }
    if cluster.certificate_authority.is_some() {
        let expected = "nothing, because it names a file; use certificate-authority-data";
        return Err(wrong("clusters[].cluster.certificate-authority", expected));
    }
    Ok(())
}

fn check_user(user: &AuthInfo) -> Result<(), Error> {
    let refused = [
        (
            "client-certificate",
            user.client_certificate.is_some(),
            "it names a file; use client-certificate-data",
        ),
        ("client-key", user.client_key.is_some(), "it names a file; use client-key-data"),
        ("tokenFile", user.token_file.is_some(), "it names a file; use token"),
        ("exec", user.exec.is_some(), "it names a program; use token or client-certificate-data"),
        (
            "auth-provider",
            user.auth_provider.is_some(),
            "it names a program; use token or client-certificate-data",
        ),
    ];
    match refused.iter().find(|(_, is_set, _)| *is_set) {
        Some((field, _, why)) => {
            Err(wrong(&format!("users[].user.{field}"), &format!("nothing, because {why}")))
        }
        None => Ok(()),
    }
}

fn wrong(field: &str, expected: &str) -> Error {
    let field = if field.is_empty() { ENTRY.to_owned() } else { format!("{ENTRY}: {field}") };
    Error::new(ErrorKind::Denied, format!("{field}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn credential(kubeconfig: &str) -> Credential {
        Credential::new(BTreeMap::from([(ENTRY.to_owned(), kubeconfig.as_bytes().to_vec())]))
    }

    fn kubeconfig(cluster: &str, user: &str) -> Credential {
        credential(&format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{{cluster}}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
        ))
    }

    fn refusal(credential: &Credential) -> String {
        let error = Login::parse(credential).err().expect("wrong");
        assert_eq!(error.kind, ErrorKind::Denied);
        assert!(!error.message.contains("canary"), "{error}");
        error.message
    }

    #[test]
    fn without_the_entry_the_control_cluster_is_meant() {
        for nothing in [Credential::default(), credential(" \n")] {
            assert!(matches!(Login::parse(&nothing), Ok(Login::Control)));
            assert_eq!(address(&nothing), None);
        }
    }

    #[test]
    fn a_kubeconfig_names_a_server_and_a_user() {
        let named = kubeconfig("server: 'https://a:6443/'", "token: canary");
        assert!(matches!(Login::parse(&named), Ok(Login::Kubeconfig(_))));
        assert_eq!(address(&named).as_deref(), Some("https://a:6443"));
    }

    #[test]
    fn files_and_programs_of_the_controller_are_refused() {
        let server = "server: 'https://a:6443'";
        let cases = [
            ("tokenFile: /canary", "users[].user.tokenFile"),
            ("client-certificate: /canary", "users[].user.client-certificate"),
            ("client-key: /canary", "users[].user.client-key"),
            ("exec: {apiVersion: client.authentication.k8s.io/v1, command: canary}", "users[].user.exec"),
            ("auth-provider: {name: canary, config: {}}", "users[].user.auth-provider"),
        ];
        for (user, field) in cases {
            let message = refusal(&kubeconfig(server, user));
            assert!(message.starts_with(&format!("kubeconfig: {field}: expected nothing")), "{message}");
        }
        let message = refusal(&kubeconfig(&format!("{server}, certificate-authority: /canary"), "token: t"));
        assert!(message.contains("certificate-authority: expected nothing"), "{message}");
    }

    #[test]
    fn a_broken_kubeconfig_is_never_quoted() {
        assert_eq!(refusal(&credential("users: [canary")), "kubeconfig: expected YAML of kind Config");
        assert!(refusal(&credential("{kind: Config}")).starts_with("kubeconfig: current-context: expected"));
        assert!(
            refusal(&kubeconfig("server: canary", "token: t")).contains("cluster.server: expected the URL")
        );
    }
}
