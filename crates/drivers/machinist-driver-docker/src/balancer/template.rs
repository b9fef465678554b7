//! The part of Go's template language that templates of HAProxy configurations use. Pure.
//!
//! Supported: fields (`.FrontendControlPlanePort`, `.BackendControlPlanePort`, `.IPv6`), loops over
//! the servers (`range $name, $server := .BackendServers`) with `$name`, `$server.Address` and
//! `$server.Weight`, `if`, `else`, `not`, `eq`, `JoinHostPort`, comments, and the trim marks `{{-`
//! and `-}}`. Everything else is an error with the line, and not ignored.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::config::{ProxyConfig, Server};

/// More blocks inside of each other are a mistake.
const DEEPEST: usize = 32;

/// Renders a template.
///
/// # Errors
/// A text with the line and the part that is not supported.
pub(super) fn render(template: &str, config: &ProxyConfig) -> Result<String, String> {
    let mut pieces = split(template)?.into_iter().peekable();
    let nodes = parse(&mut pieces, 0)?;
    if let Some(piece) = pieces.next() {
        return Err(format!("line {}: expected no {{{{ {} }}}} here", piece.line, piece.text));
    }
    let mut text = String::new();
    let mut variables = Vec::new();
    write(&nodes, config, &mut variables, &mut text)?;
    Ok(text)
}

/// Joins an address and a port. An IPv6 address gets brackets.
pub(super) fn join_host_port(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A text, or an action between braces.
struct Piece {
    is_action: bool,
    text: String,
    line: usize,
}

enum Node {
    Text(String),
    Value(Expression),
    If(Expression, Vec<Node>, Vec<Node>),
    /// The variables for the name and the server, and the body.
    Range(String, String, Vec<Node>),
}

/// A call: words, and the line for messages.
struct Expression {
    words: Vec<String>,
    line: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Flag(bool),
    Server(Server),
}

fn split(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut rest, mut line, mut trims_next) = (template, 1, false);
    loop {
        let (before, after) = match rest.find("{{") {
            Some(at) => (&rest[..at], Some(&rest[at + 2..])),
            None => (rest, None),
        };
        let trims_before = after.is_some_and(|after| after.starts_with("- "));
        let mut text = if trims_next { before.trim_start() } else { before };
        if trims_before {
            text = text.trim_end();
        }
        if !text.is_empty() {
            pieces.push(Piece { is_action: false, text: text.to_owned(), line });
        }
        line += before.matches('\n').count();
        let Some(after) = after else { return Ok(pieces) };
        let (action, next) =
            after.split_once("}}").ok_or_else(|| format!("line {line}: expected }}}} after {{{{"))?;
        trims_next = action.ends_with(" -");
        let inner = action.strip_prefix("- ").unwrap_or(action);
        let inner = inner.strip_suffix(" -").unwrap_or(inner).trim();
        let is_comment = inner.starts_with("/*") && inner.ends_with("*/");
        if !is_comment {
            pieces.push(Piece { is_action: true, text: inner.to_owned(), line });
        }
        line += action.matches('\n').count();
        rest = next;
    }
}

fn parse(pieces: &mut Peekable<IntoIter<Piece>>, depth: usize) -> Result<Vec<Node>, String> {
    let mut nodes = Vec::new();
    while let Some(piece) = pieces.peek() {
        if !piece.is_action {
            nodes.push(Node::Text(piece.text.clone()));
            pieces.next();
            continue;
        }
        let line = piece.line;
        let words = words(&piece.text, line)?;
        if DEEPEST <= depth {
            return Err(format!("line {line}: expected at most {DEEPEST} blocks inside of each other"));
        }
        match words.first().map(String::as_str) {
            Some("end" | "else") => return Ok(nodes),
            Some("if") => {
                pieces.next();
                nodes.push(conditional(pieces, Expression { words: words[1..].to_vec(), line }, depth)?);
            }
            Some("range") => {
                pieces.next();
                let [_, name, comma, server, assign, list] = words.as_slice() else {
                    return Err(range_form(line));
                };
                let is_form =
                    name.starts_with('$') && server.starts_with('$') && comma == "," && assign == ":=";
                if !is_form || list != ".BackendServers" {
                    return Err(range_form(line));
                }
                let body = parse(pieces, depth + 1)?;
                end(pieces, line)?;
                nodes.push(Node::Range(name.clone(), server.clone(), body));
            }
            Some(_) => {
                pieces.next();
                nodes.push(Node::Value(Expression { words, line }));
            }
            None => return Err(format!("line {line}: expected an action between {{{{ and }}}}")),
        }
    }
    Ok(nodes)
}

