//! Images: pulls them into the engine, and loads them from the engine into a container.
//!
//! Both take up to minutes, so they run as tasks of this process, at most [`MAX_LOADS`] at the
//! same time. A call starts the task or observes it. After a restart of this process, the next call
//! starts the task again; both operations can be repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use machinist_instance::{Error, ErrorKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::time::{Duration, timeout};

use crate::engine::call::{Call, Nature};
use crate::engine::failure::Failure;
use crate::engine::{Command, Engine, Stdin};

/// More loads at the same time compete for the disk of the engine.
const MAX_LOADS: usize = 4;

/// Longest time of one pull or one load: 10 GB over a slow connection.
const TASK_WITHIN: Duration = Duration::from_secs(30 * 60);

/// Longest silence of the engine or of a command during a task. The engine copies all layers of an
/// image before it sends the first byte, and a runtime unpacks the image after the last byte.
const SILENT_FOR: Duration = Duration::from_secs(5 * 60);

/// Finds an image in the container's runtime by its name, or by its full name.
const FIND_IMAGE: &str = "ctr --namespace=k8s.io images ls -q | grep -qxF -e \"$1\" -e \"$2\"";

/// The tasks of one account.
pub(crate) struct Images {
    engine: Arc<Engine>,
    slots: Arc<Semaphore>,
    tasks: Arc<Mutex<BTreeMap<Task, Progress>>>,
}

/// A pull of an image, or a load of an image into a container. The tasks are in the order of the
/// fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Pull { image: String },
    Load { image: String, container: String },
}

#[derive(Debug, Clone)]
enum Progress {
    Running,
    /// Kept for a load: an image without a tag has another name in the container's runtime.
    Loaded,
    Failed(Error),
}

impl Images {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, slots: Arc::new(Semaphore::new(MAX_LOADS)), tasks: Arc::default() }
    }

    /// Checks whether the engine has the image, and starts to pull it if permitted. Returns whether
    /// the image is there.
    ///
    /// # Errors
    /// The error of the last pull, or `InvalidSpec` if the image is absent and pulls are disabled.
    pub(crate) async fn ensure(&self, image: &str, pulls: bool) -> Result<bool, Error> {
        let found: Option<serde::de::IgnoredAny> =
            self.engine.find(Call::get("/images/-/json", image)).await.map_err(Error::from)?;
        if found.is_some() {
            return Ok(true);
        }
        if !pulls {
            let text = format!("image {image} is not on the engine, and pulling is disabled. Load it");
            return Err(Error::new(ErrorKind::InvalidSpec, text));
        }
        let task = Task::Pull { image: image.to_owned() };
        let (engine, image) = (self.engine.clone(), image.to_owned());
        self.observe_or_spawn(task, async move { pull(&engine, &image).await })?;
        Ok(false)
    }

    /// Loads an image from the engine into the container. Returns whether it is there.
    ///
    /// # Errors
    /// The error of the last load.
    pub(crate) async fn load(&self, container: &str, image: &str) -> Result<bool, Error> {
        let full_name = full_name(image);
        let argv = vec!["sh", "-c", FIND_IMAGE, "sh", image, &full_name];
        let find = Command { container, argv, nature: Nature::Reads };
        if self.engine.run(find, Stdin::Empty).await?.code == 0 {
            return Ok(true);
        }
        let task = Task::Load { image: image.to_owned(), container: container.to_owned() };
        if self.has_loaded(&task) {
            return Ok(true);
        }
        let (engine, image, container) = (self.engine.clone(), image.to_owned(), container.to_owned());
        self.observe_or_spawn(task, async move { load(&engine, &container, &image).await })?;
        Ok(false)
    }

    fn has_loaded(&self, task: &Task) -> bool {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(tasks.get(task), Some(Progress::Loaded))
    }

    /// Forgets the loads into a container that no longer exists.
    pub(crate) fn forget(&self, container: &str) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task, progress| match (task, progress) {
            (Task::Load { container: of, .. }, Progress::Loaded | Progress::Failed(_)) => of != container,
            (Task::Load { .. }, Progress::Running) | (Task::Pull { .. }, _) => true,
        });
    }

    /// Returns the error of a task that failed since the last call; otherwise the task runs.
    fn observe_or_spawn(
        &self,
        task: Task,
        work: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<(), Error> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        match tasks.get(&task).cloned() {
            Some(Progress::Running | Progress::Loaded) => return Ok(()),
            Some(Progress::Failed(error)) => {
                tasks.remove(&task);
                return Err(error);
            }
            None => {}
        }
        machinist_driver::may_change()?;
        tasks.insert(task.clone(), Progress::Running);
        let (slots, running) = (self.slots.clone(), Running { tasks: self.tasks.clone(), task });
        tokio::spawn(async move {
            let task = &running.task;
            let _slot = slots.acquire_owned().await;
            let ended = timeout(TASK_WITHIN, work).await.unwrap_or_else(|_| {
                let minutes = TASK_WITHIN.as_secs() / 60;
                Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("{task}: not complete after {minutes} minutes"),
                ))
            });
            let progress = match (ended, task) {
                // The drop of `running` removes the entry.
                (Ok(()), Task::Pull { .. }) => return,
                (Ok(()), Task::Load { .. }) => Progress::Loaded,
                (Err(error), _) => Progress::Failed(error),
            };
            let mut tasks = running.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.insert(task.clone(), progress);
        });
        Ok(())
    }
}

