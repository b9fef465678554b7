//! The place of a value within a document, for complaints about it.

use std::fmt;

/// Most complaints about the fields of one body.
pub(crate) const MAX_COMPLAINTS: usize = 32;

/// Path of a value below an optional root name. It is formatted only if there is a problem to
/// report.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root(&'a str),
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(name) | Path::Field(Path::Root(""), name) => f.write_str(name),
            Path::Field(above, name) => write!(f, "{above}.{name}"),
            Path::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}
