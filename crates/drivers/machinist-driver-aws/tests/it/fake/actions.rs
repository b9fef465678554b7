//! The actions of the Query API.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{IMAGE, Interface, Machine, Parameters, Request, SUBNETS, State, WORKLOAD_TOKEN, xml};

/// A refusal: the status and the code.
type Refused = (u16, &'static str);

/// How long temporary keys are valid.
const SESSION: SignedDuration = SignedDuration::from_hours(1);

impl State {
    /// Carries out a request, and returns the XML of the answer.
    pub(crate) fn act(&mut self, request: &Request) -> Result<String, Refused> {
        if request.action == "AssumeRoleWithWebIdentity" {
            return self.assume_role(&request.parameters);
        }
        let account = self.account_of(request)?;
        let (parameters, region) = (&request.parameters, request.region.as_str());
        match request.action.as_str() {
            "DescribeInstances" => self.describe(&account, region, parameters),
            "DescribeImages" => describe_images(parameters),
            "RunInstances" => self.run(&account, region, parameters),
            "TerminateInstances" => self.terminate(&account, region, parameters),
            "CreateTags" => self.create_tags(parameters),
            "ModifyNetworkInterfaceAttribute" => {
                self.interface_of(parameters)?.has_check = false;
                Ok(xml::done())
            }
            "AssignIpv6Addresses" => {
                let count: usize = parameters["Ipv6PrefixCount"].parse().expect("a number");
                self.interface_of(parameters)?.prefixes += count;
                Ok(xml::done())
            }
            _ => Err((400, "InvalidAction")),
        }
    }

    fn account_of(&self, request: &Request) -> Result<String, Refused> {
        let account = self.access_keys.get(&request.access_key).ok_or((401, "AuthFailure"))?;
        if let Some((_, expiry)) = self.sessions.get(&request.access_key)
            && *expiry <= self.now()
        {
            return Err((400, "ExpiredToken"));
        }
        Ok(account.clone())
    }

    fn assume_role(&mut self, parameters: &Parameters) -> Result<String, Refused> {
        if parameters["WebIdentityToken"] != WORKLOAD_TOKEN {
            return Err((400, "InvalidIdentityToken"));
        }
        let account = parameters["RoleArn"].split(':').nth(4).unwrap_or_default().to_owned();
        let key = format!("ASIA{}", self.sessions.len());
        let expiry = self.now().saturating_add(SESSION).expect("a time");
        self.sessions.insert(key.clone(), ("session".to_owned(), expiry));
        self.access_keys.insert(key.clone(), account);
        Ok(xml::role(&key, expiry))
    }

    fn describe(&self, account: &str, region: &str, parameters: &Parameters) -> Result<String, Refused> {
        let now = Instant::now();
        let is_shown = |machine: &&Machine| {
            machine.account == account && machine.region == region && machine.visible_at <= now
        };
        let shown: Vec<&Machine> = self.instances.iter().filter(is_shown).collect();
        if let Some(id) = parameters.get("InstanceId.1") {
            if parameters.contains_key("MaxResults") {
                return Err((400, "InvalidParameterCombination"));
            }
            let found = shown.into_iter().find(|machine| machine.id == *id);
            let found = found.ok_or((400, "InvalidInstanceID.NotFound"))?;
            return Ok(xml::page(&[found], now, None, &self.settings));
        }
        let filters = filters(parameters);
        let matching: Vec<&Machine> =
            shown.into_iter().filter(|machine| is_match(machine, &filters, now)).collect();
        let from: usize = parameters.get("NextToken").map_or(0, |token| token.parse().expect("our token"));
        let to = (from + self.settings.page).min(matching.len());
        let next = (to < matching.len()).then(|| to.to_string());
        Ok(xml::page(&matching[from.min(to)..to], now, next, &self.settings))
    }

    fn run(&mut self, account: &str, region: &str, parameters: &Parameters) -> Result<String, Refused> {
        let now = Instant::now();
        let subnet = parameters["NetworkInterface.1.SubnetId"].as_str();
        let zone = SUBNETS.iter().find(|(id, _)| *id == subnet).map(|(_, zone)| *zone);
        let zone = zone.ok_or((400, "InvalidSubnetID.NotFound"))?;
        let token = parameters["ClientToken"].clone();
        let of_token = (account.to_owned(), format!("{region}{zone}"), token.clone());
        if let Some((before, index)) = self.tokens.get(&of_token) {
            let machine = &self.instances[*index];
            if machine.state(now) == "terminated" {
                return Err((400, "IdempotentInstanceTerminated"));
            }
            if before != parameters {
                return Err((400, "IdempotentParameterMismatch"));
            }
            return Ok(xml::reservation(machine, now, &self.settings));
        }
        let alive = self.instances.iter().filter(|machine| machine.state(now) != "terminated").count();
        if self.settings.quota.is_some_and(|quota| quota <= alive) {
            return Err((400, "InstanceLimitExceeded"));
        }
        if !self.settings.has_stock {
            return Err((500, "InsufficientInstanceCapacity"));
        }
        let interfaces = self.interfaces(parameters);
        let tags = pairs(parameters, "TagSpecification.1.Tag");
        let index = self.add(account, region, zone, token, tags, interfaces);
        self.tokens.insert(of_token, (parameters.clone(), index));
        Ok(xml::reservation(&self.instances[index], now, &self.settings))
    }

    fn interfaces(&self, parameters: &Parameters) -> Vec<Interface> {
        let interface = |number: usize| {
            let field = |name: &str| parameters.get(&format!("NetworkInterface.{number}.{name}"));
            let device = field("DeviceIndex")?.parse().expect("a number");
            let card = field("NetworkCardIndex").map_or(0, |card| card.parse().expect("a number"));
            let of_type = field("InterfaceType").map_or("interface", String::as_str);
            Some(self.interface(number, card, device, of_type))
        };
        (1..).map_while(interface).collect()
    }

    pub(super) fn interface(&self, number: usize, card: i32, device: i32, of_type: &str) -> Interface {
        let id = format!("eni-{}{number}", self.instances.len());
        Interface { id, card, device, of_type: of_type.to_owned(), has_check: true, prefixes: 0 }
    }

    /// Adds an instance, and returns its position.
    pub(super) fn add(
        &mut self,
        account: &str,
        region: &str,
        zone: &str,
        token: String,
        tags: BTreeMap<String, String>,
        interfaces: Vec<Interface>,
    ) -> usize {
        let number = self.instances.len();
        let of_address = self.free_name(region);
        let of_tag = tags.get("Name").filter(|_| self.settings.names_by_tag);
        self.instances.push(Machine {
            id: format!("i-{number:017x}"),
            account: account.to_owned(),
            region: region.to_owned(),
            zone: zone.to_owned(),
            private_dns_name: of_tag.cloned().unwrap_or(of_address),
            tags,
            token,
            // Times of the API have no fractions of a second.
            launched: Timestamp::from_second(self.now().as_second()).expect("a time"),
            visible_at: Instant::now() + self.settings.lag,
            terminated_at: None,
            is_stopped: false,
            interfaces,
        });
        number
    }

    /// The name of the lowest free address. EC2 gives the address of a terminated instance to
    /// another one.
    fn free_name(&self, region: &str) -> String {
        let now = Instant::now();
        let name = |number: usize| {
            format!("ip-10-250-{}-{}.{region}.compute.internal", number / 250, 4 + number % 250)
        };
        let is_free = |name: &String| {
            let has_it = |machine: &Machine| machine.private_dns_name == *name;
            self.instances.iter().all(|machine| !has_it(machine) || machine.state(now) == "terminated")
        };
        (0..).map(name).find(is_free).expect("there are more addresses than instances")
    }

    fn terminate(&mut self, account: &str, region: &str, parameters: &Parameters) -> Result<String, Refused> {
        let (now, deletion) = (Instant::now(), self.settings.deletion);
        let is_it = |machine: &&mut Machine| {
            machine.account == account && machine.region == region && machine.id == parameters["InstanceId.1"]
        };
        let machine = self.instances.iter_mut().find(is_it).ok_or((400, "InvalidInstanceID.NotFound"))?;
        machine.terminated_at.get_or_insert(now + deletion);
        Ok(xml::done())
    }

    fn create_tags(&mut self, parameters: &Parameters) -> Result<String, Refused> {
        if !self.settings.may_tag {
            return Err((403, "UnauthorizedOperation"));
        }
        let id = &parameters["ResourceId.1"];
        let machine = self.instances.iter_mut().find(|machine| machine.id == *id);
        machine.ok_or((400, "InvalidInstanceID.NotFound"))?.tags.extend(pairs(parameters, "Tag"));
        Ok(xml::done())
    }

    fn interface_of(&mut self, parameters: &Parameters) -> Result<&mut Interface, Refused> {
        let id = &parameters["NetworkInterfaceId"];
        let mut all = self.instances.iter_mut().flat_map(|machine| &mut machine.interfaces);
        all.find(|interface| interface.id == *id).ok_or((400, "InvalidNetworkInterfaceID.NotFound"))
    }
}

fn describe_images(parameters: &Parameters) -> Result<String, Refused> {
    match parameters["ImageId.1"].as_str() {
        IMAGE => Ok(xml::images(Some("/dev/xvda"))),
        "ami-hidden" => Ok(xml::images(None)),
        _ => Err((400, "InvalidAMIID.NotFound")),
    }
}

/// The tags below a name, in which they have numbers.
fn pairs(parameters: &Parameters, name: &str) -> BTreeMap<String, String> {
    let pair = |number: usize| {
        let key = parameters.get(&format!("{name}.{number}.Key"))?;
        Some((key.clone(), parameters.get(&format!("{name}.{number}.Value"))?.clone()))
    };
    (1..).map_while(pair).collect()
}

fn filters(parameters: &Parameters) -> Vec<(String, Vec<String>)> {
    let filter = |number: usize| {
        let name = parameters.get(&format!("Filter.{number}.Name"))?.clone();
        let value = |one: usize| parameters.get(&format!("Filter.{number}.Value.{one}")).cloned();
        Some((name, (1..).map_while(value).map(|value| value.replace('\\', "")).collect()))
    };
    (1..).map_while(filter).collect()
}

fn is_match(machine: &Machine, filters: &[(String, Vec<String>)], now: Instant) -> bool {
    filters.iter().all(|(name, values)| {
        let is_one = |text: &str| values.iter().any(|value| value == text);
        match name.as_str() {
            "instance-state-name" => is_one(machine.state(now)),
            "client-token" => is_one(&machine.token),
            "private-dns-name" => is_one(&machine.private_dns_name),
            "tag-key" => machine.tags.keys().any(|key| is_one(key)),
            other => {
                let tag = other.strip_prefix("tag:").expect("a known filter");
                machine.tags.get(tag).is_some_and(|value| is_one(value))
            }
        }
    })
}