fn conditional(
    pieces: &mut Peekable<IntoIter<Piece>>,
    condition: Expression,
    depth: usize,
) -> Result<Node, String> {
    let line = condition.line;
    let then = parse(pieces, depth + 1)?;
    let otherwise = match pieces.peek().map(|piece| words(&piece.text, piece.line)).transpose()? {
        Some(words) if words.first().is_some_and(|word| word == "else") => {
            let at = pieces.next().map_or(line, |piece| piece.line);
            match words.get(1).map(String::as_str) {
                None => {
                    let otherwise = parse(pieces, depth + 1)?;
                    end(pieces, line)?;
                    otherwise
                }
                // One `end` closes the whole chain.
                Some("if") => {
                    let condition = Expression { words: words[2..].to_vec(), line: at };
                    vec![conditional(pieces, condition, depth + 1)?]
                }
                Some(other) => return Err(format!("line {at}: expected else or else if, got else {other}")),
            }
        }
        _ => {
            end(pieces, line)?;
            Vec::new()
        }
    };
    Ok(Node::If(condition, then, otherwise))
}

fn range_form(line: usize) -> String {
    format!("line {line}: expected range $name, $server := .BackendServers")
}

fn end(pieces: &mut Peekable<IntoIter<Piece>>, line: usize) -> Result<(), String> {
    match pieces.next() {
        Some(piece) if piece.is_action && piece.text == "end" => Ok(()),
        _ => Err(format!("line {line}: expected {{{{ end }}}} for this block")),
    }
}

/// Splits an action into words. A quoted text is one word with its quotes.
fn words(action: &str, line: usize) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = action.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => rest[1..].find('"').map(|at| at + 2).ok_or_else(|| format!("line {line}: expected \""))?,
            ',' | '(' | ')' => 1,
            _ => rest.find([' ', '\t', '\n', ',', '(', ')']).unwrap_or(rest.len()),
        };
        words.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Ok(words)
}

type Variables = Vec<(String, Value)>;

fn write(
    nodes: &[Node],
    config: &ProxyConfig,
    variables: &mut Variables,
    text: &mut String,
) -> Result<(), String> {
    for node in nodes {
        match node {
            Node::Text(piece) => text.push_str(piece),
            Node::Value(expression) => match expression.value(config, variables)? {
                Value::Text(value) => text.push_str(&value),
                Value::Flag(flag) => text.push_str(if flag { "true" } else { "false" }),
                Value::Server(_) => {
                    let line = expression.line;
                    return Err(format!("line {line}: expected a field of the server, for example .Address"));
                }
            },
            Node::If(condition, then, otherwise) => {
                let branch = if condition.value(config, variables)?.is_true() { then } else { otherwise };
                write(branch, config, variables, text)?;
            }
            Node::Range(name, server, body) => {
                for each in &config.servers {
                    let outer = variables.len();
                    variables.push((name.clone(), Value::Text(each.name.clone())));
                    variables.push((server.clone(), Value::Server(each.clone())));
                    // Inside a loop, the dot is the server.
                    variables.push((".".to_owned(), Value::Server(each.clone())));
                    write(body, config, variables, text)?;
                    variables.truncate(outer);
                }
            }
        }
    }
    Ok(())
}

impl Value {
    /// Go's truth: not empty, not zero.
    fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty() && text != "0",
            Self::Flag(flag) => *flag,
            Self::Server(_) => true,
        }
    }
}

impl Expression {
    fn value(&self, config: &ProxyConfig, variables: &Variables) -> Result<Value, String> {
        let mut words: &[String] = &self.words;
        let value = self.call(&mut words, config, variables)?;
        match words.first() {
            None => Ok(value),
            Some(extra) => Err(format!("line {}: expected no {extra} here", self.line)),
        }
    }

    /// Evaluates a function with its arguments, or one operand.
    fn call(
        &self,
        words: &mut &[String],
        config: &ProxyConfig,
        variables: &Variables,
    ) -> Result<Value, String> {
        let Some(first) = words.first() else {
            return Err(format!("line {}: expected a value", self.line));
        };
        let mut arguments = |count: usize| {
            *words = &words[1..];
            (0..count).map(|_| self.operand(words, config, variables)).collect::<Result<Vec<Value>, String>>()
        };
        match first.as_str() {
            "JoinHostPort" => match arguments(2)?.as_slice() {
                [Value::Text(host), Value::Text(port)] => Ok(Value::Text(join_host_port(host, port))),
                _ => Err(format!("line {}: expected JoinHostPort HOST PORT with two texts", self.line)),
            },
            "not" => Ok(Value::Flag(!arguments(1)?.iter().all(Value::is_true))),
            "eq" => Ok(Value::Flag(arguments(2)?.windows(2).all(|pair| pair[0] == pair[1]))),
            _ => self.operand(words, config, variables),
        }
    }

