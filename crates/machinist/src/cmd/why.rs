//! `machinist why`: shows what an object waits for, since when, what happens next, and the
//! deadline.
//!
//! ```text
//! API servers  -> the facts -> the planner of the controllers -> a reason        always
//! a controller -> /why      -> the reason of its last decision                   if it answers
//! ```
//!
//! A controller knows facts that the API does not store: calls in flight, answers of the cloud,
//! refused evictions. So its answer comes first, and the output names the source. If an object
//! waits for another object, the output explains that object too.
//!
//! If an API server does not answer, only the controllers are asked: what was not read is not
//! absent.

mod answer;
mod ask;
mod explain;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use kube::Api;
use kube::config::Kubeconfig;
use machinist_api::Machine;
use machinist_controllers::Clients;
use machinist_core::{CLOUD_SILENT, shared_section};
use machinist_kube::{ClientOptions, Clock as _, KubeconfigSource, SystemClock, connect, no_cluster};

use self::answer::{Answer, LastOperation, Reported};
use self::ask::{Asked, Serves, Trust, ask, ask_what_it_serves};
use self::explain::{Explained, NodesIn, explain, key_of};
use crate::args::{ExplainedKind, Format, InfrastructureKind, ObjectArg, WhyArgs};
use crate::embedded::kubeconfig;
use crate::output::{self, Output};
use crate::version::VERSION;
use crate::wiring;

/// Default URLs of the machine controllers, with their default ports.
const MACHINE_CONTROLLERS: [&str; 2] = ["http://127.0.0.1:10258", "http://127.0.0.1:10259"];

/// Default URL of the cloud controller manager, with its default port.
const CLOUD_CONTROLLER: &str = "https://127.0.0.1:10258";

/// Default URL of a Cluster API provider, with its default port.
const CAPI_PROVIDER: &str = "http://127.0.0.1:9440";

/// Timeout of the check whether an API server answers. A read of the facts takes longer than that
/// only on a server that is overloaded.
const CLUSTER_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Maximum length of a chain of objects that wait for each other: deployment, set, machine, and the
/// machine that it waits for.
const LINKS: usize = 4;

