//! The decoders of Kubernetes' kinds, compiled once for the whole workspace.
//!
//! Decoders are generic functions. Without this module, each crate that reads a Pod compiles the
//! decoders of its hundred nested types again, which took a fifth of the build. The compiler uses
//! the copy of a crate below instead, if that crate has one. Each function here makes a copy for
//! one kind; [`watch`](crate::watch) and [`kube::Client`] then call the same code.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;

macro_rules! decoders {
    ($($function:ident: $kind:ty),* $(,)?) => {
        $(
            #[doc = concat!("Decodes a [`", stringify!($kind), "`] from JSON.")]
            ///
            /// # Errors
            /// If the text is not an object of the kind.
            pub fn $function(text: &str) -> serde_json::Result<$kind> {
                serde_json::from_str(text)
            }
        )*
    };
}

decoders! {
    certificate_signing_request: CertificateSigningRequest,
    config_map: ConfigMap,
    event: Event,
    lease: Lease,
    namespace: Namespace,
    node: Node,
    persistent_volume: PersistentVolume,
    persistent_volume_claim: PersistentVolumeClaim,
    pod: Pod,
    pod_disruption_budget: PodDisruptionBudget,
    secret: Secret,
    service: Service,
    volume_attachment: VolumeAttachment,
}
