//! Which module imports which: no circle beyond one folder, and the layers of the embedded server.
//!
//! Modules are found by their files. An import is a path that starts with `crate`, `self` or
//! `super`, in a `use` or in code. What a module takes from its own submodules is not counted: a
//! `mod.rs` is the face of its folder. Tests are not counted either.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::rust;
use super::{Findings, Workspace};

/// The layers of the embedded server, lowest first. A layer imports itself and what is below it.
const SERVER: &str = "crates/embedded/machinist-apiserver/src/";
const LAYERS: &[&[&str]] = &[&["values"], &["storage", "store"], &["schema"], &["access"], &["server"]];

type Module = Vec<String>;

pub(super) fn circles(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for source in source_folders(workspace) {
        let graph = Graph::read(workspace, &source)?;
        for circle in graph.circles() {
            let folders: BTreeSet<&[String]> =
                circle.iter().map(|module| &module[..module.len().saturating_sub(1)]).collect();
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            let text =
                format!("{source} has an import circle of {} files: {}", names.len(), names.join(", "));
            if 1 < folders.len() {
                findings.fault(text);
            }
        }
    }
    Ok(findings)
}

pub(super) fn layers(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    let graph = Graph::read(workspace, SERVER)?;
    let layer_of = |module: &Module| {
        let top = module.first()?;
        LAYERS.iter().position(|layer| layer.contains(&top.as_str()))
    };
    for (module, imported) in &graph.imports {
        let Some(own) = layer_of(module) else {
            if !module.is_empty() {
                findings.fault(format!("{SERVER}{}: this module is in no layer", module.join("/")));
            }
            continue;
        };
        for other in imported {
            if layer_of(other).is_some_and(|layer| own < layer) {
                let (from, to) = (module.join("::"), other.join("::"));
                findings.fault(format!("{SERVER}: {from} imports {to}, which is in a layer above it"));
            }
        }
    }
    Ok(findings)
}

/// The `src` folder of every crate.
fn source_folders(workspace: &Workspace) -> Vec<String> {
    let roots = workspace.files_ending(".rs").filter_map(|file| {
        let folder = file.strip_suffix("lib.rs").or_else(|| file.strip_suffix("main.rs"))?;
        folder.ends_with("src/").then(|| folder.to_owned())
    });
    roots.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The modules of one crate, with what each imports of the same crate.
struct Graph {
    imports: BTreeMap<Module, BTreeSet<Module>>,
}

impl Graph {
    fn read(workspace: &Workspace, source: &str) -> Result<Self> {
        let files: BTreeMap<Module, &str> = workspace
            .files_ending(".rs")
            .filter_map(|file| Some((module_of(file.strip_prefix(source)?), file)))
            .collect();
        let mut imports = BTreeMap::new();
        for (module, file) in &files {
            let text = rust::code(&without_tests(&workspace.text_of(file)?));
            let paths = paths_in(&text);
            let imported = paths.iter().filter_map(|path| resolve(path, module, &files));
            let imported = imported.filter(|other| other != module && !other.starts_with(module));
            imports.insert(module.clone(), imported.collect());
        }
        Ok(Graph { imports })
    }

    /// The strongly connected components of more than one module.
    fn circles(&self) -> Vec<Vec<&Module>> {
        let reachable = |from: &Module| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = open.pop() {
                for next in self.imports.get(&module).into_iter().flatten() {
                    if seen.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            seen
        };
        let reach: BTreeMap<&Module, BTreeSet<Module>> =
            self.imports.keys().map(|module| (module, reachable(module))).collect();
        let mut circles: Vec<Vec<&Module>> = Vec::new();
        for (module, seen) in &reach {
            if seen.contains(*module) && !circles.iter().any(|circle| circle.contains(module)) {
                let back = |other: &&Module| seen.contains(*other) && reach[*other].contains(*module);
                circles.push(self.imports.keys().filter(back).collect());
            }
        }
        circles
    }
}

/// `schema/kinds/mod.rs` to `[schema, kinds]`.
fn module_of(file: &str) -> Module {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if ["lib", "main", "mod"].contains(&path) {
        return Module::new();
    }
    path.split('/').map(str::to_owned).collect()
}

/// Unit tests at the end of a file may import from everywhere.
fn without_tests(source: &str) -> String {
    let tests = source
        .match_indices("#[cfg(test)]")
        .find(|(at, mark)| source[at + mark.len()..].trim_start().starts_with("mod tests"));
    tests.map_or(source, |(at, _)| &source[..at]).to_owned()
}

/// Every path that starts with `crate`, `self` or `super`, and every first part of a `use`.
fn paths_in(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let starts_a_word = code[..at].chars().next_back().is_none_or(|it| !is_of_word(it));
        if let (true, Some(length)) = (starts_a_word, code[at..].find(';')) {
            expand(&code[at + "use ".len()..at + length], "", &mut paths);
        }
    }
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let starts_a_word = code[..at].chars().next_back().is_none_or(|it| !is_of_word(it) && it != ':');
            if starts_a_word {
                let path =
                    code[at..].split(|it: char| !is_of_word(it) && it != ':').next().unwrap_or_default();
                // `crate::{` in a `use` leads to what is between its braces.
                if !path.ends_with(':') {
                    paths.push(path.to_owned());
                }
            }
        }
    }
    paths
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The paths of one `use` tree.
fn expand(tree: &str, prefix: &str, into: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        if !path.is_empty() {
            into.push(format!("{prefix}{path}"));
        }
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut from) = (0, 0);
    for (at, character) in inner.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&inner[from..at], &prefix, into);
                from = at + 1;
            }
            _ => {}
        }
    }
    expand(&inner[from..], &prefix, into);
}

/// The module of this crate that a path leads into.
fn resolve(path: &str, from: &Module, files: &BTreeMap<Module, &str>) -> Option<Module> {
    let mut parts = path.split("::").map(str::trim).peekable();
    let mut module = match *parts.peek()? {
        "crate" => {
            parts.next();
            Module::new()
        }
        "self" | "super" => {
            let mut module = from.clone();
            while let Some(part) = parts.next_if(|part| ["self", "super"].contains(part)) {
                if part == "super" {
                    module.pop();
                }
            }
            module
        }
        _ => from.clone(),
    };
    let start = module.len();
    for part in parts {
        module.push(part.to_owned());
        if !files.contains_key(&module) {
            module.pop();
            break;
        }
    }
    let is_relative = path.starts_with("crate") || path.starts_with("super") || path.starts_with("self");
    (is_relative || start < module.len()).then_some(module)
}

#[test]
fn a_use_tree_leads_to_each_of_its_modules() {
    let files: BTreeMap<Module, &str> =
        ["a", "a/b", "c"].into_iter().map(|file| (module_of(&format!("{file}.rs")), file)).collect();
    let from = module_of("a/b.rs");
    let code = "use crate::{a::{self, b::X}, c::Y as Z}; use super::W; fn f() { crate::c::g() }";
    let found: BTreeSet<Module> =
        paths_in(code).iter().filter_map(|path| resolve(path, &from, &files)).collect();
    let names: Vec<String> = found.iter().map(|module| module.join("/")).collect();
    assert_eq!(names, ["a", "a/b", "c"]);
}
