//! The fields by which lists filter and sort.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// User-defined labels.
pub type LabelMap = BTreeMap<String, String>;

/// The fields by which lists filter and sort.
pub(crate) trait Listed {
    fn id(&self) -> i64;
    fn name(&self) -> &str;
    fn created(&self) -> Timestamp;
    fn labels(&self) -> Option<&LabelMap> {
        None
    }
    fn status(&self) -> Option<&'static str> {
        None
    }
}

macro_rules! listed {
    ($type:ty) => {
        impl $crate::model::listed::Listed for $type {
            fn id(&self) -> i64 {
                self.id
            }
            fn name(&self) -> &str {
                &self.name
            }
            fn created(&self) -> jiff::Timestamp {
                self.created
            }
            fn labels(&self) -> Option<&$crate::model::listed::LabelMap> {
                Some(&self.labels)
            }
        }
    };
}
pub(crate) use listed;
