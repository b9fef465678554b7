//! The providers of one process, and which of them is responsible.
//!
//! A process serves the classes of several clouds. The provider name of a MachineClass chooses the
//! provider of its new instances. For an instance that exists, its recorded id chooses: a class
//! whose provider was edited must not hide the instance.

use std::fmt;
use std::sync::Arc;

use machinist_instance::{
    AccountId, Credential, Error, ErrorKind, Instance, Marks, Place, ProviderId, RecordedId,
};
use serde_json::Value;

use crate::{Driver, Provider};

/// The providers of one process.
#[derive(Clone)]
pub struct Providers {
    all: Arc<[Arc<dyn Provider>]>,
    /// Stands for the provider of a class that none of them serves.
    unserved: Arc<dyn Provider>,
}

impl Providers {
    /// Creates the set. A process without providers serves no class.
    pub fn new(all: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        let all: Arc<[_]> = all.into_iter().collect();
        let names: Vec<&str> = all.iter().map(|provider| provider.name()).collect();
        let unserved = Arc::new(Unserved { expected: names.join(", ") });
        Self { all, unserved }
    }

    /// The provider names, for messages.
    pub fn names(&self) -> String {
        let names: Vec<String> = self.iter().map(|provider| format!("{:?}", provider.name())).collect();
        names.join(", ")
    }

    /// All providers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.all.iter()
    }

    /// The provider, if there is only one.
    pub fn only(&self) -> Option<&Arc<dyn Provider>> {
        only(self.all.iter())
    }

    /// The provider that serves the classes with this provider name; `None` if there is none. A
    /// class without a name belongs to the only provider, if there is only one.
    pub fn serving(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        if name.is_empty() {
            return self.only();
        }
        let exact = self.all.iter().find(|provider| provider.name() == name);
        exact.or_else(|| self.all.iter().find(|provider| provider.serves(name)))
    }

    /// The provider of the instances that a class describes. Without one, the returned provider
    /// refuses all calls, and its errors say which providers there are.
    pub fn of_class(&self, name: Option<&str>) -> &Arc<dyn Provider> {
        let serving = || self.serving(name.unwrap_or_default());
        self.only().or_else(serving).unwrap_or(&self.unserved)
    }

    /// The provider of a Machine: the provider whose form its recorded id has, otherwise the
    /// provider of its class.
    pub fn of(&self, name: Option<&str>, recorded: Option<&str>) -> &Arc<dyn Provider> {
        recorded.and_then(|id| self.of_id(id)).unwrap_or_else(|| self.of_class(name))
    }

    /// The only provider whose ids have the form of this text.
    fn of_id(&self, text: &str) -> Option<&Arc<dyn Provider>> {
        let is_ours = |provider: &&Arc<dyn Provider>| provider.parse_id(text).ours().is_some();
        let is_like_ours =
            |provider: &&Arc<dyn Provider>| matches!(provider.parse_id(text), RecordedId::Malformed { .. });
        if self.all.iter().any(|provider| is_ours(&provider)) {
            only(self.all.iter().filter(is_ours))
        } else {
            only(self.all.iter().filter(is_like_ours))
        }
    }

    /// Whether two texts are ids of the same instance, of any of the providers. `None` if no
    /// provider can read both.
    pub fn same_instance(&self, a: &str, b: &str) -> Option<bool> {
        let answers = self.all.iter().filter_map(|provider| {
            let (a, b) = (provider.parse_id(a), provider.parse_id(b));
            a.ours().zip(b.ours()).map(|(a, b)| provider.same_instance(a, b))
        });
        answers.reduce(|a, b| a || b)
    }

    /// Whether one of the providers can read the text as an id.
    pub fn is_read(&self, text: &str) -> bool {
        self.all.iter().any(|provider| provider.parse_id(text).ours().is_some())
    }
}

fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    all.next().filter(|_| all.next().is_none())
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Providers({})", self.names())
    }
}

impl<P: Provider + 'static> From<Arc<P>> for Providers {
    fn from(only: Arc<P>) -> Self {
        Self::new([only as Arc<dyn Provider>])
    }
}

impl From<Arc<dyn Provider>> for Providers {
    fn from(only: Arc<dyn Provider>) -> Self {
        Self::new([only])
    }
}

/// The provider of the classes that no provider serves. It reads no id and opens no account, so
/// nothing is created or deleted for their Machines.
struct Unserved {
    expected: String,
}