/// A task that runs. Its entry ends with it, even if it panics.
struct Running {
    tasks: Arc<Mutex<BTreeMap<Task, Progress>>>,
    task: Task,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(tasks.get(&self.task), Some(Progress::Running)) {
            tasks.remove(&self.task);
        }
    }
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pull { image } => write!(f, "pulling image {image}"),
            Self::Load { image, container } => write!(f, "loading image {image} into {container}"),
        }
    }
}

async fn pull(engine: &Engine, image: &str) -> Result<(), Error> {
    let (name, tag) = name_and_tag(image);
    let call = Call::list("/images/create").with("fromImage", name).with("tag", tag);
    let call = Call { method: http::Method::POST, ..call };
    let mut body = match heard(image, engine.open(call)).await? {
        Ok(answer) => answer.into_body(),
        Err(failure) if failure.is_absence() => return Err(absent(image)),
        Err(failure) => return Err(known_failure(failure)),
    };
    // The status of the answer is a success before the pull begins. Errors are in its lines.
    let mut last = Vec::new();
    while let Some(piece) = piece(&mut body, image).await? {
        last.extend_from_slice(&piece);
        let start = last.len().saturating_sub(MAX_LINE_LEN);
        last.drain(..start);
    }
    match error_line(&last) {
        None => Ok(()),
        Some(text) if text.contains("not found") || text.contains("denied") => Err(absent(image)),
        Some(text) => Err(Error::new(ErrorKind::Unavailable, format!("pulling image {image}: {text}"))),
    }
}

/// The end of the answer to a pull is kept; an error is its last line.
const MAX_LINE_LEN: usize = 64 * 1024;

/// The error in the last lines of a pull.
fn error_line(lines: &[u8]) -> Option<String> {
    let lines = String::from_utf8_lossy(lines);
    let mut documents = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    documents.find_map(|document| document.get("error")?.as_str().map(str::to_owned))
}

