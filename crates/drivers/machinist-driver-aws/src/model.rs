//! The answers of the cloud, as far as this driver reads them. Every field that the driver does not
//! need is left out, and every list may be absent.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A list: an element with members called `item`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Items<T> {
    #[serde(default = "Vec::new")]
    pub(crate) item: Vec<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { item: Vec::new() }
    }
}

/// Parses a document. `None` if it is not the XML of this type.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    quick_xml::de::from_str(std::str::from_utf8(body).ok()?).ok()
}

/// A page of `DescribeInstances`.
#[derive(Debug, Deserialize)]
#[serde(rename = "DescribeInstancesResponse", rename_all = "camelCase")]
pub(crate) struct InstancesPage {
    pub(crate) reservation_set: Items<Reservation>,
    #[serde(default)]
    pub(crate) next_token: Option<String>,
}

/// The instances of one `RunInstances`; also the answer to it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reservation {
    pub(crate) instances_set: Items<Ec2Instance>,
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ec2Instance {
    pub(crate) instance_id: String,
    pub(crate) instance_state: State,
    #[serde(default)]
    pub(crate) instance_type: Option<String>,
    #[serde(default)]
    pub(crate) private_dns_name: Option<String>,
    #[serde(default)]
    pub(crate) dns_name: Option<String>,
    #[serde(default)]
    pub(crate) private_ip_address: Option<String>,
    #[serde(default)]
    pub(crate) ip_address: Option<String>,
    /// When the instance was started last.
    pub(crate) launch_time: Timestamp,
    #[serde(default)]
    pub(crate) placement: Placement,
    #[serde(default)]
    pub(crate) client_token: Option<String>,
    #[serde(default)]
    pub(crate) tag_set: Items<Tag>,
    #[serde(default)]
    pub(crate) network_interface_set: Items<NetworkInterface>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct State {
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Placement {
    #[serde(default)]
    pub(crate) availability_zone: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Tag {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) value: String,
}

/// A network interface of an instance.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkInterface {
    pub(crate) network_interface_id: String,
    #[serde(default)]
    pub(crate) source_dest_check: Option<bool>,
    #[serde(default)]
    pub(crate) interface_type: Option<String>,
    #[serde(default)]
    pub(crate) attachment: Attachment,
    #[serde(default)]
    pub(crate) ipv6_addresses_set: Items<Ipv6Address>,
    #[serde(default)]
    pub(crate) ipv6_prefix_set: Items<Ipv6Prefix>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attachment {
    #[serde(default)]
    pub(crate) device_index: i32,
    #[serde(default)]
    pub(crate) network_card_index: i32,
    #[serde(default)]
    pub(crate) attach_time: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ipv6Address {
    #[serde(default)]
    pub(crate) ipv6_address: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ipv6Prefix {
    #[serde(default)]
    pub(crate) ipv6_prefix: String,
}

/// The answer to `DescribeImages`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Images {
    #[serde(default)]
    pub(crate) images_set: Items<Image>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Image {
    #[serde(default)]
    pub(crate) root_device_name: Option<String>,
}

/// An answer of which nothing is read. EC2 writes an id into each, the page of a proxy has none.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Acknowledgement {
    #[serde(rename = "requestId")]
    pub(crate) _request_id: String,
}

/// The answer of STS. `Debug` is absent, because the keys are secret.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AssumedRole {
    pub(crate) assume_role_with_web_identity_result: RoleResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RoleResult {
    pub(crate) credentials: RoleKeys,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RoleKeys {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: String,
    pub(crate) session_token: String,
    pub(crate) expiration: Timestamp,
}

/// The error of an answer. EC2 writes it below `Response/Errors`, STS below `ErrorResponse`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ErrorDocument {
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ErrorOfEc2 {
    errors: ErrorList,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ErrorList {
    error: Vec<ErrorDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ErrorOfSts {
    error: ErrorDocument,
}

impl ErrorDocument {
    /// Reads the first error of an answer.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let of_ec2 = parse(body).and_then(|document: ErrorOfEc2| document.errors.error.into_iter().next());
        of_ec2.or_else(|| parse(body).map(|document: ErrorOfSts| document.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As EC2 writes it, shortened.
    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>8f7724cf-496f-496e-8fe3-example</requestId>
  <reservationSet>
    <item>
      <reservationId>r-1</reservationId>
      <groupSet/>
      <instancesSet>
        <item>
          <instanceId>i-0a1b</instanceId>
          <instanceState><code>16</code><name>running</name></instanceState>
          <privateDnsName>ip-10-250-0-4.eu-west-1.compute.internal</privateDnsName>
          <dnsName/>
          <instanceType>m5.large</instanceType>
          <launchTime>2026-11-24T11:57:18.000Z</launchTime>
          <placement><availabilityZone>eu-west-1a</availabilityZone><groupName/></placement>
          <clientToken>d212389b</clientToken>
          <tagSet>
            <item><key>Name</key><value>w-1 &amp; co</value></item>
            <item><key>empty</key><value/></item>
          </tagSet>
          <networkInterfaceSet>
            <item>
              <networkInterfaceId>eni-1</networkInterfaceId>
              <sourceDestCheck>true</sourceDestCheck>
              <attachment><deviceIndex>1</deviceIndex><networkCardIndex>2</networkCardIndex></attachment>
              <ipv6PrefixSet><item><ipv6Prefix>2001:db8::/80</ipv6Prefix></item></ipv6PrefixSet>
              <interfaceType>interface</interfaceType>
            </item>
          </networkInterfaceSet>
        </item>
      </instancesSet>
    </item>
  </reservationSet>
  <nextToken>next</nextToken>
</DescribeInstancesResponse>"#;

    #[test]
    fn a_page_of_instances_is_read() {
        let page: InstancesPage = parse(PAGE.as_bytes()).expect("a page");
        assert_eq!(page.next_token.as_deref(), Some("next"));
        let instance = &page.reservation_set.item[0].instances_set.item[0];
        assert_eq!(
            (instance.instance_id.as_str(), instance.instance_state.name.as_str()),
            ("i-0a1b", "running")
        );
        assert_eq!(instance.placement.availability_zone.as_deref(), Some("eu-west-1a"));
        let tags: Vec<_> = instance.tag_set.item.iter().map(|tag| (&*tag.key, &*tag.value)).collect();
        assert_eq!(tags, [("Name", "w-1 & co"), ("empty", "")]);
        let interface = &instance.network_interface_set.item[0];
        assert_eq!((interface.attachment.device_index, interface.attachment.network_card_index), (1, 2));
        assert_eq!((interface.source_dest_check, interface.ipv6_prefix_set.item.len()), (Some(true), 1));
    }

    #[test]
    fn an_empty_page_has_no_instances() {
        let page = "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>";
        let page: InstancesPage = parse(page.as_bytes()).expect("a page");
        assert!(page.reservation_set.item.is_empty() && page.next_token.is_none());
    }

    /// A list that a proxy replaced must not count as empty.
    #[test]
    fn a_document_of_another_type_is_not_read() {
        for body in ["", "{}", "<html/>", "<DescribeInstancesResponse/>", "<Response><Errors/></Response>"] {
            assert!(parse::<InstancesPage>(body.as_bytes()).is_none(), "{body}");
        }
        let cut = &PAGE[..PAGE.len() - 200];
        assert!(parse::<InstancesPage>(cut.as_bytes()).is_none(), "a part of a page");
    }

    #[test]
    fn errors_of_both_services_are_read() {
        let expected = Some(ErrorDocument { code: "A".to_owned(), message: "m".to_owned() });
        let ec2 = "<Response><Errors><Error><Code>A</Code><Message>m</Message></Error></Errors></Response>";
        let sts = "<ErrorResponse><Error><Type>Sender</Type><Code>A</Code><Message>m</Message></Error></ErrorResponse>";
        assert_eq!(ErrorDocument::parse(ec2.as_bytes()), expected);
        assert_eq!(ErrorDocument::parse(sts.as_bytes()), expected);
        assert_eq!(ErrorDocument::parse(b"<html/>"), None);
    }
}