impl Unserved {
    fn error(&self) -> Error {
        let expected = &self.expected;
        Error::new(
            ErrorKind::InvalidSpec,
            format!("provider: this process does not serve it; expected one of {expected}"),
        )
    }
}

impl Provider for Unserved {
    fn name(&self) -> &'static str {
        ""
    }

    fn serves(&self, _: &str) -> bool {
        false
    }

    fn validate(&self, _: &Value) -> Result<(), Error> {
        Err(self.error())
    }

    fn place(&self, _: &Value) -> Result<Place, Error> {
        Err(self.error())
    }

    fn account(&self, _: &Credential, _: &Place) -> AccountId {
        AccountId::of([b"no provider".as_slice()])
    }

    fn parse_id(&self, text: &str) -> RecordedId {
        if text.is_empty() {
            return RecordedId::Unset;
        }
        RecordedId::NotOurs { expected: format!("an id of one of the providers {}", self.expected) }
    }

    fn same_instance(&self, a: &ProviderId, b: &ProviderId) -> bool {
        a == b
    }

    fn marks_of(&self, _: &Instance, _: &Value) -> Marks {
        Marks::NotUsed
    }

    fn open(&self, _: &AccountId, _: &Credential, _: &Place) -> Result<Arc<dyn Driver>, Error> {
        Err(self.error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A provider with this name, whose ids begin with it.
    struct Named(&'static str);

    impl Provider for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn validate(&self, _: &Value) -> Result<(), Error> {
            Ok(())
        }
        fn account(&self, _: &Credential, _: &Place) -> AccountId {
            AccountId::of([self.0.as_bytes()])
        }
        fn parse_id(&self, text: &str) -> RecordedId {
            let expected = || format!("{}:///ID", self.0);
            match text.split_once(":///") {
                Some((scheme, "")) if scheme == self.0 => RecordedId::Malformed { expected: expected() },
                Some((scheme, _)) if scheme == self.0 => RecordedId::any(text),
                _ => RecordedId::NotOurs { expected: expected() },
            }
        }
        fn open(&self, _: &AccountId, _: &Credential, _: &Place) -> Result<Arc<dyn Driver>, Error> {
            Err(Error::unsupported("open"))
        }
    }

    fn two() -> Providers {
        Providers::new([Arc::new(Named("a")) as Arc<dyn Provider>, Arc::new(Named("b"))])
    }

    #[test]
    fn the_class_chooses_and_the_recorded_id_wins() {
        let providers = two();
        let of = |name, id| providers.of(name, id).name().to_owned();
        assert_eq!(of(Some("b"), None), "b");
        assert_eq!(of(Some("B"), None), "b", "as Go's providers compare names");
        assert_eq!(of(Some("b"), Some("a:///1")), "a", "the class was edited");
        assert_eq!(of(Some("b"), Some("a:///")), "a", "an incomplete id shows the cloud, too");
        assert_eq!(of(None, Some("a:///1")), "a", "the class was deleted");
        assert_eq!(of(Some("b"), Some("other:///1")), "b");
        assert_eq!((of(None, None), of(Some("c"), None)), (String::new(), String::new()));
    }

    #[test]
    fn a_single_provider_has_classes_without_a_name() {
        let one = Providers::from(Arc::new(Named("a")));
        assert_eq!(one.of(None, None).name(), "a");
        assert!(one.serving("").is_some() && one.serving("b").is_none());
        assert!(two().serving("").is_none());
    }

    #[test]
    fn without_a_provider_nothing_is_opened_or_read() {
        let providers = two();
        let unserved = providers.of_class(Some("c"));
        let message = unserved.place(&Value::Null).expect_err("refused").message;
        assert_eq!(message, "provider: this process does not serve it; expected one of a, b");
        let account = unserved.account(&Credential::default(), &Place::WHOLE);
        assert!(unserved.open(&account, &Credential::default(), &Place::WHOLE).is_err());
        assert_eq!(unserved.parse_id("a:///1").ours(), None);
    }

    #[test]
    fn ids_of_different_clouds_are_never_the_same() {
        let providers = two();
        assert_eq!(providers.same_instance("a:///1", "a:///1"), Some(true));
        assert_eq!(providers.same_instance("a:///1", "a:///2"), Some(false));
        assert_eq!(providers.same_instance("a:///1", "b:///1"), None);
        assert!(providers.is_read("b:///1") && !providers.is_read("c:///1"));
    }
}