/// Splits a reference as the engine expects it. A digest is a tag to the engine.
fn name_and_tag(image: &str) -> (&str, &str) {
    if let Some((name, digest)) = image.split_once('@') {
        return (name, digest);
    }
    match image.rsplit_once(':') {
        // A colon before a slash separates a port.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

/// The name under which containerd stores an image: with registry and tag.
fn full_name(image: &str) -> String {
    let (first, rest) = image.split_once('/').unwrap_or(("", image));
    let is_registry = first.contains(['.', ':']) || first == "localhost";
    let named = match (is_registry, first) {
        (true, _) => image.to_owned(),
        (false, "") => format!("docker.io/library/{rest}"),
        (false, _) => format!("docker.io/{image}"),
    };
    let has_tag = rest.contains('@') || rest.rsplit('/').next().is_some_and(|name| name.contains(':'));
    if has_tag { named } else { format!("{named}:latest") }
}

fn absent(image: &str) -> Error {
    let text =
        format!("image {image} does not exist, or the engine may not pull it. Correct the name, or load it");
    Error::new(ErrorKind::InvalidSpec, text)
}

/// A pull and a load can be repeated, so an unknown outcome is harmless.
fn known_failure(failure: Failure) -> Error {
    match failure.error.kind {
        ErrorKind::Ambiguous => Error::new(ErrorKind::Unavailable, failure.error.message),
        _ => failure.error,
    }
}

/// Waits for the next sign of life of a task, and at most [`SILENT_FOR`].
async fn heard<T>(image: &str, next: impl Future<Output = T>) -> Result<T, Error> {
    timeout(SILENT_FOR, next).await.map_err(|_| {
        let minutes = SILENT_FOR.as_secs() / 60;
        let text = format!("image {image}: no data for {minutes} minutes; the transfer starts again");
        Error::new(ErrorKind::Unavailable, text)
    })
}

/// The next bytes of an answer; `None` at its end.
async fn piece<B>(body: &mut B, image: &str) -> Result<Option<Bytes>, Error>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    loop {
        match heard(image, body.frame()).await? {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => {
                let text = format!("image {image}: the connection to the engine broke: {error}");
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
    }
}

/// Streams the image from the engine into a command in the container, without a copy on disk.
async fn load(engine: &Engine, container: &str, image: &str) -> Result<(), Error> {
    let mut body = match heard(image, engine.open(Call::get("/images/-/get", image))).await? {
        Ok(answer) => answer.into_body(),
        Err(failure) if failure.is_absence() => return Err(absent(image)),
        Err(failure) => return Err(known_failure(failure)),
    };
    let import = Command {
        container,
        argv: vec!["ctr", "--namespace=k8s.io", "images", "import", "-"],
        nature: Nature::Changes,
    };
    let (id, stream) = heard(image, engine.attach(import)).await?.map_err(known_failure)?;
    let (mut from, mut to) = tokio::io::split(stream);
    let writing = async {
        while let Some(piece) = piece(&mut body, image).await? {
            // A command that ends early closes its input. Its exit code says why.
            if heard(image, to.write_all(&piece)).await?.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
        Ok::<(), Error>(())
    };
    // The output is only read so that the command does not block. The output ends with the command.
    let reading = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(1..) = from.read(&mut buffer).await {}
    };
    let mut reading = std::pin::pin!(reading);
    let written = tokio::select! {
        written = writing => Some(written),
        () = &mut reading => None,
    };
    if let Some(written) = written {
        written?;
        heard(image, reading).await?;
    }
    match engine.exit_code(&id, Nature::Reads).await.map_err(known_failure)? {
        0 => Ok(()),
        code => {
            let text = format!("loading image {image}: ctr exited with code {code}");
            Err(Error::new(ErrorKind::Unavailable, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// Starts a task for container `c`, and returns the number of entries after its end.
    async fn entries_after(
        images: &Images,
        work: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> usize {
        let task = Task::Load { image: "i".to_owned(), container: "c".to_owned() };
        images.observe_or_spawn(task, work).expect("started");
        let all = u32::try_from(MAX_LOADS).expect("few");
        // The task holds a slot from its first poll to its end.
        tokio::task::yield_now().await;
        drop(images.slots.acquire_many(all).await.expect("open"));
        images.tasks.lock().expect("not poisoned").len()
    }

    #[tokio::test]
    async fn a_task_that_panics_can_be_started_again() {
        let address = "unix:///nonexistent/docker.sock".parse().expect("an address");
        let images = Images::new(Arc::new(Engine::new(address, None)));
        assert_eq!(entries_after(&images, async { panic!("a bug") }).await, 0);
        let failed = async { Err(Error::new(ErrorKind::Unavailable, "busy")) };
        assert_eq!(entries_after(&images, failed).await, 1);
        images.forget("another");
        assert_eq!(images.tasks.lock().expect("not poisoned").len(), 1);
        images.forget("c");
        assert!(images.tasks.lock().expect("not poisoned").is_empty(), "the container was deleted");
    }

    /// An answer that sends its pieces, and then nothing.
    struct Silent(Vec<&'static [u8]>);

    impl Body for Silent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            match self.0.pop() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece))))),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_transfer_ends_and_can_be_repeated() {
        let mut body = Silent(vec![b"a"]);
        assert_eq!(piece(&mut body, "i").await, Ok(Some(Bytes::from_static(b"a"))));
        let error = piece(&mut body, "i").await.expect_err("silent");
        assert_eq!(
            (error.kind, error.message.contains("no data for 5 minutes")),
            (ErrorKind::Unavailable, true)
        );
    }

    #[test]
    fn a_reference_is_split_into_name_and_tag() {
        let cases = [
            ("kindest/node:v1.33.0", ("kindest/node", "v1.33.0")),
            ("busybox", ("busybox", "latest")),
            ("registry.example:5000/a/b", ("registry.example:5000/a/b", "latest")),
            ("registry.example:5000/a/b:c", ("registry.example:5000/a/b", "c")),
            ("a@sha256:0f", ("a", "sha256:0f")),
        ];
        for (image, expected) in cases {
            assert_eq!(name_and_tag(image), expected, "{image}");
        }
    }

    #[test]
    fn containerd_stores_an_image_under_its_full_name() {
        let cases = [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1", "docker.io/library/busybox:1"),
            ("kindest/node:v1", "docker.io/kindest/node:v1"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("localhost/a", "localhost/a:latest"),
            ("example:5000/a", "example:5000/a:latest"),
            ("a/b@sha256:0f", "docker.io/a/b@sha256:0f"),
        ];
        for (image, expected) in cases {
            assert_eq!(full_name(image), expected);
        }
    }

    #[test]
    fn an_error_in_the_lines_of_a_pull_is_found() {
        let lines = b"{\"status\":\"Pulling\"}\r\n{\"errorDetail\":{},\"error\":\"manifest not found\"}\r\n";
        assert_eq!(error_line(lines).as_deref(), Some("manifest not found"));
        assert_eq!(error_line(b"{\"status\":\"Done\"}\n"), None);
    }
}
