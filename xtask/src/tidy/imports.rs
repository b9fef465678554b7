//! Which module imports which: no circle beyond one folder or of more than five files, and the
//! layers of the embedded server.
//!
//! Modules are found by their files. An import is a path that starts with `crate`, `self`, `super`,
//! a submodule or a name of a `use`, in a `use` or in code. If the path leads to a name that a
//! module takes from another module with a `use`, the other module is imported: with
//! `pub use pod::PodFacts` in `facts/mod.rs`, `crate::facts::PodFacts` imports `facts/pod.rs`. For
//! circles beyond a folder and for layers, what a module takes from its own submodules is not
//! counted: a `mod.rs` is the face of its folder. For the size of circles it is. Tests are not
//! counted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::findings::Findings;
use super::rust;
use super::workspace::Workspace;

/// The layers of the embedded server, lowest first. A layer imports itself and what is below it.
const SERVER: &str = "crates/embedded/machinist-apiserver/src/";
const LAYERS: &[&str] = &["values", "log", "storage", "store", "schema", "access", "server"];

type Module = Vec<String>;

/// One name that a module takes from elsewhere with `use`.
struct Use {
    path: String,
    /// The last part of the path, or the name after `as`.
    name: String,
}

type Uses = BTreeMap<Module, Vec<Use>>;

/// The most files that may import each other in a circle. A reader of one of them has to read all.
const LARGEST_CIRCLE: usize = 5;

pub(super) fn circle_sizes(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for source in source_folders(workspace) {
        let graph = Graph::read(workspace, &source, Submodules::Counted)?;
        for circle in graph.circles().into_iter().filter(|circle| LARGEST_CIRCLE < circle.len()) {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            findings.fault(format!(
                "{source}: {} files import each other in a circle, expected at most {LARGEST_CIRCLE}: {}",
                names.len(),
                names.join(", ")
            ));
        }
    }
    Ok(findings)
}

