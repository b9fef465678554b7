//! `cargo xtask real`: the tests that need real clusters.
//!
//! A *lane* is a check of this crate or a test target of another one. Each lane that needs clusters
//! gets a fresh control plane. Test targets receive the JSON of `cargo xtask control-plane` in the
//! variable [`CLUSTERS_VARIABLE`]. A lane that cannot run here is reported as skipped, with the
//! reason. The command fails if a lane fails or does not exist.

mod aws;
pub(crate) mod capi;
mod deployment;
mod enclosure;
mod ending;
pub(crate) mod engine;
mod gardener;
mod hcloud_clients;
mod join;
mod kill;
mod kubectl;
pub(crate) mod openstack;
mod operator;
mod python;
mod render;
mod takeover;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::control_plane::{
    Audit, CLUSTERS_VARIABLE, ControlPlane, ControllerManagers, Durability, Options, Roles,
};
use crate::envtest::Assets;
use crate::go_programs::{CLUSTERCTL, GoProgram, HELM};
use crate::workspace::{self, Package, ensure_success};
use ending::Ending;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run this lane only (may be given several times)
    #[arg(long = "lane", value_name = "NAME")]
    lanes: Vec<String>,

    /// Run all lanes; without it, those that every change must pass
    #[arg(long, conflicts_with = "lanes")]
    all: bool,

    /// Run the lanes that only `--all` adds
    #[arg(long, conflicts_with_all = ["lanes", "all"])]
    rest: bool,

    /// Run only one half of the chosen lanes. Both halves can run at the same time
    #[arg(long, value_enum, value_name = "HALF", conflicts_with = "lanes")]
    half: Option<Half>,

    /// Print the lanes, and run nothing
    #[arg(long)]
    list: bool,

    /// Arguments for the test targets, such as a part of a test's name
    #[arg(last = true, value_name = "ARGS")]
    test_arguments: Vec<String>,
}

/// The halves share no process and no port, so they can run at the same time. Each of them waits
/// more than it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Half {
    /// Lanes on control planes that this command starts
    Clusters,
    /// Lanes with a Docker engine, and those that need nothing
    Alone,
}

struct Lane {
    name: &'static str,
    about: &'static str,
    when: When,
    roles: Roles,
    /// Whether a controller manager runs. Recorded answers come from an API server without other
    /// clients.
    controller_managers: ControllerManagers,
    /// Time after which a silent Node becomes Unknown.
    node_grace: Duration,
    /// A program that the lane needs in addition to the control plane. Without it, the lane is
    /// skipped.
    needs: Option<GoProgram>,
    form: Form,
}

/// Which runs a lane belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    EachChange,
    /// The lane runs only with `--all`: another lane finds nearly the same.
    All,
}

enum Form {
    Check(fn(&mut ControlPlane) -> Result<()>),
    TestTarget {
        package: &'static str,
        target: &'static str,
        /// Arguments before the arguments of the user.
        arguments: &'static [&'static str],
    },
    /// A test target that needs a Docker engine, and no cluster.
    EngineTarget {
        package: &'static str,
        target: &'static str,
        /// Number of restarts of the engine of each kind that a test plays.
        restarts: u32,
        /// Arguments before the arguments of the user.
        arguments: &'static [&'static str],
    },
    /// A check that needs no cluster, or starts its own.
    Alone(fn() -> Result<Ending>),
}

impl Form {
    fn half(&self) -> Half {
        match self {
            Self::Check(_) | Self::TestTarget { .. } => Half::Clusters,
            Self::EngineTarget { .. } | Self::Alone(_) => Half::Alone,
        }
    }
}

/// Short enough to observe the replacement of a lost Node.
const SHORT_GRACE: Duration = Duration::from_secs(8);
/// The default of Kubernetes, for nodes that renew their Leases every ten seconds, as kubelets do.
const DEFAULT_GRACE: Duration = Duration::from_secs(50);
/// For lanes with nodes that send no heartbeat, or whose API server is suspended.
const LONG_GRACE: Duration = Duration::from_secs(3600);

