//! Reads the answers of the backend, and changes the instances in them.
//!
//! An answer keeps its text except at the changed places, so a client reads what moto wrote.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;

/// An answer that contains instances: of `DescribeInstances` or `RunInstances`.
pub(crate) struct Document<'a> {
    text: &'a str,
    pub(crate) instances: Vec<Instance>,
    reservations: Vec<Reservation>,
}

/// An instance in an answer.
#[derive(Debug, Default)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) state: String,
    /// The whole element.
    whole: Range<usize>,
    /// The end of the element with the id.
    after_id: usize,
    /// The element with the client token, if the answer has one.
    token: Option<Range<usize>>,
    /// Position of its reservation. An answer to `RunInstances` is one.
    reservation: Option<usize>,
}

/// Instances that one request created.
#[derive(Debug)]
struct Reservation {
    whole: Range<usize>,
    content: Range<usize>,
}

/// An element while its end is not read.
struct Open {
    name: String,
    begin: usize,
    content: usize,
}

impl<'a> Document<'a> {
    /// Parses an answer. `None` if the answer is not XML.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut document = Self { text, instances: Vec::new(), reservations: Vec::new() };
        let mut instance = Instance::default();
        walk(text, |path, begin, content, end| {
            let whole = begin..end.1;
            match path {
                [.., "instancesSet", "item", "instanceId"] => {
                    instance.id = value(text, content..end.0)?;
                    instance.after_id = end.1;
                }
                [.., "instancesSet", "item", "clientToken"] => instance.token = Some(whole),
                [.., "instancesSet", "item", "instanceState", "name"] => {
                    instance.state = value(text, content..end.0)?;
                }
                [.., "instancesSet", "item"] => {
                    let read = std::mem::take(&mut instance);
                    document.instances.push(Instance { whole, ..read });
                }
                [.., "reservationSet", "item"] => {
                    let number = document.reservations.len();
                    let is_inside = |one: &&mut Instance| begin <= one.whole.start;
                    let inside = document.instances.iter_mut().filter(is_inside);
                    inside.for_each(|one| one.reservation = Some(number));
                    document.reservations.push(Reservation { whole, content: content..end.0 });
                }
                _ => {}
            }
            Some(())
        })?;
        let has_ids = document.instances.iter().all(|instance| !instance.id.is_empty());
        has_ids.then_some(document)
    }

    /// Renders the answer without hidden instances, and with client tokens. A reservation whose
    /// instances are all hidden is hidden, too.
    pub(crate) fn render<'t>(
        &self,
        is_hidden: impl Fn(&str) -> bool,
        token_of: impl Fn(&str) -> Option<&'t str>,
    ) -> String {
        let mut changes: Vec<(Range<usize>, String)> = Vec::new();
        for (number, reservation) in self.reservations.iter().enumerate() {
            let mut of_it = self.instances.iter().filter(|one| one.reservation == Some(number));
            if of_it.all(|one| is_hidden(&one.id)) {
                changes.push((reservation.whole.clone(), String::new()));
            }
        }
        for instance in &self.instances {
            if changes.iter().any(|(range, _)| range.contains(&instance.whole.start)) {
                continue;
            }
            if is_hidden(&instance.id) {
                changes.push((instance.whole.clone(), String::new()));
            } else if let Some(token) = token_of(&instance.id) {
                let place = instance.token.clone().unwrap_or(instance.after_id..instance.after_id);
                changes.push((place, format!("<clientToken>{}</clientToken>", escaped(token))));
            }
        }
        changes.sort_by_key(|(range, _)| range.start);
        let mut rendered = String::with_capacity(self.text.len());
        let mut from = 0;
        for (range, replacement) in changes {
            rendered.push_str(&self.text[from..range.start]);
            rendered.push_str(&replacement);
            from = range.end;
        }
        rendered.push_str(&self.text[from..]);
        rendered
    }

    /// Converts an answer to `DescribeInstances` into the answer to the `RunInstances` that created
    /// its first reservation.
    pub(crate) fn as_creation(&self) -> Option<String> {
        let content = &self.text[self.reservations.first()?.content.clone()];
        Some(format!(
            "<RunInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
             <requestId>00000000-0000-4000-8000-000000000000</requestId>{content}</RunInstancesResponse>"
        ))
    }
}

/// An answer to `DescribeInstances` that has no instances.
pub(crate) const NO_INSTANCES: &str = "<DescribeInstancesResponse \
    xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>00000000-0000-4000-8000-000000000000\
    </requestId><reservationSet/></DescribeInstancesResponse>";

/// The text of the first element of a name.
pub(crate) fn first(text: &str, name: &str) -> Option<String> {
    let mut found = None;
    walk(text, |path, _, content, end| {
        if found.is_none() && path.last() == Some(&name) {
            found = Some(value(text, content..end.0)?);
        }
        Some(())
    })?;
    found
}