pub(super) fn circles(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for source in source_folders(workspace) {
        let graph = Graph::read(workspace, &source, Submodules::Ignored)?;
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
    let graph = Graph::read(workspace, SERVER, Submodules::Ignored)?;
    let layer_of = |module: &Module| {
        let top = module.first()?;
        LAYERS.iter().position(|layer| layer == top)
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

/// Whether what a module takes from its own submodules is an import.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submodules {
    Counted,
    Ignored,
}

/// The modules of one crate, with what each imports of the same crate.
struct Graph {
    imports: BTreeMap<Module, BTreeSet<Module>>,
}

impl Graph {
    fn read(workspace: &Workspace, source: &str, submodules: Submodules) -> Result<Self> {
        let files: BTreeMap<Module, &str> = workspace
            .files_ending(".rs")
            .filter_map(|file| Some((module_of(file.strip_prefix(source)?), file)))
            .collect();
        let mut codes = BTreeMap::new();
        for (module, file) in &files {
            codes.insert(module.clone(), rust::code(&without_tests(&workspace.text_of(file)?)));
        }
        Ok(Self::of(&codes, submodules))
    }

    /// The graph of modules with this code.
    fn of(codes: &BTreeMap<Module, String>, submodules: Submodules) -> Self {
        let uses: Uses = codes.iter().map(|(module, code)| (module.clone(), uses_in(code))).collect();
        let imported_by = |module: &Module, code: &str| {
            let in_uses = uses[module].iter().map(|used| used.path.clone());
            let modules_in_scope = in_scope(module, &uses);
            let paths: Vec<String> =
                in_uses.chain(paths_in(code)).chain(paths_from(&modules_in_scope, code)).collect();
            let imported = paths.iter().filter_map(|path| resolve(path, module, &uses));
            let counts = |other: &Module| {
                other != module && (submodules == Submodules::Counted || !other.starts_with(module))
            };
            imported.filter(counts).collect()
        };
        let imports = codes.iter().map(|(module, code)| (module.clone(), imported_by(module, code)));
        Graph { imports: imports.collect() }
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

/// Every name that a `use` brings into scope.
fn uses_in(code: &str) -> Vec<Use> {
    let mut uses = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let starts_a_word = code[..at].chars().next_back().is_none_or(|letter| !is_of_word(letter));
        if let (true, Some(length)) = (starts_a_word, code[at..].find(';')) {
            expand(&code[at + "use ".len()..at + length], "", &mut uses);
        }
    }
    uses
}

/// Every path that starts with `crate`, `self` or `super`.
fn paths_in(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = &code[..at];
            let starts_a_word =
                before.chars().next_back().is_none_or(|letter| !is_of_word(letter) && !":$".contains(letter));
            // `$crate::x` in a macro is an import of its callers. `pub(in crate::x)` says who may
            // see an item. It imports nothing.
            if starts_a_word && !before.ends_with("(in ") {
                let path = code[at..]
                    .split(|letter: char| !is_of_word(letter) && letter != ':')
                    .next()
                    .unwrap_or_default();
                // `crate::{` in a `use` leads to what is between its braces.
                if !path.ends_with(':') {
                    paths.push(path.to_owned());
                }
            }
        }
    }
    paths
}

/// The names that stand for modules in the code of a module, each with its path: the submodules,
/// and the names of a `use`.
fn in_scope(module: &Module, uses: &Uses) -> BTreeMap<String, String> {
    let children = uses.keys().filter_map(|other| {
        let [name] = other.strip_prefix(module.as_slice())? else { return None };
        Some((name.clone(), format!("self::{name}")))
    });
    let used = uses[module].iter().map(|used| (used.name.clone(), used.path.clone()));
    children.chain(used).collect()
}

/// Every path that starts with one of these names, such as `node::observe` after `use super::node`.
fn paths_from(names: &BTreeMap<String, String>, code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("::") {
        let first = code[..at].rsplit(|letter: char| !is_of_word(letter)).next().unwrap_or_default();
        let before = &code[..at - first.len()];
        let starts_a_path = !before.ends_with([':', '.', '$']);
        if let (true, Some(path)) = (starts_a_path, names.get(first)) {
            let rest = code[at..].split(|letter: char| !is_of_word(letter) && letter != ':').next();
            paths.push(format!("{path}{}", rest.unwrap_or_default().trim_end_matches(':')));
        }
    }
    paths
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The names of one `use` tree.
fn expand(tree: &str, prefix: &str, into: &mut Vec<Use>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name)));
        if !path.is_empty() {
            let path = format!("{prefix}{}", path.trim());
            // `a::{self}` brings `a` into scope.
            let path = path.strip_suffix("::self").map_or(path.clone(), str::to_owned);
            let name = alias.or_else(|| path.rsplit("::").next()).unwrap_or_default().trim().to_owned();
            into.push(Use { path, name });
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
fn resolve(path: &str, from: &Module, uses: &Uses) -> Option<Module> {
    /// Longer chains of `use` do not occur; a `use` of itself would not end.
    const MAX_CHAIN: usize = 8;
    let (mut path, mut from) = (path.to_owned(), from.clone());
    let mut found = None;
    for _ in 0..MAX_CHAIN {
        let Some((module, name)) = walk(&path, &from, uses) else { break };
        found = Some(module.clone());
        let mut used = uses.get(&module).into_iter().flatten();
        let used = used.find(|used| Some(&used.name) == name.as_ref() && used.path != path);
        let Some(used) = used else { break };
        path.clone_from(&used.path);
        from = module;
    }
    found
}

/// The module whose file a path leads into, and the first part of the path inside that file.
fn walk(path: &str, from: &Module, uses: &Uses) -> Option<(Module, Option<String>)> {
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
    let mut name = None;
    for part in parts {
        module.push(part.to_owned());
        if !uses.contains_key(&module) {
            name = module.pop();
            break;
        }
    }
    let is_relative = ["crate", "super", "self"].iter().any(|start| path.starts_with(start));
    (is_relative || start < module.len()).then_some((module, name))
}

#[cfg(test)]
fn graph_of(files: &[(&str, &str)]) -> Graph {
    Graph::of(
        &files.iter().map(|(file, code)| (module_of(file), (*code).to_owned())).collect(),
        Submodules::Ignored,
    )
}

#[test]
fn a_use_tree_leads_to_each_of_its_modules() {
    let code = "use crate::{a::{self, b::X}, c::Y as Z}; use super::W; fn f() { crate::d::g() }";
    let graph = graph_of(&[("a.rs", ""), ("a/b.rs", ""), ("a/e.rs", code), ("c.rs", ""), ("d.rs", "")]);
    let names: Vec<String> =
        graph.imports[&module_of("a/e.rs")].iter().map(|module| module.join("/")).collect();
    assert_eq!(names, ["a", "a/b", "c", "d"]);
}

#[test]
fn a_circle_through_the_faces_of_two_folders_is_found() {
    let graph = graph_of(&[
        ("lib.rs", "mod facts; mod plan; pub use plan::Outer as Y;"),
        ("facts/mod.rs", "mod set; pub use set::{Facts, Other as Renamed};"),
        ("facts/set.rs", "use crate::Y;"),
        ("plan/mod.rs", "pub(crate) mod set; pub use self::set::Inner as Outer;"),
        ("plan/set.rs", "use crate::facts::Renamed;"),
    ]);
    let circles: Vec<Vec<String>> =
        graph.circles().iter().map(|circle| circle.iter().map(|module| module.join("/")).collect()).collect();
    assert_eq!(circles, [["facts/set", "plan/set"]]);
}

#[test]
fn a_path_that_begins_with_a_module_in_scope_is_an_import() {
    let graph = Graph::of(
        &[
            ("a.rs", "mod b; fn f() { b::g(); x::b::g(); }"),
            ("a/b.rs", "use crate::c; fn g() { c::h(|| super::f()) }"),
            ("c.rs", "mod d; fn h() {}"),
            ("c/d.rs", ""),
        ]
        .iter()
        .map(|(file, code)| (module_of(file), (*code).to_owned()))
        .collect(),
        Submodules::Counted,
    );
    let imports = |file: &str| -> Vec<String> {
        graph.imports[&module_of(file)].iter().map(|module| module.join("/")).collect()
    };
    assert_eq!(imports("a.rs"), ["a/b"]);
    assert_eq!(imports("a/b.rs"), ["a", "c"]);
    assert!(imports("c.rs").is_empty());
}