const LANES: &[Lane] = &[
    Lane {
        name: "join",
        about: "a machine joins with a bootstrap token, and only with one; the scenarios depend on this",
        when: When::EachChange,
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::All,
        node_grace: SHORT_GRACE,
        needs: None,
        form: Form::Check(join::check),
    },
    Lane {
        name: "goldens",
        about: "the recorded answers equal the answers of the real server",
        when: When::EachChange,
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::None,
        node_grace: SHORT_GRACE,
        needs: None,
        form: Form::TestTarget { package: "machinist-conformance", target: "real", arguments: &[] },
    },
    Lane {
        name: "kubectl",
        about: "kubectl prints the same for the embedded server and the real one",
        when: When::EachChange,
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::All,
        node_grace: LONG_GRACE,
        needs: None,
        form: Form::Check(kubectl::check),
    },
    Lane {
        name: "render",
        about: "the manifests and the chart of the cloud controller manager are valid and equal",
        when: When::EachChange,
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::None,
        node_grace: LONG_GRACE,
        needs: Some(HELM),
        form: Form::Check(render::check),
    },
    Lane {
        name: "kcm",
        about: "our controllers and kube-controller-manager reach the same results",
        when: When::EachChange,
        roles: Roles::OneClusterEach,
        controller_managers: ControllerManagers::Target,
        node_grace: SHORT_GRACE,
        needs: None,
        form: Form::TestTarget { package: "machinist-kcm", target: "real", arguments: &[] },
    },
    Lane {
        name: "scenarios",
        about: "create, scale, roll out, replace, drain and delete on two real clusters",
        when: When::EachChange,
        roles: Roles::OneClusterEach,
        controller_managers: ControllerManagers::All,
        node_grace: SHORT_GRACE,
        needs: None,
        form: Form::TestTarget { package: "machinist-sim", target: "real", arguments: &[] },
    },
    Lane {
        name: "ccm",
        about: "the cloud controller manager with exactly its roles, and the stand-in for Hetzner Cloud",
        when: When::EachChange,
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::All,
        node_grace: LONG_GRACE,
        needs: None,
        form: Form::TestTarget { package: "machinist", target: "real", arguments: &[] },
    },
    outage(
        "outage",
        When::All,
        "the API server of the Nodes is away during a drain, joins and deletions; a zone without stock",
        DEFAULT_GRACE,
        &[],
    ),
    outage(
        "outage-long",
        When::All,
        "the same for ten minutes each: refused, hanging and suspended",
        LONG_GRACE,
        &["long"],
    ),
    Lane {
        name: "clusterctl",
        about: "clusterctl installs the Docker provider, and generates every template",
        when: When::EachChange,
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::None,
        node_grace: LONG_GRACE,
        needs: Some(CLUSTERCTL),
        form: Form::Check(capi::check_clusterctl),
    },
    alone(
        "docker",
        When::All,
        "the Docker driver with a real engine, real nodes and a real HAProxy",
        engine_target("machinist-driver-docker", "it", 1, &[]),
    ),
    alone(
        "up-docker",
        When::All,
        "machinist up --cloud docker makes, continues and deletes clusters of containers",
        engine_target("machinist", "up_docker", 1, &[]),
    ),
    alone(
        "up-docker-restarts",
        When::All,
        "the engine of machinist up --cloud docker restarts five times in each way",
        engine_target("machinist", "up_docker", FIVE_TIMES, &["restarts_of_the_engine"]),
    ),
    alone(
        "capi",
        When::EachChange,
        "the Docker provider under the controllers of Cluster API, on real nodes",
        Form::Alone(|| capi::check(capi::Plan::WholeLife)),
    ),
    alone(
        "capi-restarts",
        When::All,
        "the engine under the controllers of Cluster API restarts five times in each way",
        Form::Alone(|| capi::check(capi::Plan::Restarts)),
    ),
    alone(
        "gardener",
        When::All,
        "the integration suite of Gardener's machine-controller-manager, on two real clusters",
        Form::Alone(gardener::check),
    ),
    alone(
        "aws",
        When::EachChange,
        "the driver for AWS with moto, a server of the API of EC2, behind a proxy with faults",
        Form::Alone(aws::check),
    ),
    alone(
        "kill-aws",
        When::All,
        "the controllers are killed 42 times while they create, roll out and delete, on AWS",
        Form::Alone(|| kill::check(kill::Kind::AwsBehindProxy)),
    ),
    alone(
        "kill-hcloud",
        When::All,
        "the same 40 times on the stand-in for Hetzner Cloud",
        Form::Alone(|| kill::check(kill::Kind::Hcloud)),
    ),
    alone(
        "kill-openstack",
        When::All,
        "the same 40 times on a real control plane of OpenStack",
        Form::Alone(|| kill::check(kill::Kind::OpenStack)),
    ),
    alone(
        "openstack",
        When::All,
        "the driver for OpenStack with a real control plane",
        Form::Alone(openstack::check),
    ),
    alone(
        "takeover",
        When::All,
        "Go's machine-controller-manager and our processes take turns, on the stand-in for Hetzner Cloud",
        Form::Alone(|| takeover::check(takeover::Kind::Hcloud)),
    ),
    alone(
        "takeover-aws",
        When::All,
        "the same with moto, a server of the API of EC2",
        Form::Alone(|| takeover::check(takeover::Kind::Aws)),
    ),
    alone(
        "takeover-openstack",
        When::All,
        "the same with a real control plane of OpenStack",
        Form::Alone(|| takeover::check(takeover::Kind::OpenStack)),
    ),
    alone(
        "hcloud-python",
        When::EachChange,
        "the official Python client works with the stand-in for Hetzner Cloud",
        Form::Alone(hcloud_clients::python),
    ),
    alone(
        "hcloud-go",
        When::All,
        "the official Go library works with the stand-in for Hetzner Cloud",
        Form::Alone(hcloud_clients::go),
    ),
    alone(
        "hcloud-cli",
        When::All,
        "the hcloud command works with the stand-in for Hetzner Cloud",
        Form::Alone(hcloud_clients::command),
    ),
];