/// Visits each element when it ends: its path, its begin, the begin of its content, and the ends of
/// content and element. `None` if the text is not XML, or if the visitor returns `None`.
fn walk(
    text: &str,
    mut visit: impl FnMut(&[&str], usize, usize, (usize, usize)) -> Option<()>,
) -> Option<()> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Open> = Vec::new();
    loop {
        let before = usize::try_from(reader.buffer_position()).ok()?;
        let event = reader.read_event().ok()?;
        let after = usize::try_from(reader.buffer_position()).ok()?;
        match event {
            Event::Start(tag) => {
                let name = tag.local_name().into_inner().to_owned();
                open.push(Open { name, begin: before, content: after });
            }
            Event::End(_) => {
                let path: Vec<&str> = open.iter().map(|open| open.name.as_str()).collect();
                let innermost = open.last()?;
                visit(&path, innermost.begin, innermost.content, (before, after))?;
                open.pop();
            }
            Event::Eof => return open.is_empty().then_some(()),
            _ => {}
        }
    }
}

fn value(text: &str, range: Range<usize>) -> Option<String> {
    Some(unescape(text.get(range)?.trim()).ok()?.into_owned())
}

/// Escapes a text for the content of an element.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<DescribeInstancesResponse><reservationSet>\
        <item><reservationId>r-1</reservationId><instancesSet>\
        <item><instanceId>i-1</instanceId><clientToken/><instanceState><name>running</name></instanceState>\
        <networkInterfaceSet><item><attachment><instanceId>i-9</instanceId></attachment></item>\
        </networkInterfaceSet></item>\
        <item><instanceId>i-2</instanceId><instanceState><name>terminated</name></instanceState></item>\
        </instancesSet></item>\
        <item><reservationId>r-2</reservationId><instancesSet>\
        <item><instanceId>i-3</instanceId><clientToken>x</clientToken></item></instancesSet></item>\
        </reservationSet></DescribeInstancesResponse>";

    #[test]
    fn instances_are_read_with_their_states() {
        let document = Document::parse(PAGE).expect("XML");
        let read: Vec<(&str, &str)> =
            document.instances.iter().map(|one| (one.id.as_str(), one.state.as_str())).collect();
        assert_eq!(read, [("i-1", "running"), ("i-2", "terminated"), ("i-3", "")]);
        assert_eq!(document.render(|_| false, |_| None), PAGE);
    }

    #[test]
    fn hidden_instances_are_cut_out() {
        let document = Document::parse(PAGE).expect("XML");
        let rest = |hidden: &[&str]| document.render(|id| hidden.contains(&id), |_| None);
        let shown = rest(&["i-1"]);
        assert!(!shown.contains("i-1<") && !shown.contains("i-9") && shown.contains("i-2"), "{shown}");
        let shown = rest(&["i-3"]);
        assert!(shown.contains("r-1") && !shown.contains("r-2"), "{shown}");
        let nothing =
            "<DescribeInstancesResponse><reservationSet></reservationSet></DescribeInstancesResponse>";
        assert_eq!(rest(&["i-1", "i-2", "i-3"]), nothing);
    }

    #[test]
    fn client_tokens_are_written_at_their_place() {
        let document = Document::parse(PAGE).expect("XML");
        let shown = document.render(|_| false, |id| (id != "i-3").then_some("a&b"));
        let token = "<clientToken>a&amp;b</clientToken>";
        assert_eq!(shown.matches(token).count(), 2);
        assert!(shown.contains(&format!("<instanceId>i-1</instanceId>{token}<instanceState>")), "{shown}");
        assert!(shown.contains(&format!("<instanceId>i-2</instanceId>{token}<instanceState>")), "{shown}");
        assert!(shown.contains("<clientToken>x</clientToken>"), "{shown}");
    }

    #[test]
    fn a_shown_reservation_is_the_answer_to_its_creation() {
        let creation = Document::parse(PAGE).expect("XML").as_creation().expect("a reservation");
        let again = Document::parse(&creation).expect("XML");
        assert_eq!(again.instances.len(), 2);
        assert!(creation.contains("<reservationId>r-1</reservationId>"), "{creation}");
        assert!(Document::parse(NO_INSTANCES).expect("XML").as_creation().is_none());
    }

    #[test]
    fn a_body_that_is_no_xml_is_not_read() {
        for body in ["{}<a>", "<a><b></a>", "<a/><instancesSet><item></item></instancesSet>"] {
            assert!(Document::parse(body).is_none(), "{body}");
        }
        assert_eq!(first("<a><b>x&amp;y</b><b>z</b></a>", "b").as_deref(), Some("x&y"));
        assert_eq!(first("<a/>", "b"), None);
    }
}
