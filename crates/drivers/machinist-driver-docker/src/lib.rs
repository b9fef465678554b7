//! The driver for Docker: an instance is a container that behaves like a machine.
//!
//! A [`DockerProvider`] opens the engine that its options name. As in every driver, `spec` parses
//! the class's `providerSpec`, `request` builds the engine's requests, `reply` converts the
//! engine's answers (all three pure), and `driver` awaits. `bootstrap` translates bootstrap data
//! into files and steps, which a small script in the container runs once. `balancer` renders the
//! configuration of HAProxy. `engine` is a thin HTTP client that makes one attempt per call and
//! sees how far a request got.
//!
//! Identity: the name of a container is its host name and the name of its Node, and the engine
//! never has two containers of one name. The key is the label `machinist.dev/owner-uid`, which
//! cannot change. So after the API objects received new UIDs, the recorded container id is the
//! proof of ownership.
//!
//! A load balancer has these options ([`machinist_instance::BalancerSpec::options`]):
//!
//! | Option | |
//! |---|---|
//! | `image` | image of the container, with HAProxy; if absent, the driver's |
//! | `network` | network of the container; if absent, the driver's |
//! | `ip-family` | `ipv4` (the default), `ipv6` or `dual` |
//! | `ip` | static address, which an earlier container had |
//! | `cluster` | name of the Kubernetes cluster, for a label |
//! | `listen-address` | address of the host for published ports; if absent, all |
//! | `host-port.PORT` | port of the host for a port; if absent, the engine chooses |
//! | `haproxy-template` | template of the configuration, instead of the built-in one |
//! | `label.NAME` | label of the container |
//!
//! The template is in a part of Go's template language: `.FrontendControlPlanePort`,
//! `.BackendControlPlanePort`, `.IPv6`, `range $name, $server := .BackendServers` with `.Address`
//! and `.Weight`, `if`, `else`, `not`, `eq`, and `JoinHostPort`. HAProxy checks the result before
//! it is loaded.
//!
//! Deliberately absent: retries, caches of containers, TLS to a remote engine, and a pool of
//! connections. Access to the engine is access to the whole host: see the chapter on security.

mod addresses;
mod archive;
mod balancer;
mod bootstrap;
mod driver;
mod engine;
mod id;
mod image;
mod label;
mod model;
mod network;
mod options;
mod own_cluster;
mod reply;
mod request;
mod restarts;
mod spec;

pub use driver::{DockerProvider, PROMISES};
pub use engine::{Connector, EngineAddress, EngineAddressError, Wire};
pub use options::{DockerOptions, OptionsError, Privileges};
pub use restarts::EngineNews;
pub use spec::{ImageMode, IpFamily, Mount, ProviderSpec, Resources, Role};
