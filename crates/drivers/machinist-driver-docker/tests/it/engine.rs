//! The engine under test, its images, and the calls that another program would make.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use machinist_driver::{Driver, Provider as _};
use machinist_driver_docker::{DockerOptions, DockerProvider, Privileges};
use machinist_instance::{
    Credential, Instance, InstanceKey, InstanceRef, InstanceSpec, NodeName, Place, UserData,
};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::OnceCell;

/// The variable that names the engine.
const VARIABLE: &str = "MACHINIST_DOCKER_HOST";
/// The variable that names an image with a real HAProxy, which the engine has.
const BALANCER_VARIABLE: &str = "MACHINIST_DOCKER_BALANCER_IMAGE";

pub(crate) const NODE_IMAGE: &str = "machinist.test/node:1";
const BALANCER_IMAGE: &str = "machinist.test/haproxy:1";
pub(crate) const NETWORK: &str = "machinist-test";

/// Longest wait for a condition in a container.
const PATIENCE: Duration = Duration::from_secs(60);
/// A real engine has no event for every condition, so tests ask again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// A real engine.
pub(crate) struct Engine {
    pub(crate) host: String,
    pub(crate) provider: DockerProvider,
    /// Part of all names and keys of this test.
    pub(crate) run: String,
}

impl Engine {
    /// Opens the engine for a test. Without one, the test is skipped.
    pub(crate) async fn open(test: &str) -> Option<Self> {
        let Ok(host) = std::env::var(VARIABLE) else {
            println!("SKIPPED {test}: {VARIABLE} does not name an engine");
            return None;
        };
        static IMAGES: OnceCell<()> = OnceCell::const_new();
        IMAGES.get_or_init(|| import_images(&host)).await;
        let provider = DockerProvider::new(DockerOptions {
            engine: host.parse().expect("the variable has an address"),
            network: NETWORK.to_owned(),
            subnet: Some("10.213.0.0/16".to_owned()),
            privileges: Privileges::Capabilities,
            balancer_image: balancer_image(),
            pulls_images: false,
            ..DockerOptions::default()
        });
        let engine = Self { host, provider, run: format!("{test}-{}", std::process::id()) };
        engine.sweep().await;
        Some(engine)
    }

    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        let credential = Credential::default();
        self.provider
            .open(&self.provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
            .expect("a socket needs no credential")
    }

    /// A spec with the smallest image.
    pub(crate) fn spec(&self, name: &str) -> InstanceSpec {
        InstanceSpec {
            key: InstanceKey::new(format!("{}-{name}", self.run)),
            name: NodeName::new(format!("{}-{name}", self.run)).expect("not empty"),
            cluster: self.run.clone(),
            provider_spec: json!({"image": NODE_IMAGE, "privileges": "none"}),
            user_data: UserData::default(),
            tags: BTreeMap::new(),
            annotations: BTreeMap::new(),
            adopt_made_since: None,
            last_known_state: None,
        }
    }

    pub(crate) async fn ensure(&self, spec: &InstanceSpec) -> Instance {
        self.driver().instances().ensure(spec).await.expect("created")
    }

    /// Runs the program `docker` and returns its output.
    pub(crate) async fn docker(&self, arguments: &[&str]) -> String {
        let output = docker(&self.host, arguments).output().await.expect("the program docker");
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs a shell script in a container and returns its output, even if the script fails.
    pub(crate) async fn sh(&self, container: &str, script: &str) -> String {
        let output = docker(&self.host, &["exec", container, "sh", "-c", script]).output().await;
        String::from_utf8_lossy(&output.expect("the program docker").stdout).trim().to_owned()
    }

    pub(crate) async fn inspect(&self, container: &str) -> Value {
        let text = self.docker(&["inspect", container]).await;
        let all: Value = serde_json::from_str(&text).expect("JSON");
        all[0].clone()
    }

    /// Repeats a look until it returns a value.
    pub(crate) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let looking = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, looking).await;
        found.unwrap_or_else(|_| panic!("not within {} s: {what}", PATIENCE.as_secs()))
    }

    /// Removes all containers of this test.
    pub(crate) async fn sweep(&self) {
        let filter = format!("name={}", self.run);
        let ids = self.docker(&["ps", "-aq", "--filter", &filter]).await;
        for id in ids.lines() {
            self.docker(&["rm", "-fv", id]).await;
        }
    }
}

/// The image of load balancers: with a real HAProxy, if the engine has one.
fn balancer_image() -> String {
    std::env::var(BALANCER_VARIABLE).unwrap_or_else(|_| BALANCER_IMAGE.to_owned())
}

/// Whether load balancers run a real HAProxy.
pub(crate) fn has_haproxy() -> bool {
    std::env::var_os(BALANCER_VARIABLE).is_some() || Path::new(HAPROXY_PATH).exists()
}