pub(crate) async fn run(args: &WhyArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let asker = Asker::new(args).await?;
    let answer = asker.answer(args.object.clone()).await?;
    match args.output {
        Format::Text => output.text(&answer.render(SystemClock.now()))?,
        Format::Json => output.json(&answer)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds how to install a kind that the API server does not serve. Its answer to a list is then 404.
fn with_advice(error: anyhow::Error, object: &ObjectArg) -> anyhow::Error {
    let is_missing = |cause: &kube::Error| matches!(cause, kube::Error::Api(status) if status.code == 404);
    let is_unserved = error.chain().filter_map(|cause| cause.downcast_ref::<kube::Error>()).any(is_missing);
    let kinds = match object.kind {
        ExplainedKind::Node | ExplainedKind::Service => return error,
        ExplainedKind::Machine
        | ExplainedKind::MachineSet
        | ExplainedKind::MachineDeployment
        | ExplainedKind::MachineClass => "machines",
        ExplainedKind::Infrastructure(
            InfrastructureKind::DockerCluster | InfrastructureKind::DockerMachine,
        ) => "docker",
        ExplainedKind::Infrastructure(
            InfrastructureKind::MailgunCluster | InfrastructureKind::MailgunMachine,
        ) => "mailgun",
    };
    if is_unserved {
        error.context(format!(
            "the API server does not serve this kind; install it: machinist crds --kinds {kinds} | kubectl apply -f -"
        ))
    } else {
        error
    }
}

/// Clients and URLs for answering.
struct Asker {
    namespace: String,
    clients: Clients,
    controllers: Vec<String>,
    trust: Trust,
    /// Where the Nodes are.
    nodes: NodesIn,
    /// The API servers that did not answer, with the error.
    silent: Vec<anyhow::Error>,
}

impl Asker {
    async fn new(args: &WhyArgs) -> anyhow::Result<Self> {
        let control = match &args.kubeconfig {
            Some(file) => file.clone(),
            None => default_kubeconfig()?,
        };
        let trust = Trust::read(args.controller_ca.as_deref(), args.controller_token_file.as_deref())?;
        let controllers = controllers(args, &control);
        trust.check(&controllers)?;
        let (nodes, target) = match &args.target_kubeconfig {
            None => (NodesIn::Unnamed, Some(&control)),
            Some(file) if file.as_os_str() == "none" => (NodesIn::NoCluster, None),
            Some(file) => (NodesIn::Named, Some(file)),
        };
        let options = ClientOptions::new(format!("machinist-why/{VERSION}"));
        let client = async |file: &PathBuf| connect(&KubeconfigSource::File(file.clone()), &options).await;
        let of_target = match target {
            Some(target) => client(target).await?,
            None => no_cluster(),
        };
        let clients = Clients { control: client(&control).await?, target: of_target };
        let check = async |client: &kube::Client, file: &PathBuf| {
            let answer = tokio::time::timeout(CLUSTER_ANSWERS_WITHIN, client.apiserver_version()).await;
            let answer = match answer {
                Ok(answer) => answer.map(|_| ()).map_err(anyhow::Error::new),
                Err(_) => Err(anyhow!("no answer within {} s", CLUSTER_ANSWERS_WITHIN.as_secs())),
            };
            answer.with_context(|| {
                format!("{}: the API server did not answer", wiring::describe_kubeconfig(file))
            })
        };
        let target_check = async {
            match target.filter(|target| **target != control) {
                None => Ok(()),
                Some(target) => check(&clients.target, target).await,
            }
        };
        let (of_control, of_target) = tokio::join!(check(&clients.control, &control), target_check);
        let silent = [of_control, of_target].into_iter().filter_map(Result::err).collect();
        Ok(Self { namespace: args.namespace.clone(), nodes, clients, controllers, trust, silent })
    }

    /// Explains an object and the objects that it waits for.
    async fn answer(&self, object: ObjectArg) -> anyhow::Result<Answer> {
        if let Some(error) = self.silent.first() {
            let silent = self.silent.iter().map(output::one_line).collect();
            return self.ask_controllers_after(&object, silent).await.ok_or_else(|| {
                let key = key_of(&object, &self.namespace);
                anyhow!("{}; no controller answers for {key} either", output::one_line(error))
            });
        }
        let mut links = Vec::new();
        let mut next = Some(object);
        while let Some(object) = next.take().filter(|_| links.len() < LINKS) {
            let known = |link: &Link| link.object == object;
            if links.iter().any(known) {
                break;
            }
            let explain = explain(self.clients.clone(), &self.namespace, &object, self.nodes);
            let explained = match explain.await {
                Ok(explained) => explained,
                // The requested object must exist. An object that it waits for may be deleted
                // meanwhile.
                Err(error) if links.is_empty() => {
                    let silent = vec![output::one_line(&error)];
                    let is_unanswered = explain::is_unanswered(&error);
                    let answer =
                        if is_unanswered { self.ask_controllers_after(&object, silent).await } else { None };
                    return answer.ok_or_else(|| with_advice(error, &object));
                }
                Err(_) => break,
            };
            next.clone_from(&explained.waits_for);
            links.push(Link { object, explained });
        }
        let mut because = None;
        for Link { object, explained } in links.into_iter().rev() {
            because = Some(Box::new(self.combine(&object, explained, because).await));
        }
        because.map(|answer| *answer).context("internal error (please report it): no object was explained")
    }

    /// Returns the answer of a controller alone, because an API server does not answer.
    async fn ask_controllers_after(&self, object: &ObjectArg, silent: Vec<String>) -> Option<Answer> {
        let (reported, asked) = self.ask_controllers(object).await;
        let (url, report) = reported?;
        let key = key_of(object, &self.namespace);
        Some(Answer::of_controller(key, url, report, asked, silent))
    }

    /// Asks the controllers, one after another, until one of them knows the object.
    async fn ask_controllers(&self, object: &ObjectArg) -> (Option<(String, Reported)>, Vec<Asked>) {
        let (key, path) = (key_of(object, &self.namespace), self.path(object));
        let mut asked = Vec::new();
        for url in &self.controllers {
            match ask(url, &path, &self.trust).await {
                // A controller of another namespace may know an object with the same name.
                Ok(Some(report)) if report.object == key => {
                    asked.push(Asked::answered(url));
                    return (Some((url.clone(), report)), asked);
                }
                Ok(_) => asked.push(Asked::knows_nothing(url, ask_what_it_serves(url, &self.trust).await)),
                Err(error) => asked.push(Asked::failed(url, &error)),
            }
        }
        (None, asked)
    }

    /// Combines the answers of the API servers and the controllers.
    async fn combine(
        &self,
        object: &ObjectArg,
        explained: Explained,
        because: Option<Box<Answer>>,
    ) -> Answer {
        let key = key_of(object, &self.namespace);
        let (reported, asked) = self.ask_controllers(object).await;
        let unserved = match object.kind {
            ExplainedKind::Machine
            | ExplainedKind::MachineSet
            | ExplainedKind::MachineDeployment
            | ExplainedKind::MachineClass => unserved(&self.namespace, &asked, explained.at),
            // These controllers serve all namespaces.
            ExplainedKind::Node | ExplainedKind::Service | ExplainedKind::Infrastructure(_) => None,
        };
        // This counts only without the answer of a controller: the controller's engine may be
        // another one.
        let silent = explained.silent_cloud.filter(|_| reported.is_none());
        let mut explained = unserved.unwrap_or(explained.reported);
        if silent.is_some() {
            explained.waits_for = not_known(&explained);
            explained.page = Some(shared_section(CLOUD_SILENT));
        }
        let last_operation = match object.kind {
            ExplainedKind::Machine => self.last_operation(&object.name).await,
            ExplainedKind::MachineSet
            | ExplainedKind::MachineDeployment
            | ExplainedKind::MachineClass
            | ExplainedKind::Node
            | ExplainedKind::Service
            | ExplainedKind::Infrastructure(_) => None,
        };
        let silent = silent.into_iter().collect();
        Answer::new(key, explained, reported, asked, last_operation, because).below(silent)
    }

    /// Returns the path of an object below the URL of a controller.
    fn path(&self, object: &ObjectArg) -> String {
        let (kind, name) = (object.kind.word(), &object.name);
        match object.kind {
            ExplainedKind::Service | ExplainedKind::Infrastructure(_) => {
                format!("/why/{kind}/{}/{name}", self.namespace)
            }
            ExplainedKind::Machine
            | ExplainedKind::MachineSet
            | ExplainedKind::MachineDeployment
            | ExplainedKind::MachineClass
            | ExplainedKind::Node => format!("/why/{kind}/{name}"),
        }
    }

    /// Returns the last operation of a Machine if it failed.
    async fn last_operation(&self, name: &str) -> Option<LastOperation> {
        let machines: Api<Machine> = Api::namespaced(self.clients.control.clone(), &self.namespace);
        // The Machine existed a moment ago. If it is deleted now, the answer has one line less.
        LastOperation::of(&machines.get_opt(name).await.ok()??)
    }
}

/// Returns the reason for an object whose cloud does not answer. What the API server shows may be
/// wrong by now.
fn not_known(explained: &Reported) -> String {
    match explained.reason.as_str() {
        "Settled" => "its present state is not known".to_owned(),
        _ => format!("last known: {}", explained.waits_for),
    }
}

/// Returns the reason for an object in a namespace that no answering controller serves.
fn unserved(namespace: &str, asked: &[Asked], at: Timestamp) -> Option<Reported> {
    let serving: Vec<&Serves> = asked.iter().filter_map(|asked| asked.serves.as_ref()).collect();
    let others = serving.iter().all(|serves| serves.namespace != namespace);
    if serving.is_empty() || !others || asked.iter().any(Asked::is_answered) {
        return None;
    }
    let each = serving.iter().map(|serves| format!("the {} serves {}", serves.component, serves.namespace));
    let each = each.collect::<Vec<_>>().join(", ");
    Some(Reported::unserved(namespace, &each, at))
}

/// One object of a chain, explained from the API servers.
struct Link {
    object: ObjectArg,
    explained: Explained,
}

/// Returns the kubeconfig that kubectl would use. Several files in KUBECONFIG are not merged.
pub(crate) fn default_kubeconfig() -> anyhow::Result<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        // kubectl merges all files. The first existing file has the current context.
        let files: Vec<PathBuf> =
            std::env::split_paths(&list).filter(|file| !file.as_os_str().is_empty()).collect();
        let first = files.iter().find(|file| file.is_file()).or(files.first());
        return first.cloned().context("KUBECONFIG: expected the path of a kubeconfig");
    }
    let file = std::env::home_dir().map(|home| home.join(".kube").join("config"));
    match file.filter(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => bail!(
            "no kubeconfig found. Use --kubeconfig or set KUBECONFIG (`machinist up` prints the path of its kubeconfig)"
        ),
    }
}

