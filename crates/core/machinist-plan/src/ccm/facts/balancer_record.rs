//! The record of a load balancer on its Service: the text of the annotation
//! [`crate::ccm::names::BALANCER_RECORD`].

/// The id in a record whose load balancer was not shown yet.
const UNKNOWN_ID: &str = "?";

/// The load balancer that a Service records. Its annotation spells it `ID in ACCOUNT for UID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalancerRecord<'s> {
    /// The id of the load balancer; absent if only its account was recorded, before the creation.
    pub id: Option<&'s str>,
    /// The account in which it was created or seen last.
    pub account: &'s str,
}

impl<'s> BalancerRecord<'s> {
    /// Reads the record of the Service with that UID. A record that was copied from another Service
    /// counts for nothing.
    pub(super) fn parse(text: &'s str, service_uid: &str) -> Option<Self> {
        let (id, rest) = text.split_once(" in ")?;
        let (account, uid) = rest.split_once(" for ")?;
        let id = Some(id).filter(|id| *id != UNKNOWN_ID);
        (uid == service_uid).then_some(Self { id, account })
    }

    /// Returns the text of the record for the Service with that UID. Neither an id nor an account
    /// contains a space.
    pub(in crate::ccm) fn render(&self, service_uid: &str) -> String {
        format!("{} in {} for {service_uid}", self.id.unwrap_or(UNKNOWN_ID), self.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendered_record_is_parsed_again() {
        for (id, text) in [(Some("7"), "7 in a1b2 for 0a-1b"), (None, "? in a1b2 for 0a-1b")] {
            let record = BalancerRecord { id, account: "a1b2" };
            assert_eq!(record.render("0a-1b"), text);
            assert_eq!(BalancerRecord::parse(text, "0a-1b"), Some(record));
        }
    }

    #[test]
    fn another_text_is_no_record() {
        for text in ["", "7", "7 in a1b2", "7 for 0a-1b", "7 in a1b2 for another"] {
            assert_eq!(BalancerRecord::parse(text, "0a-1b"), None, "{text}");
        }
    }
}