pub(crate) fn by_id(instance: &Instance) -> InstanceRef {
    InstanceRef { id: Some(instance.id.clone()), key: instance.key.clone(), ..InstanceRef::default() }
}

fn docker(host: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command.args(["--host", host]).args(arguments).stdin(Stdio::null());
    command
}

/// A machine without systemd: the first process starts the enabled units.
const INIT: &str = r#"#!/bin/sh
trap 'exit 0' 15 37
for unit in /etc/systemd/system/multi-user.target.wants/*.service; do
    [ -e "$unit" ] || continue
    condition=$(sed -n 's/^ConditionPathExists=!//p' "$unit")
    if [ -z "$condition" ] || [ ! -e "$condition" ]; then
        $(sed -n 's/^ExecStart=//p' "$unit") &
    fi
done
: >/run/booted
echo "[  OK  ] Reached target Multi-User System."
while :; do sleep 3600 & wait $!; done
"#;

const SYSTEMCTL: &str = r#"#!/bin/sh
case "$1" in
is-active) [ -e /run/booted ] ;;
cat) [ -e "/etc/systemd/system/$2" ] ;;
enable) $(sed -n 's/^ExecStart=//p' "/etc/systemd/system/$3") ;;
esac
"#;

/// Knows the images that were imported by the names in their manifest.
const CTR: &str = r#"#!/bin/sh
case "$3" in
ls) cat /var/lib/images 2>/dev/null ;;
import) tar -xO manifest.json | tr ',' '\n' | sed -n 's/.*"RepoTags":\["\([^"]*\)".*/\1/p' >>/var/lib/images ;;
esac
exit 0
"#;

const KUBEADM: &str = r#"#!/bin/sh
echo "$@" >>/var/lib/kubeadm.calls
"#;

const HAPROXY_PATH: &str = "/usr/sbin/haproxy";

/// Stands in for HAProxy on a machine without it: accepts every configuration and reloads.
const HAPROXY: &str = r#"#!/bin/sh
case "$1" in
-c) exit 0 ;;
esac
trap 'exit 0' 15
trap 'echo reloaded' 1
while :; do sleep 3600 & wait $!; done
"#;

async fn import_images(host: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&folders).map(|folder| folder.join("busybox"));
    let busybox = &programs.find(|path| path.exists()).expect("the tests need the program busybox");
    for name in ["bin", "etc", "usr/bin", "usr/local/bin", "var/lib", "run", "tmp", "proc", "sys", "dev"] {
        std::fs::create_dir_all(root.join(name)).expect("a folder");
    }
    std::fs::copy(busybox, root.join("bin/busybox")).expect("a copy");
    let list = Command::new(busybox).arg("--list").output().await.expect("busybox runs").stdout;
    for name in String::from_utf8_lossy(&list).lines().filter(|name| *name != "busybox") {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("a link");
    }
    std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("written");
    std::fs::write(root.join("etc/group"), "root:x:0:\n").expect("written");
    for (path, text) in [
        ("init", INIT),
        ("usr/local/bin/systemctl", SYSTEMCTL),
        ("usr/local/bin/ctr", CTR),
        ("usr/local/bin/crictl", "#!/bin/sh\nexit 0\n"),
        ("usr/local/bin/kubeadm", KUBEADM),
    ] {
        program(&root.join(path), text);
    }
    import(host, root, NODE_IMAGE, r#"ENTRYPOINT ["/init"]"#).await;
    if balancer_image() != BALANCER_IMAGE {
        return;
    }
    let haproxy = Path::new(HAPROXY_PATH);
    if haproxy.exists() {
        copy_with_libraries(haproxy, root).await;
    } else {
        println!("this machine has no HAProxy; a script stands in for it");
        program(&root.join("usr/local/bin/haproxy"), HAPROXY);
    }
    import(host, root, BALANCER_IMAGE, r#"ENTRYPOINT ["/bin/sh"]"#).await;
}

fn program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("permitted");
}

/// Copies a program and the libraries that it loads.
async fn copy_with_libraries(program: &Path, root: &Path) {
    let output = Command::new("ldd").arg(program).output().await.expect("the program ldd").stdout;
    let text = String::from_utf8_lossy(&output).into_owned();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for file in libraries.chain([program]) {
        let to = root.join(file.strip_prefix("/").expect("absolute"));
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        std::fs::copy(file, to).expect("a copy");
    }
}

async fn import(host: &str, root: &Path, image: &str, change: &str) {
    let root = root.to_str().expect("a path in UTF-8");
    let path = r"ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let script = r#"tar -C "$1" -c . | docker --host "$2" import --change "$3" --change "$4" - "$5""#;
    let arguments = ["-c", script, "sh", root, host, change, path, image];
    let output = Command::new("sh").args(arguments).output().await.expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