/// Returns the URLs of the controllers: from the flag, else from the kubeconfig, else the default
/// ports.
fn controllers(args: &WhyArgs, kubeconfig: &PathBuf) -> Vec<String> {
    if !args.controller.is_empty() {
        return args.controller.clone();
    }
    // The file was read before. If it is deleted now, the default ports are tried.
    let written =
        Kubeconfig::read_from(kubeconfig).map(|file| kubeconfig::controllers(&file)).unwrap_or_default();
    if !written.is_empty() {
        return written;
    }
    match args.object.kind {
        ExplainedKind::Machine
        | ExplainedKind::MachineSet
        | ExplainedKind::MachineDeployment
        | ExplainedKind::MachineClass => MACHINE_CONTROLLERS.map(str::to_owned).to_vec(),
        ExplainedKind::Node | ExplainedKind::Service => vec![CLOUD_CONTROLLER.to_owned()],
        ExplainedKind::Infrastructure(_) => vec![CAPI_PROVIDER.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a controller, what the API server shows is not today's state.
    #[test]
    fn a_silent_engine_comes_first_and_nothing_is_up_to_date() {
        for (reason, waits_for, expected) in [
            ("Settled", "up to date", "its present state is not known"),
            ("Joining", "waiting for Node a", "last known: waiting for Node a"),
        ] {
            let mut reported = Reported::unserved("team", "", Timestamp::UNIX_EPOCH);
            (reported.reason, reported.waits_for) = (reason.to_owned(), waits_for.to_owned());
            reported.waits_for = not_known(&reported);
            let answer = Answer::new("machine team/a".to_owned(), reported, None, Vec::new(), None, None);
            let text = answer.below(vec!["the engine at a does not answer: no".to_owned()]);
            let text = text.render(Timestamp::UNIX_EPOCH);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[0], "the engine at a does not answer: no");
            assert_eq!(lines[1], format!("machine team/a: {expected}"));
        }
    }
}
