//! The client tokens of creations, and the instances that they created.

use std::collections::BTreeMap;

use crate::form::Parameters;
use crate::refusal::Refusal;

/// Number of tokens that are remembered. A test run needs some hundreds.
const MAX_TOKENS: usize = 100_000;

/// Number of subnets whose zone is remembered. A test run needs a few.
const MAX_SUBNETS: usize = 1000;

/// Longest token that EC2 accepts.
const MAX_LETTERS: usize = 64;

/// All creations with a token.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    /// By area and token. One token may create instances in each area.
    of_token: BTreeMap<(Area, String), Creation>,
    /// The zone of each known subnet by region and id.
    zones: BTreeMap<(String, String), String>,
    /// The token of each instance.
    of_instance: BTreeMap<String, String>,
}

/// The part of AWS in which a token counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Area {
    pub(crate) region: String,
    /// The zone that the request names; empty if it names none.
    pub(crate) zone: String,
}

/// A creation that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Creation {
    /// The parameters that a repeated request must have.
    pub(crate) parameters: Parameters,
    /// The ids of its instances.
    pub(crate) instances: Vec<String>,
}

impl Creations {
    /// The creation of a token. `None` if a request with the token may create instances.
    ///
    /// # Errors
    /// If EC2 accepts no such token, or if no further one can be remembered.
    pub(crate) fn find(&self, area: &Area, token: &str) -> Result<Option<&Creation>, Refusal> {
        if !token.is_ascii() || token.is_empty() || MAX_LETTERS < token.len() {
            let text = format!("ClientToken: expected 1 to {MAX_LETTERS} ASCII characters");
            return Err(Refusal::new("InvalidParameterValue", text));
        }
        let known = self.of_token.get(&(area.clone(), token.to_owned()));
        if known.is_none() && MAX_TOKENS <= self.of_token.len() {
            let text = format!("the proxy remembers {MAX_TOKENS} client tokens and no more; restart it");
            return Err(Refusal::new("InternalError", text));
        }
        Ok(known)
    }

    /// Remembers a creation.
    pub(crate) fn record(&mut self, area: &Area, token: &str, creation: Creation) {
        for id in &creation.instances {
            self.of_instance.insert(id.clone(), token.to_owned());
        }
        self.of_token.insert((area.clone(), token.to_owned()), creation);
    }

    /// The token of an instance.
    pub(crate) fn token_of(&self, id: &str) -> Option<&str> {
        self.of_instance.get(id).map(String::as_str)
    }

    /// The instances in a region that these tokens created.
    pub(crate) fn instances(&self, region: &str, tokens: &[&str]) -> Vec<String> {
        let found = self
            .of_token
            .iter()
            .filter(|((area, token), _)| area.region == region && tokens.contains(&token.as_str()));
        found.flat_map(|(_, creation)| creation.instances.iter().cloned()).collect()
    }

    /// The zone of a subnet, if it is known.
    pub(crate) fn zone_of(&self, region: &str, subnet: &str) -> Option<&str> {
        self.zones.get(&(region.to_owned(), subnet.to_owned())).map(String::as_str)
    }

    /// Remembers the zone of a subnet, which never changes.
    pub(crate) fn know_zone(&mut self, region: &str, subnet: &str, zone: &str) {
        if self.zones.len() < MAX_SUBNETS {
            self.zones.insert((region.to_owned(), subnet.to_owned()), zone.to_owned());
        }
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.of_token.len()
    }
}

/// The parameters that EC2 compares: all but those that every request of the client has.
pub(crate) fn compared(parameters: &Parameters) -> Parameters {
    let mut compared = parameters.clone();
    compared.retain(|name, _| !["Action", "Version", "ClientToken"].contains(&name.as_str()));
    compared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn creation(id: &str) -> Creation {
        Creation { parameters: Parameters::new(), instances: vec![id.to_owned()] }
    }

    fn area(region: &str, zone: &str) -> Area {
        Area { region: region.to_owned(), zone: zone.to_owned() }
    }

    #[test]
    fn a_token_counts_once_per_region_and_zone() {
        let mut creations = Creations::default();
        let (eu, us, us_a) = (area("eu", ""), area("us", ""), area("us", "us-a"));
        assert_eq!(creations.find(&eu, "t"), Ok(None));
        creations.record(&eu, "t", creation("i-1"));
        creations.record(&us, "t", creation("i-2"));
        creations.record(&us_a, "t", creation("i-3"));
        assert_eq!(creations.find(&eu, "t"), Ok(Some(&creation("i-1"))));
        assert_eq!(creations.find(&us_a, "t"), Ok(Some(&creation("i-3"))));
        assert_eq!(creations.find(&area("us", "us-b"), "t"), Ok(None));
        assert_eq!(creations.find(&us, "T"), Ok(None));
        assert_eq!(creations.instances("us", &["t", "u"]), ["i-2", "i-3"]);
        assert_eq!(creations.token_of("i-1"), Some("t"));
        assert_eq!(creations.len(), 3);
    }

    #[test]
    fn only_short_ascii_texts_are_tokens() {
        let code =
            |token: &str| Creations::default().find(&area("eu", ""), token).err().map(|refusal| refusal.code);
        assert_eq!(code(&"a".repeat(64)), None);
        for token in ["", "ü", &"a".repeat(65)] {
            assert_eq!(code(token).as_deref(), Some("InvalidParameterValue"), "{token}");
        }
    }
}
