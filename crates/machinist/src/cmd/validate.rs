//! `machinist validate`: checks MachineClasses and the objects that use them, without a cluster and
//! without a cloud.
//!
//! A controller would report the same mistakes, but only after the objects are in the cluster. The
//! driver of each class checks its providerSpec, up to its first mistake, and its credential if the
//! Secrets of the class are in the files. No request is sent.
//!
//! Deliberately absent: whether an image, a network or a quota exists. Only the cloud knows that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Secret, SecretReference};
use machinist_api::{Machine, MachineClass, MachineDeployment, MachineSet};
use machinist_driver::Provider;
use machinist_instance::Credential;

use crate::args::ValidateArgs;
use crate::clouds::{self, Cloud};
use crate::documents::{self, Written};
use crate::output::{self, Output};

/// The entry with the user data of instances.
const USER_DATA: &str = "userData";
/// The kind that the drivers create instances for.
const CLASS: &str = "MachineClass";

pub(crate) fn run(args: &ValidateArgs, output: &Output) -> anyhow::Result<ExitCode> {
    validate(&args.filename, args.provider, output)
}

fn validate(
    files: &[PathBuf],
    provider: Option<&'static Cloud>,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let mut objects = Vec::new();
    for file in files {
        if let Err(error) = read(&mut objects, file) {
            report.findings.push(Finding { gravity: Gravity::Error, text: output::one_line(&error) });
        }
    }
    if let Err(error) = documents::each_once(&objects) {
        report.findings.push(Finding { gravity: Gravity::Error, text: output::one_line(&error) });
    }
    let others = Others::of(&objects);
    for written in &objects {
        report.object(written, &others, provider);
    }
    for finding in &report.findings {
        output.line(&finding.to_string())?;
    }
    let errors = report.count(Gravity::Error);
    let warnings = report.count(Gravity::Warning);
    output.line(&format!(
        "{} checked: {}, {}",
        count(objects.len(), "object"),
        count(errors, "error"),
        count(warnings, "warning")
    ))?;
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a file, or standard input for `-`.
fn read(objects: &mut Vec<Written>, file: &Path) -> anyhow::Result<()> {
    if file != Path::new("-") {
        return documents::append_file(objects, &file.display().to_string(), file, str::to_owned);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("standard input: cannot be read")?;
    documents::append(objects, "standard input", &text)
}

/// One mistake, or one thing that could not be checked.
struct Finding {
    gravity: Gravity,
    /// The file, the object, the field, and what was expected.
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gravity {
    /// A controller would reject the object.
    Error,
    /// The object works, and possibly not as its author wants.
    Warning,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.gravity {
            Gravity::Error => "error",
            Gravity::Warning => "warning",
        };
        write!(f, "{word}: {}", self.text)
    }
}

/// The objects that others refer to, by namespace and name.
struct Others<'a> {
    classes: BTreeSet<(&'a str, &'a str)>,
    secrets: BTreeMap<(&'a str, &'a str), Secret>,
}

impl<'a> Others<'a> {
    fn of(objects: &'a [Written]) -> Self {
        let place = |written: &'a Written| (written.namespace(), written.object.name.as_str());
        let classes = objects.iter().filter(|written| written.object.decode::<MachineClass>().is_some());
        let classes: BTreeSet<_> = classes.map(place).collect();
        let secrets = objects.iter().filter_map(|written| Some((place(written), written.object.decode()?)));
        Self { secrets: secrets.collect(), classes }
    }
}

#[derive(Default)]
struct Report {
    findings: Vec<Finding>,
}

impl Report {
    fn count(&self, gravity: Gravity) -> usize {
        self.findings.iter().filter(|finding| finding.gravity == gravity).count()
    }

    fn add(&mut self, gravity: Gravity, written: &Written, text: impl fmt::Display) {
        self.findings.push(Finding { gravity, text: format!("{}: {text}", written.title()) });
    }

    fn object(&mut self, written: &Written, others: &Others<'_>, provider: Option<&'static Cloud>) {
        for invalid in written.object.invalid_fields() {
            self.add(Gravity::Error, written, invalid);
        }
        if let Some(class) = written.object.decode::<MachineClass>() {
            self.class(written, &class, others, provider);
        }
        let in_template = "spec.template.spec.class.name";
        if let Some(machine) = written.object.decode::<Machine>() {
            self.reference(written, machine.spec.class.name(), "spec.class.name", others);
        }
        if let Some(set) = written.object.decode::<MachineSet>() {
            self.reference(written, set.spec.template.spec.class.name(), in_template, others);
        }
        if let Some(deployment) = written.object.decode::<MachineDeployment>() {
            self.reference(written, deployment.spec.template.spec.class.name(), in_template, others);
        }
    }

    /// Warns about a class that the files do not have, although they have others.
    fn reference(&mut self, written: &Written, class: &str, field: &str, others: &Others<'_>) {
        let is_there = others.classes.contains(&(written.namespace(), class));
        if !others.classes.is_empty() && !class.is_empty() && !is_there {
            let namespace = written.namespace();
            let text = format!("{field}: no {CLASS} {namespace}/{class} in these files");
            self.add(Gravity::Warning, written, text);
        }
    }

    fn class(
        &mut self,
        written: &Written,
        class: &MachineClass,
        others: &Others<'_>,
        provider: Option<&'static Cloud>,
    ) {
        let cloud = match class.provider.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => clouds::named(name).ok_or_else(|| format!("\"{name}\"")),
            None => provider.ok_or_else(|| "nothing (or give --provider)".to_owned()),
        };
        let cloud = match cloud {
            Ok(cloud) => cloud,
            Err(got) => {
                let names = clouds::names();
                self.add(Gravity::Error, written, format!("provider: expected one of {names}, got {got}"));
                return;
            }
        };
        if let Err(error) = (cloud.check)(&class.provider_spec) {
            self.add(Gravity::Error, written, error.message);
        }
        let Some(driver) = cloud.parser() else { return };
        for field in driver.fields_without_effect(&class.provider_spec) {
            self.add(Gravity::Warning, written, format!("{field}: has no effect"));
        }
        self.credential(written, class, others, &*driver);
    }

    /// Checks the Secrets of a class if the files have them all.
    fn credential(
        &mut self,
        written: &Written,
        class: &MachineClass,
        others: &Others<'_>,
        driver: &dyn Provider,
    ) {
        let references = [&class.secret_ref, &class.credentials_secret_ref];
        let mut data = BTreeMap::new();
        let mut missing = Vec::new();
        for reference in references.into_iter().flatten() {
            match secret(written, reference, others) {
                Ok(entries) => data.extend(entries),
                Err(name) => missing.push(name),
            }
        }
        if !missing.is_empty() {
            let text = format!("Secret {} is not in these files, so it was not checked", missing.join(", "));
            self.add(Gravity::Warning, written, text);
            return;
        }
        let named = class.secret_ref.as_ref().map(|_| "secretRef");
        let named = named.or(class.credentials_secret_ref.as_ref().map(|_| "credentialsSecretRef"));
        if let Some(field) = named.filter(|_| !data.contains_key(USER_DATA)) {
            let text = format!("{field}: expected a Secret with {USER_DATA}, which instances need to join");
            self.add(Gravity::Error, written, text);
        }
        let credential = Credential::new(data);
        let Ok(place) = driver.place(&class.provider_spec) else { return };
        let account = driver.account(&credential, &place);
        if let Err(error) = driver.open(&account, &credential, &place) {
            self.add(Gravity::Error, written, format!("the credential of its Secrets: {}", error.message));
        }
    }
}