    fn operand(
        &self,
        words: &mut &[String],
        config: &ProxyConfig,
        variables: &Variables,
    ) -> Result<Value, String> {
        let line = self.line;
        let (first, rest) = words.split_first().ok_or_else(|| format!("line {line}: expected a value"))?;
        *words = rest;
        if first == "(" {
            let value = self.call(words, config, variables)?;
            return match words.split_first() {
                Some((close, rest)) if close == ")" => {
                    *words = rest;
                    Ok(value)
                }
                _ => Err(format!("line {line}: expected )")),
            };
        }
        if let Some(text) = first.strip_prefix('"') {
            return Ok(Value::Text(text.trim_end_matches('"').to_owned()));
        }
        if first.starts_with(|letter: char| letter.is_ascii_digit()) {
            return Ok(Value::Text(first.clone()));
        }
        self.lookup(first, config, variables).ok_or_else(|| {
            format!(
                "line {line}: {first} is not supported; expected .FrontendControlPlanePort, \
                 .BackendControlPlanePort, .BackendServers in a range, .IPv6, JoinHostPort, or a variable of a range"
            )
        })
    }

    fn lookup(&self, word: &str, config: &ProxyConfig, variables: &Variables) -> Option<Value> {
        let (variable, fields) = match word.split_once('.') {
            Some((variable, fields)) => (variable, fields),
            None => (word, ""),
        };
        // `$` is always the outermost dot.
        if matches!(variable, "" | "$") {
            let (frontend, backend) = config.control_plane_ports();
            match fields {
                "FrontendControlPlanePort" => return Some(Value::Text(frontend.to_string())),
                "BackendControlPlanePort" => return Some(Value::Text(backend.to_string())),
                "IPv6" => return Some(Value::Flag(config.ip_family.has_ipv6())),
                _ => {}
            }
        }
        let variable = if variable.is_empty() { "." } else { variable };
        let (_, value) = variables.iter().rfind(|(name, _)| name == variable)?;
        match (value, fields) {
            (value, "") => Some(value.clone()),
            (Value::Server(server), "Address") => Some(Value::Text(server.address.to_string())),
            (Value::Server(server), "Weight") => Some(Value::Text(server.weight.to_string())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::config::tests::config;
    use crate::spec::IpFamily;

    fn rendered(template: &str) -> Result<String, String> {
        render(template, &config(IpFamily::Ipv4, &[("a", "10.0.0.1", 100), ("b", "fc00::2", 0)]))
    }

    #[test]
    fn fields_and_loops_are_rendered() {
        let template = "bind *:{{ .FrontendControlPlanePort }}\n{{range $server, $backend := .BackendServers}}\
                        server {{ $server }} {{ JoinHostPort $backend.Address $.BackendControlPlanePort }} weight \
                        {{ $backend.Weight }}\n{{- end}}\n";
        assert_eq!(
            rendered(template).as_deref(),
            Ok("bind *:443\nserver a 10.0.0.1:6443 weight 100server b [fc00::2]:6443 weight 0\n")
        );
    }

    #[test]
    fn conditions_follow_the_rules_of_go() {
        let cases = [
            ("{{ if .IPv6 }}six{{ else }}four{{ end }}", "four"),
            ("{{ if not .IPv6 -}} four {{- end }}!", "four!"),
            (
                "{{ if .IPv6 }}6{{ else if eq .FrontendControlPlanePort \"443\" }}https{{ else }}x{{ end }}",
                "https",
            ),
            ("{{ range $n, $s := .BackendServers }}{{ if $s.Weight }}{{ $n }}{{ end }}{{ end }}", "a"),
            ("{{ range $n, $s := .BackendServers }}{{ .Address }},{{ end }}", "10.0.0.1,fc00::2,"),
            ("{{ JoinHostPort (JoinHostPort \"a\" \"b\") \"c\" }}", "[a:b]:c"),
            ("a{{/* a comment */}}b", "ab"),
        ];
        for (template, expected) in cases {
            assert_eq!(rendered(template).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn unsupported_parts_are_errors_with_their_line() {
        let cases = [
            ("a\n{{ .Missing }}", "line 2: .Missing is not supported"),
            ("{{ printf \"%s\" . }}", "line 1: printf is not supported"),
            ("{{ if .IPv6 }}", "line 1: expected {{ end }}"),
            ("a {{ end }}", "line 1: expected no {{ end }} here"),
            ("\n\n{{ range .BackendServers }}{{ end }}", "line 3: expected range $name"),
            ("{{ .IPv6", "line 1: expected }} after {{"),
            ("{{ JoinHostPort \"a\" }}", "line 1: expected a value"),
            ("{{ .IPv6 .IPv6 }}", "line 1: expected no .IPv6 here"),
            ("{{ }}", "line 1: expected an action"),
        ];
        for (template, expected) in cases {
            let error = rendered(template).expect_err(template);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
