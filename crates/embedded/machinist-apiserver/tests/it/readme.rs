//! The README shows the example of the front page, which runs as a doctest.

/// Maximum number of lines of the example.
const LINES: usize = 10;

#[test]
fn the_readme_shows_the_example_of_the_front_page() {
    let front_page = include_str!("../../src/lib.rs");
    let shown: Vec<&str> = front_page
        .lines()
        .skip_while(|line| *line != "//! ```")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .filter(|line| !line.starts_with("//! # "))
        .map(|line| line.strip_prefix("//! ").unwrap_or_default())
        .collect();
    assert!(!shown.is_empty() && shown.len() <= LINES, "the example has {} lines", shown.len());
    let readme: Vec<&str> = include_str!("../../README.md")
        .lines()
        .skip_while(|line| *line != "```rust")
        .skip(1)
        .take_while(|line| *line != "```")
        .collect();
    assert_eq!(readme, shown);
}
