//! Rust source, split into comments, string literals and code.
//!
//! A scanner and not a parser: rules about words and imports need no syntax tree. It knows nested
//! block comments, raw strings and character literals, because a quote inside one of them would
//! turn code into text.

/// One piece of source text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Code(&'a str),
    /// With its slashes.
    Comment(&'a str),
    /// Without its quotes; escapes are as written.
    Text(&'a str),
}

/// The pieces of a file, each with the number of the line on which it begins.
pub(super) fn pieces(source: &str) -> Vec<(usize, Piece<'_>)> {
    let mut found = Vec::new();
    let (mut code_from, mut at, mut line) = (0, 0, 1);
    while at < source.len() {
        let rest = &source[at..];
        let (length, piece) = match token(rest, source[..at].chars().next_back()) {
            Some(token) => token,
            None => {
                let first = rest.chars().next().map_or(1, char::len_utf8);
                at += first;
                continue;
            }
        };
        let code = &source[code_from..at];
        if !code.is_empty() {
            found.push((line, Piece::Code(code)));
            line += lines_in(code);
        }
        found.push((line, piece));
        line += lines_in(&rest[..length]);
        at += length;
        code_from = at;
    }
    if code_from < source.len() {
        found.push((line, Piece::Code(&source[code_from..])));
    }
    found
}

/// The code alone, with comments and literals taken out.
pub(super) fn code(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for (_, piece) in pieces(source) {
        match piece {
            Piece::Code(text) => code.push_str(text),
            Piece::Comment(_) => code.push(' '),
            Piece::Text(_) => code.push_str("\"\""),
        }
    }
    code
}

/// A comment or literal at the start of `rest`, with its length.
fn token(rest: &str, before: Option<char>) -> Option<(usize, Piece<'_>)> {
    if rest.starts_with("//") {
        let length = rest.find('\n').unwrap_or(rest.len());
        return Some((length, Piece::Comment(&rest[..length])));
    }
    if rest.starts_with("/*") {
        let length = block_comment(rest);
        return Some((length, Piece::Comment(&rest[..length])));
    }
    let in_a_word = before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    if rest.starts_with('r') && (!in_a_word || before == Some('b')) {
        let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
        if rest[1 + hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let from = hashes + 2;
            let length = rest[from..].find(&end).map_or(rest.len(), |found| from + found);
            return Some(((length + end.len()).min(rest.len()), Piece::Text(&rest[from..length])));
        }
    }
    if rest.starts_with('"') {
        let length = quoted(rest, '"')?;
        return Some((length, Piece::Text(&rest[1..length - 1])));
    }
    if let Some(after) = rest.strip_prefix('\'') {
        // A lifetime has no closing quote after one character.
        let mut characters = after.chars();
        let is_literal = match characters.next()? {
            '\\' => true,
            _ => characters.next() == Some('\''),
        };
        let length = is_literal.then(|| quoted(rest, '\''))??;
        return Some((length, Piece::Text(&rest[1..length - 1])));
    }
    None
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Length of a literal up to its closing quote; `None` if the quote is missing.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            end if end == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn lines_in(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[test]
fn quotes_inside_literals_and_comments_do_not_count() {
    let source = "let a = '\"'; // it's \"one\"\nlet b: &'static str = r#\"x \"y\" // z\"#; /* /* \" */ */ c(\"\\\"\")";
    assert_eq!(code(source), "let a = \"\";  \nlet b: &'static str = \"\";   c(\"\")");
    let comment = pieces(source).into_iter().find(|(_, piece)| matches!(piece, Piece::Comment(_)));
    assert_eq!(comment, Some((1, Piece::Comment("// it's \"one\""))));
}
