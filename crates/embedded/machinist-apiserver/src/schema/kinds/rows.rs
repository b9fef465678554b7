//! The built-in kinds, one row each.

use crate::schema::kinds::built_in::{BuiltIn, ROW};
use crate::schema::kinds::{
    certificate, config, custom_resource_definition, event, job, lease, namespace, node, pod,
    pod_disruption_budget, rbac, scheduling, service, volume, workload,
};
use crate::values::meta::NameRule;

/// Common values of roles and bindings.
const RBAC: BuiltIn = BuiltIn {
    group: "rbac.authorization.k8s.io",
    names: NameRule::PathSegment,
    create_on_update: true,
    ..ROW
};

/// Common values of kinds that create pods from a template.
const WORKLOAD: BuiltIn =
    BuiltIn { group: "apps", categories: &["all"], has_status: true, generation: true, ..ROW };

/// Common values of the reviews that identify a user.
const ASKED_WHO: BuiltIn = BuiltIn {
    group: "authentication.k8s.io",
    namespaced: false,
    only_created: true,
    deletes_collections: false,
    ..ROW
};

/// Common values of the reviews that check a user's permissions.
const ASKED_WHETHER: BuiltIn = BuiltIn { group: "authorization.k8s.io", ..ASKED_WHO };

/// Field labels of Events under both of their names. Events are stored with `involvedObject`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject.kind", "involvedObject.kind"),
    ("involvedObject.namespace", "involvedObject.namespace"),
    ("involvedObject.name", "involvedObject.name"),
    ("involvedObject.uid", "involvedObject.uid"),
    ("involvedObject.apiVersion", "involvedObject.apiVersion"),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion"),
    ("involvedObject.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingComponent", "reportingComponent"),
    ("source", "source.component"),
    ("type", "type"),
];

