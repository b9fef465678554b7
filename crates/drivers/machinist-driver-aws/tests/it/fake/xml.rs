//! The answers as XML, in the form of EC2.

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Interface, Machine, Settings};

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(super) fn done() -> String {
    "<Response><requestId>r-1</requestId><return>true</return></Response>".to_owned()
}

/// The answer of EC2 to a refused request.
pub(super) fn refusal(code: &str) -> String {
    format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>text of {code}</Message></Error></Errors>\
         <RequestID>r-1</RequestID></Response>"
    )
}

pub(super) fn role(key: &str, expiry: Timestamp) -> String {
    format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>temporary canary</SecretAccessKey>\
         <SessionToken>session canary</SessionToken><Expiration>{expiry}</Expiration></Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
}

pub(super) fn images(root_device: Option<&str>) -> String {
    let image = root_device.map(|name| format!("<item><rootDeviceName>{name}</rootDeviceName></item>"));
    let image = image.unwrap_or_default();
    format!(
        "<DescribeImagesResponse><requestId>r</requestId><imagesSet>{image}</imagesSet></DescribeImagesResponse>"
    )
}

pub(super) fn page(machines: &[&Machine], now: Instant, next: Option<String>, settings: &Settings) -> String {
    let reservations: String =
        machines.iter().map(|one| format!("<item>{}</item>", set(one, now, settings))).collect();
    let next = next.map(|token| format!("<nextToken>{token}</nextToken>")).unwrap_or_default();
    format!(
        "<DescribeInstancesResponse><reservationSet>{reservations}</reservationSet>{next}</DescribeInstancesResponse>"
    )
}

/// The answer to `RunInstances`.
pub(super) fn reservation(machine: &Machine, now: Instant, settings: &Settings) -> String {
    format!(
        "<RunInstancesResponse><reservationId>r</reservationId>{}</RunInstancesResponse>",
        set(machine, now, settings)
    )
}

fn set(machine: &Machine, now: Instant, settings: &Settings) -> String {
    let tags: String = machine
        .tags
        .iter()
        .map(|(key, value)| {
            format!("<item><key>{}</key><value>{}</value></item>", escape(key), escape(value))
        })
        .collect();
    let interfaces: String =
        machine.interfaces.iter().filter(|_| settings.shows_interfaces).map(interface).collect();
    format!(
        "<instancesSet><item><instanceId>{}</instanceId><instanceState><code>0</code><name>{}</name></instanceState>\
         <privateDnsName>{}</privateDnsName><dnsName/><instanceType>m5.large</instanceType>\
         <launchTime>{}</launchTime><placement><availabilityZone>{}{}</availabilityZone></placement>\
         <privateIpAddress>10.250.0.4</privateIpAddress><clientToken>{}</clientToken><tagSet>{tags}</tagSet>\
         <networkInterfaceSet>{interfaces}</networkInterfaceSet></item></instancesSet>",
        machine.id,
        machine.state(now),
        escape(&machine.private_dns_name),
        machine.launched,
        machine.region,
        machine.zone,
        escape(&machine.token),
    )
}

fn interface(interface: &Interface) -> String {
    let prefix = "<item><ipv6Prefix>2001:db8::/80</ipv6Prefix></item>";
    format!(
        "<item><networkInterfaceId>{}</networkInterfaceId><sourceDestCheck>{}</sourceDestCheck>\
         <attachment><deviceIndex>{}</deviceIndex><networkCardIndex>{}</networkCardIndex></attachment>\
         <ipv6PrefixSet>{}</ipv6PrefixSet><interfaceType>{}</interfaceType></item>",
        interface.id,
        interface.has_check,
        interface.device,
        interface.card,
        prefix.repeat(interface.prefixes),
        interface.of_type,
    )
}
