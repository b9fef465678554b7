//! The few parts of a Jinja template that cloud-config of Cluster API uses. Pure.
//!
//! Only the known variables are replaced. Other braces stay, because files of users may contain
//! templates of other programs.

use std::borrow::Cow;

use super::Machine;

/// The first line of a template.
pub(crate) fn is_template(first_line: &str) -> bool {
    let words: Vec<&str> = first_line.trim_start_matches('#').split_whitespace().collect();
    first_line.starts_with("##") && matches!(words.as_slice(), ["template:", "jinja"] | ["template:jinja"])
}

/// Replaces the known variables, and removes the marks of raw blocks. The second part is the number
/// of other expressions, which stay.
pub(crate) fn render<'t>(text: &'t str, machine: &Machine) -> (Cow<'t, str>, usize) {
    let Some((first, rest)) = text.split_once('\n') else { return (Cow::Borrowed(text), 0) };
    if !is_template(first.trim_end()) {
        return (Cow::Borrowed(text), 0);
    }
    let mut rendered = String::with_capacity(rest.len());
    let mut unknown = 0;
    let mut rest = rest;
    while let Some(at) = rest.find(['{']) {
        let (before, here) = rest.split_at(at);
        rendered.push_str(before);
        rest = if let Some((raw, after)) = raw_block(here) {
            rendered.push_str(raw);
            after
        } else if let Some((expression, after)) = expression(here) {
            match value(expression, machine) {
                Some(value) => rendered.push_str(value),
                None => {
                    unknown += 1;
                    rendered.push_str(&here[..here.len() - after.len()]);
                }
            }
            after
        } else {
            rendered.push('{');
            &here[1..]
        };
    }
    rendered.push_str(rest);
    (Cow::Owned(rendered), unknown)
}

/// The content of `{% raw %}...{% endraw %}`, and the text after it.
fn raw_block(text: &str) -> Option<(&str, &str)> {
    let (tag, after) = tag(text)?;
    if tag != "raw" {
        return None;
    }
    let mut end = 0;
    while let Some(at) = after[end..].find("{%") {
        end += at;
        if let Some(("endraw", rest)) = self::tag(&after[end..]) {
            return Some((&after[..end], rest));
        }
        end += 2;
    }
    None
}

fn tag(text: &str) -> Option<(&str, &str)> {
    let (tag, after) = text.strip_prefix("{%")?.split_once("%}")?;
    Some((tag.trim_matches('-').trim(), after))
}

fn expression(text: &str) -> Option<(&str, &str)> {
    let (expression, after) = text.strip_prefix("{{")?.split_once("}}")?;
    (!expression.contains('\n')).then_some((expression.trim(), after))
}

fn value<'m>(expression: &str, machine: &'m Machine) -> Option<&'m str> {
    match expression {
        "ds.meta_data.local_hostname"
        | "ds.meta_data.hostname"
        | "ds.meta_data.instance_id"
        | "ds.meta_data['local-hostname']"
        | "ds.meta_data['instance-id']"
        | "v1.local_hostname"
        | "v1.instance_id"
        | "local_hostname"
        | "hostname"
        | "instance_id" => Some(&machine.name),
        "v1.cloud_name" | "cloud_name" => Some("docker"),
        "v1.region" | "v1.availability_zone" => Some(""),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::tests::machine;

    fn rendered(body: &str) -> (String, usize) {
        let text = format!("## template: jinja\n{body}");
        let (text, unknown) = render(&text, &machine());
        (text.into_owned(), unknown)
    }

    #[test]
    fn known_variables_are_replaced_and_others_stay() {
        let done = |text: &str, unknown| (text.to_owned(), unknown);
        assert_eq!(rendered("name: {{ ds.meta_data.local_hostname }}!"), done("name: c1-w-1!", 0));
        assert_eq!(rendered("{{v1.instance_id}} {{ .Values.x }} {a}"), done("c1-w-1 {{ .Values.x }} {a}", 1));
        assert_eq!(
            rendered("{% raw %}{{ hostname }}{% endraw %} {{ hostname }}"),
            done("{{ hostname }} c1-w-1", 0)
        );
        assert_eq!(rendered("{% if x %} {{ open"), done("{% if x %} {{ open", 0));
    }

    #[test]
    fn only_a_template_is_rendered() {
        let text = "#cloud-config\nname: {{ hostname }}\n";
        assert_eq!(render(text, &machine()), (Cow::Borrowed(text), 0));
        assert!(is_template("## template: jinja") && is_template("## template:jinja"));
        assert!(!is_template("# template: jinja") && !is_template("#cloud-config"));
    }
}
