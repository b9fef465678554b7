//! The load balancer of a control plane: a container that runs HAProxy.
//!
//! `settings` parses the options of a balancer, `config` renders and reads the configuration,
//! `template` renders a configuration from a template of the user (all pure), and `driver` awaits.
//!
//! The container is not privileged. Its configuration is copied into it, checked by HAProxy itself,
//! and loaded by a signal. A second file records the configuration that was loaded, so a call that
//! was interrupted in between is completed by the next one.

mod config;
mod driver;
mod settings;
mod template;