/// Returns the entries of a Secret, or its name if the files do not have it.
fn secret(
    written: &Written,
    reference: &SecretReference,
    others: &Others<'_>,
) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let named = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let namespace = named.unwrap_or_else(|| written.namespace());
    let name = reference.name.as_deref().unwrap_or_default();
    let secret = others.secrets.get(&(namespace, name)).ok_or_else(|| format!("{namespace}/{name}"))?;
    let data = secret.data.iter().flatten().map(|(entry, bytes)| (entry.clone(), bytes.0.clone()));
    let texts = secret.string_data.iter().flatten();
    Ok(data.chain(texts.map(|(entry, text)| (entry.clone(), text.clone().into_bytes()))).collect())
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Validates a text, and returns the exit code and the lines.
    fn validated(text: &str) -> (bool, Vec<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("class.yaml");
        std::fs::write(&file, text).expect("written");
        let (output, written) = Output::memory();
        let code = validate(std::slice::from_ref(&file), None, &output).expect("validated");
        let source = format!("{}: ", file.display());
        let lines = written.text().lines().map(|line| line.replace(&source, "")).collect();
        (code == ExitCode::SUCCESS, lines)
    }

    #[test]
    fn the_quick_starts_have_no_mistake() {
        for cloud in clouds::CLOUDS.iter().filter_map(|cloud| cloud.up.as_ref()) {
            let (is_right, lines) = validated(cloud.quick_start);
            assert!(is_right, "{lines:#?}");
        }
    }

    /// The class of a cloud's page in the book is also a file.
    #[test]
    fn the_classes_of_the_book_have_no_mistake() {
        let pages = [
            (
                include_str!("../../../../docs/src/clouds/aws.md"),
                include_str!("../../../../examples/aws.yaml"),
            ),
            (
                include_str!("../../../../docs/src/clouds/openstack.md"),
                include_str!("../../../../examples/openstack.yaml"),
            ),
            (
                include_str!("../../../../docs/src/clouds/local.md"),
                include_str!("../../../../examples/local.yaml"),
            ),
        ];
        for (page, example) in pages {
            let (_, block) = page.split_once("```yaml\n").expect("a page begins with a class");
            let (class, _) = block.split_once("```").expect("the class ends");
            assert!(example.ends_with(class), "the example and the page differ");
            let (is_right, lines) = validated(example);
            assert!(is_right, "{lines:#?}");
        }
    }

    const CLASS: &str = "
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {name: workers}
provider: hcloud
providerSpec: {serverType: cx22, image: debian-12, location: fsn1}
secretRef: {name: workers, namespace: default}
---
apiVersion: v1
kind: Secret
metadata: {name: workers, namespace: default}
stringData: {userData: '#!/bin/sh', token: 'secret-canary'}
";

    #[test]
    fn each_mistake_names_the_object_and_the_field() {
        let (is_right, lines) = validated(CLASS);
        assert!(is_right, "{lines:#?}");
        assert_eq!(lines, ["2 objects checked: 0 errors, 0 warnings"]);

        let wrong = CLASS.replace("provider: hcloud", "provider: moon").replace("token:", "tokne:");
        let (is_right, lines) = validated(&wrong);
        assert!(!is_right);
        assert!(lines[0].starts_with("error: document 1: MachineClass workers: provider: expected one of "));
        assert!(lines[0].ends_with(", got \"moon\""), "{lines:#?}");

        let wrong = CLASS.replace("serverType: cx22", "serverType: []").replace("token:", "tokne:");
        let (_, lines) = validated(&wrong);
        assert!(lines[0].contains("MachineClass workers: providerSpec.serverType"), "{lines:#?}");
        assert!(lines[1].contains("MachineClass workers: the credential of its Secrets: "), "{lines:#?}");
        assert!(lines.iter().all(|line| !line.contains("canary")), "{lines:#?}");

        let (class, _) = CLASS.split_once("---").expect("two documents");
        let (is_right, lines) = validated(class);
        assert!(is_right, "{lines:#?}");
        let missing = "warning: document 1: MachineClass workers: Secret default/workers is not in these files, \
                       so it was not checked";
        assert_eq!(lines, [missing, "1 object checked: 0 errors, 1 warning"]);
    }

    #[test]
    fn a_set_of_a_missing_class_is_a_warning() {
        let set = "
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineSet
metadata: {name: s}
spec:
  replicas: 1
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {class: {kind: MachineClass, name: wrokers}}
";
        let (is_right, lines) = validated(&format!("{CLASS}{set}"));
        let expected = "warning: document 3: MachineSet s: spec.template.spec.class.name: no MachineClass \
                        default/wrokers in these files";
        assert!(is_right && lines[0] == expected, "{lines:#?}");
    }
}