/// Number of restarts of each kind in the lanes that play them often.
const FIVE_TIMES: u32 = 5;

/// Tests with an engine of their own.
const fn engine_target(
    package: &'static str,
    target: &'static str,
    restarts: u32,
    arguments: &'static [&'static str],
) -> Form {
    Form::EngineTarget { package, target, restarts, arguments }
}

/// A lane that needs no cluster.
const fn alone(name: &'static str, when: When, about: &'static str, form: Form) -> Lane {
    Lane {
        name,
        about,
        when,
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::None,
        node_grace: SHORT_GRACE,
        needs: None,
        form,
    }
}

/// A lane with the controllers as processes on two clusters.
const fn outage(
    name: &'static str,
    when: When,
    about: &'static str,
    node_grace: Duration,
    arguments: &'static [&'static str],
) -> Lane {
    Lane {
        name,
        about,
        when,
        roles: Roles::OneClusterEach,
        controller_managers: ControllerManagers::All,
        node_grace,
        needs: None,
        form: Form::TestTarget { package: "machinist", target: "outage", arguments },
    }
}

enum Verdict {
    Passed(Duration),
    Failed(String),
    Skipped(String),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        for lane in choose(&args.lanes, |_| true)? {
            let when = if lane.when == When::All { " (only with --all)" } else { "" };
            println!("{:<14} {}{when}", lane.name, lane.about);
        }
        return Ok(());
    }
    let mut chosen = choose(&args.lanes, |when| args.all || (when == When::All) == args.rest)?;
    chosen.retain(|lane| args.half.is_none_or(|half| half == lane.form.half()));
    let (alone, with_clusters): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|lane| lane.form.half() == Half::Alone);
    let mut verdicts = match Assets::reason_they_cannot_be_had() {
        _ if with_clusters.is_empty() => Vec::new(),
        Some(reason) => with_clusters.iter().map(|lane| (*lane, Verdict::Skipped(reason.clone()))).collect(),
        None => run_all(&with_clusters, &args.test_arguments)?,
    };
    verdicts.extend(alone.into_iter().map(|lane| (lane, run_alone(lane, &args.test_arguments))));
    summarise(args.half, &verdicts)
}

