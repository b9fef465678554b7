//! The flags of a kubelet that its user data gives: whether a cloud controller manager initialises
//! its Node, and the addresses that it announces.

/// Introduces the flags in the environment file of a kubelet.
const VARIABLE: &str = "KUBELET_EXTRA_ARGS=";

/// Flags of a kubelet. Other flags have no effect on a simulated machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// How the Node gets the facts that only its cloud knows.
    pub cloud_provider: CloudProvider,
    /// `--node-ip`: one address, or two of different families with a comma between them.
    pub node_ip: Option<String>,
}

/// How a Node gets its provider id, its addresses, and the labels of its type, zone and region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CloudProvider {
    /// The machine knows them when it registers.
    #[default]
    Machine,
    /// `--cloud-provider=external`: a cloud controller manager writes them. Until then the Node has
    /// a taint that keeps pods away.
    External,
}

impl Kubelet {
    /// Reads an environment file, for example
    /// `KUBELET_EXTRA_ARGS="--cloud-provider=external --node-ip=10.0.0.2"`. The last assignment
    /// counts.
    pub(crate) fn parse(environment: &str) -> Self {
        let mut kubelet = Self::default();
        let Some(flags) = environment.lines().rev().find_map(|line| line.trim().strip_prefix(VARIABLE))
        else {
            return kubelet;
        };
        let flags = flags.trim().trim_matches(['"', '\'']);
        for flag in flags.split_whitespace() {
            match flag.trim_start_matches('-').split_once('=') {
                Some(("cloud-provider", "external")) => kubelet.cloud_provider = CloudProvider::External,
                Some(("node-ip", addresses)) if !addresses.is_empty() => {
                    kubelet.node_ip = Some(addresses.to_owned());
                }
                Some(_) | None => {}
            }
        }
        kubelet
    }

    /// The addresses of `--node-ip`.
    pub(crate) fn node_ips(&self) -> impl Iterator<Item = &str> {
        self.node_ip.iter().flat_map(|addresses| addresses.split(','))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_the_last_assignment_count() {
        let external = |node_ip: Option<&str>| Kubelet {
            cloud_provider: CloudProvider::External,
            node_ip: node_ip.map(str::to_owned),
        };
        for (text, expected) in [
            ("", Kubelet::default()),
            ("KUBELET_EXTRA_ARGS=", Kubelet::default()),
            ("KUBELET_EXTRA_ARGS=--cloud-provider=aws --v=4", Kubelet::default()),
            ("KUBELET_EXTRA_ARGS=--cloud-provider=external", external(None)),
            (
                "# a comment\nKUBELET_EXTRA_ARGS=\nKUBELET_EXTRA_ARGS=\"--node-ip=10.0.0.2,fd00::2 --cloud-provider=external\"\n",
                external(Some("10.0.0.2,fd00::2")),
            ),
        ] {
            assert_eq!(Kubelet::parse(text), expected, "{text}");
        }
    }
}