/// Every built-in kind.
pub(crate) static BUILT_INS: &[BuiltIn] = &[
    BuiltIn {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        type_name: "Namespace",
        collection: "namespaces",
        names: NameRule::Label,
        has_status: true,
        subresources: &[("finalize", "/v1/Namespace")],
        returns_deleted: true,
        deletes_collections: false,
        fields: &[("status.phase", "status.phase")],
        rules: &namespace::Namespaces,
        ..ROW
    },
    BuiltIn {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        type_name: "Node",
        collection: "nodes",
        has_status: true,
        fields: &[("spec.unschedulable", "spec.unschedulable")],
        rules: &node::Nodes,
        ..ROW
    },
    BuiltIn {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        type_name: "Pod",
        collection: "pods",
        has_status: true,
        subresources: &[("eviction", "policy/v1/Eviction"), ("binding", "/v1/Binding")],
        generation: true,
        returns_deleted: true,
        fields: &[
            ("spec.nodeName", "spec.nodeName"),
            ("spec.host", "spec.nodeName"),
            // Accepted, and always empty.
            ("status.podIPs", ""),
            ("spec.restartPolicy", "spec.restartPolicy"),
            ("spec.schedulerName", "spec.schedulerName"),
            ("spec.serviceAccountName", "spec.serviceAccountName"),
            ("spec.hostNetwork", "spec.hostNetwork"),
            ("status.phase", "status.phase"),
            ("status.podIP", "status.podIP"),
            ("status.nominatedNodeName", "status.nominatedNodeName"),
        ],
        rules: &pod::Pods,
        ..ROW
    },
    BuiltIn {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        type_name: "Secret",
        collection: "secrets",
        fields: &[("type", "type")],
        rules: &config::Secrets,
        ..ROW
    },
    BuiltIn {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        type_name: "ConfigMap",
        collection: "configmaps",
        rules: &config::ConfigMaps,
        ..ROW
    },
    BuiltIn {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        type_name: "ServiceAccount",
        collection: "serviceaccounts",
        subresources: &[("token", "authentication.k8s.io/v1/TokenRequest")],
        returns_deleted: true,
        rules: &config::ServiceAccounts,
        ..ROW
    },
    BuiltIn {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        type_name: "Event",
        collection: "events",
        names: NameRule::PathSegment,
        create_on_update: true,
        fields: EVENT_FIELDS,
        rules: &event::CoreEvents,
        ..ROW
    },
    BuiltIn {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        type_name: "EventsEvent",
        collection: "events",
        converted: true,
        create_on_update: true,
        fields: &[
            ("regarding.kind", "involvedObject.kind"),
            ("regarding.namespace", "involvedObject.namespace"),
            ("regarding.name", "involvedObject.name"),
            ("regarding.uid", "involvedObject.uid"),
            ("regarding.apiVersion", "involvedObject.apiVersion"),
            ("regarding.resourceVersion", "involvedObject.resourceVersion"),
            ("regarding.fieldPath", "involvedObject.fieldPath"),
            ("reason", "reason"),
            ("reportingController", "reportingComponent"),
            ("type", "type"),
        ],
        rules: &event::GroupEvents,
        ..ROW
    },
    BuiltIn {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        type_name: "Lease",
        collection: "leases",
        create_on_update: true,
        unconditional_update: false,
        rules: &lease::Leases,
        ..ROW
    },
    BuiltIn {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        type_name: "PodDisruptionBudget",
        collection: "poddisruptionbudgets",
        names: NameRule::PathSegment,
        has_status: true,
        generation: true,
        unconditional_update: false,
        rules: &pod_disruption_budget::PodDisruptionBudgets,
        ..ROW
    },
    BuiltIn {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        type_name: "Service",
        collection: "services",
        names: NameRule::ShortName,
        has_status: true,
        create_on_update: true,
        returns_deleted: true,
        fields: &[("spec.clusterIP", "spec.clusterIP"), ("spec.type", "spec.type")],
        rules: &service::Services,
        ..ROW
    },
    BuiltIn {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        namespaced: false,
        type_name: "PersistentVolume",
        collection: "persistentvolumes",
        has_status: true,
        returns_deleted: true,
        fields: &[("name", "metadata.name")],
        rules: &volume::PersistentVolumes,
        ..ROW
    },
    BuiltIn {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        type_name: "PersistentVolumeClaim",
        collection: "persistentvolumeclaims",
        has_status: true,
        returns_deleted: true,
        fields: &[("name", "metadata.name")],
        rules: &volume::PersistentVolumeClaims,
        ..ROW
    },
    BuiltIn {
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        type_name: "Deployment",
        collection: "deployments",
        has_scale: true,
        rules: &workload::Workload::Deployment,
        ..WORKLOAD
    },
    BuiltIn {
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        type_name: "ReplicaSet",
        collection: "replicasets",
        has_scale: true,
        rules: &workload::Workload::ReplicaSet,
        ..WORKLOAD
    },
    BuiltIn {
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        type_name: "DaemonSet",
        collection: "daemonsets",
        rules: &workload::Workload::DaemonSet,
        ..WORKLOAD
    },
    BuiltIn {
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        type_name: "StatefulSet",
        collection: "statefulsets",
        names: NameRule::Label,
        has_scale: true,
        rules: &workload::Workload::StatefulSet,
        ..WORKLOAD
    },
    BuiltIn {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        singular: "job",
        type_name: "Job",
        collection: "jobs",
        orphans: true,
        fields: &[("status.successful", "status.succeeded")],
        rules: &job::Jobs,
        ..WORKLOAD
    },
    BuiltIn {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        singular: "volumeattachment",
        namespaced: false,
        type_name: "VolumeAttachment",
        collection: "volumeattachments",
        has_status: true,
        returns_deleted: true,
        unconditional_update: false,
        rules: &volume::VolumeAttachments,
        ..ROW
    },
    BuiltIn {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: scheduling::COLLECTION,
        singular: "priorityclass",
        short_names: &["pc"],
        namespaced: false,
        type_name: "PriorityClass",
        collection: scheduling::COLLECTION,
        rules: &scheduling::PriorityClasses,
        ..ROW
    },
    BuiltIn {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        singular: "certificatesigningrequest",
        short_names: &["csr"],
        namespaced: false,
        type_name: "CertificateSigningRequest",
        collection: "certificatesigningrequests",
        names: NameRule::Subdomain,
        has_status: true,
        subresources: &[("approval", "certificates.k8s.io/v1/CertificateSigningRequest")],
        fields: &[("spec.signerName", "spec.signerName")],
        rules: &certificate::CertificateSigningRequests,
        ..ROW
    },
    BuiltIn {
        kind: "Role",
        plural: "roles",
        singular: "role",
        type_name: "Role",
        collection: "roles",
        rules: &rbac::Roles { resource: "roles" },
        ..RBAC
    },
    BuiltIn {
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        type_name: "ClusterRole",
        collection: "clusterroles",
        rules: &rbac::Roles { resource: "clusterroles" },
        ..RBAC
    },
    BuiltIn {
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        type_name: "RoleBinding",
        collection: "rolebindings",
        rules: &rbac::Bindings { resource: "rolebindings" },
        ..RBAC
    },
    BuiltIn {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        type_name: "ClusterRoleBinding",
        collection: "clusterrolebindings",
        rules: &rbac::Bindings { resource: "clusterrolebindings" },
        ..RBAC
    },
    BuiltIn {
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        type_name: "TokenReview",
        ..ASKED_WHO
    },
    BuiltIn {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        type_name: "SelfSubjectReview",
        ..ASKED_WHO
    },
    BuiltIn {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        type_name: "SubjectAccessReview",
        ..ASKED_WHETHER
    },
    BuiltIn {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        namespaced: true,
        type_name: "LocalSubjectAccessReview",
        ..ASKED_WHETHER
    },
    BuiltIn {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        type_name: "SelfSubjectAccessReview",
        ..ASKED_WHETHER
    },
    BuiltIn {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        type_name: "SelfSubjectRulesReview",
        ..ASKED_WHETHER
    },
    BuiltIn {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        type_name: "CustomResourceDefinition",
        collection: custom_resource_definition::COLLECTION,
        has_status: true,
        generation: true,
        unconditional_update: false,
        returns_deleted: false,
        rules: &custom_resource_definition::CustomResourceDefinitions,
        ..ROW
    },
];