/// Returns the named lanes. Without a name, those that `is_wanted`.
fn choose(names: &[String], is_wanted: impl Fn(When) -> bool) -> Result<Vec<&'static Lane>> {
    if let Some(unknown) = names.iter().find(|name| LANES.iter().all(|lane| lane.name != name.as_str())) {
        let known: Vec<&str> = LANES.iter().map(|lane| lane.name).collect();
        bail!("unknown lane {unknown:?}; expected one of {}", known.join(", "));
    }
    let is_chosen = |lane: &&Lane| match names {
        [] => is_wanted(lane.when),
        names => names.iter().any(|name| name == lane.name),
    };
    Ok(LANES.iter().filter(is_chosen).collect())
}

fn run_all(lanes: &[&'static Lane], test_arguments: &[String]) -> Result<Vec<(&'static Lane, Verdict)>> {
    let packages = workspace::packages()?;
    let assets = Assets::provide()?;
    let mut verdicts = Vec::new();
    for lane in lanes {
        eprintln!("== {}: {}", lane.name, lane.about);
        let started = Instant::now();
        let verdict = if let Some(missing) = what_is_missing(lane, &packages) {
            Verdict::Failed(missing)
        } else if let Some(reason) = lane.needs.and_then(|program| program.reason_it_cannot_be_had()) {
            Verdict::Skipped(reason)
        } else {
            match run_one(lane, &packages, &assets, test_arguments) {
                Ok(()) => Verdict::Passed(started.elapsed()),
                Err(error) => Verdict::Failed(format!("{error:#}")),
            }
        };
        verdicts.push((*lane, verdict));
    }
    Ok(verdicts)
}

fn run_alone(lane: &Lane, test_arguments: &[String]) -> Verdict {
    eprintln!("== {}: {}", lane.name, lane.about);
    let started = Instant::now();
    let ending = match lane.form {
        Form::Alone(check) => check(),
        Form::EngineTarget { package, target, restarts, arguments } => {
            let arguments = arguments.iter().map(|argument| (*argument).to_owned());
            let arguments: Vec<String> = arguments.chain(test_arguments.iter().cloned()).collect();
            engine::check(package, target, restarts, &arguments)
        }
        Form::Check(_) | Form::TestTarget { .. } => return Verdict::Failed("needs clusters".to_owned()),
    };
    match ending {
        Ok(Ending::Passed) => Verdict::Passed(started.elapsed()),
        Ok(Ending::Skipped(reason)) => Verdict::Skipped(reason),
        Err(error) => Verdict::Failed(format!("{error:#}")),
    }
}

/// Returns why a lane cannot exist. A lane with a renamed target must fail, not be skipped.
fn what_is_missing(lane: &Lane, packages: &[Package]) -> Option<String> {
    let (Form::TestTarget { package, target, .. } | Form::EngineTarget { package, target, .. }) = lane.form
    else {
        return None;
    };
    let Some(found) = packages.iter().find(|candidate| candidate.name == package) else {
        return Some(format!("the workspace has no package {package}"));
    };
    let is_wanted = |candidate: &workspace::Target| {
        candidate.name == target && candidate.kind.iter().any(|kind| kind == "test")
    };
    if !found.targets.iter().any(is_wanted) {
        return Some(format!("{package} has no test target {target:?}"));
    }
    None
}

fn run_one(lane: &Lane, packages: &[Package], assets: &Assets, test_arguments: &[String]) -> Result<()> {
    // Compiled before the clusters run: they would idle for minutes, and slow the compiler down.
    if let Some(program) = lane.needs {
        program.provide()?;
    }
    let compiled = match lane.form {
        Form::Check(_) | Form::Alone(_) | Form::EngineTarget { .. } => None,
        Form::TestTarget { package, target, arguments } => {
            let package = packages.iter().find(|candidate| candidate.name == package);
            let package = package.context("package not found in the workspace")?;
            let mut command = workspace::test_target(package, target)?;
            command.args(arguments);
            Some(command)
        }
    };
    let mut control_plane = ControlPlane::start(
        assets,
        &Options {
            roles: lane.roles,
            controller_managers: lane.controller_managers,
            node_grace: lane.node_grace,
            audit: Audit::Metadata,
            durability: Durability::None,
            ..Options::default()
        },
    )?;
    let checked = run_on(&mut control_plane, lane, compiled, test_arguments);
    checked.map_err(|error| error.context(control_plane.last_words()))?;
    // A lane could pass although a server crashed meanwhile, if it sends too few requests.
    control_plane.ensure_alive()
}

fn run_on(
    control_plane: &mut ControlPlane,
    lane: &Lane,
    compiled: Option<Command>,
    test_arguments: &[String],
) -> Result<()> {
    if let Form::Check(check) = lane.form {
        check(control_plane)?;
    }
    let Some(mut command) = compiled else { return Ok(()) };
    let clusters = serde_json::to_string(&control_plane.describe())?;
    ensure_success(command.env(CLUSTERS_VARIABLE, clusters).args(test_arguments))
}

/// Prints the verdicts. Fails if a lane failed.
fn summarise(half: Option<Half>, verdicts: &[(&Lane, Verdict)]) -> Result<()> {
    for line in lines_of(half, verdicts) {
        println!("{line}");
    }
    let failed = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_)));
    let failed: Vec<&str> = failed.map(|(lane, _)| lane.name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns one line per lane, in a form from which a script can read the skipped ones. If every
/// lane was skipped, a last line says so of the whole command, so that `.ci/run` does not count it
/// as passed.
fn lines_of(half: Option<Half>, verdicts: &[(&Lane, Verdict)]) -> Vec<String> {
    let line = |(lane, verdict): &(&Lane, Verdict)| match verdict {
        Verdict::Passed(took) => format!("PASSED  real lane {} ({took:.0?})", lane.name),
        Verdict::Skipped(reason) => format!("SKIPPED real lane {}: {reason}", lane.name),
        Verdict::Failed(reason) => format!("FAILED  real lane {}: {reason}", lane.name),
    };
    let mut lines: Vec<String> = verdicts.iter().map(line).collect();
    let ran = |(_, verdict): &(&Lane, Verdict)| !matches!(verdict, Verdict::Skipped(_));
    if let (Some((_, Verdict::Skipped(reason))), false) = (verdicts.first(), verdicts.iter().any(ran)) {
        let what = half.map_or("real lane".to_owned(), |half| format!("half {half:?}"));
        lines.push(format!("SKIPPED {what}: {reason}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_lane_is_rejected_with_the_known_ones() {
        let message = choose(&["jion".to_owned()], |_| true).err().expect("no such lane").to_string();
        assert!(message.contains("jion") && message.contains("join, goldens"), "{message}");
    }

    #[test]
    fn only_a_run_without_any_lane_counts_as_skipped() {
        let skipped = |lane| (lane, Verdict::Skipped("no Go".to_owned()));
        let (join, goldens) = (&LANES[0], &LANES[1]);
        let all = lines_of(None, &[skipped(join), skipped(goldens)]);
        let expected = ["real lane join", "real lane goldens", "real lane"];
        assert_eq!(all, expected.map(|name| format!("SKIPPED {name}: no Go")));
        let some = lines_of(None, &[skipped(join), (goldens, Verdict::Passed(Duration::from_secs(3)))]);
        assert_eq!(some, ["SKIPPED real lane join: no Go", "PASSED  real lane goldens (3s)"]);
    }

    #[test]
    fn a_missing_test_target_is_reported_by_name() {
        let lane = Lane {
            name: "x",
            about: "",
            when: When::EachChange,
            roles: Roles::OneClusterEach,
            controller_managers: ControllerManagers::None,
            node_grace: SHORT_GRACE,
            needs: None,
            form: Form::TestTarget { package: "xtask", target: "real", arguments: &[] },
        };
        let packages = workspace::packages().expect("cargo describes this workspace");
        assert_eq!(what_is_missing(&lane, &packages).as_deref(), Some("xtask has no test target \"real\""));
        assert!(LANES.iter().all(|lane| what_is_missing(lane, &packages).is_none()));
    }
}
