//! MailgunMachine: a machine that a person provides on request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::group;
use super::limits::{MAX_ID_LEN, MAX_MAIL_ADDRESS_LEN};
use super::shared::PRIORITIES;
use super::{MailStatus, OnUncertain};
use crate::absent::null_as_default;
use crate::resource::namespaced_kind;
use crate::schema;

/// A machine that a person provides after a request by mail.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default)]
pub struct MailgunMachine {
    /// Standard object metadata.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// The request, and its fulfilment.
    pub spec: MailgunMachineSpec,
    /// Observed state.
    pub status: Option<MailStatus>,
}

namespaced_kind!(MailgunMachine, list: "MailgunMachineList", plural: "mailgunmachines", {
    spec: MailgunMachineSpec = "spec", skip_if: |_| false;
    status: Option<MailStatus> = "status", skip_if: Option::is_none;
});

/// The request for a machine, and its fulfilment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend(
    "required" = ["priority", "request", "requester"],
    "x-kubernetes-validations" = [schema::write_once("messageID")],
))]
pub struct MailgunMachineSpec {
    /// `Urgent`, `ExtremelyUrgent` or `BusinessCritical`.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(extend("enum" = PRIORITIES))]
    pub priority: String,
    /// Text of the request.
    #[serde(default, deserialize_with = "null_as_default")]
    pub request: String,
    /// Mail address of the person who asks.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(min = 3, max = MAX_MAIL_ADDRESS_LEN))]
    pub requester: String,
    /// Mail addresses of the recipients; without any, the recipient of the process.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 3, max = MAX_MAIL_ADDRESS_LEN)), extend("x-kubernetes-list-type" = "atomic"))]
    pub recipients: Vec<String>,
    /// Message-Id of the mail; the controller writes it once.
    ///
    /// The controller writes it before it sends the mail.
    #[serde(default, rename = "messageID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_ID_LEN))]
    pub message_id: Option<String>,
    /// Handling of a mail whose outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = OnUncertain::KNOWN))]
    pub on_uncertain: Option<OnUncertain>,
    /// Identity of the machine; the person who fulfils the request fills it in.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_ID_LEN))]
    pub provider_id: Option<String>,
}
