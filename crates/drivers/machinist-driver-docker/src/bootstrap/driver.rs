//! The calls for bootstraps.

use async_trait::async_trait;
use machinist_driver::Bootstrap;
use machinist_instance::{
    Boot, BootTrouble, BootstrapData, BootstrapState, BootstrapStatus, Error, ErrorKind, InstanceRef,
    Progress, Readiness,
};

use super::boot::{self, Outside};
use super::bundle::{Bundle, Start};
use super::{Machine, report, translate};
use crate::driver::{Account, bounded};
use crate::engine::call::Nature;
use crate::engine::failure::Failure;
use crate::engine::{Command, Stdin};
use crate::label;
use crate::model::Container;
use crate::reply::Seen;
use crate::request;
use crate::spec::ImageMode;

/// Prints what is missing until the container can be bootstrapped; nothing if it is ready.
///
/// The runtime answers only after it has started, so its client is asked. Images without that
/// client are ready as soon as systemd is.
const READINESS: &str = r#"
if command -v systemctl >/dev/null 2>&1; then
    systemctl is-active --quiet multi-user.target || { echo "systemd has not reached multi-user.target"; exit 0; }
fi
if command -v crictl >/dev/null 2>&1; then
    crictl ps >/dev/null 2>&1 || echo "the container runtime does not answer"
elif command -v ctr >/dev/null 2>&1; then
    ctr version >/dev/null 2>&1 || echo "the container runtime does not answer"
fi
"#;

/// Puts the bundle from the standard input in its place, unless one is there. Renaming a folder
/// over another fails, so of several callers one wins.
const STAGE: &str = r#"
umask 077
mkdir -p /var/lib/machinist || exit 1
if [ -d /var/lib/machinist/bootstrap ]; then cat >/dev/null; exit 0; fi
incoming=$(mktemp -d /var/lib/machinist/incoming.XXXXXX) || exit 1
tar -xpf - -C "$incoming" || exit 1
mv "$incoming/var/lib/machinist/bootstrap" /var/lib/machinist/ 2>/dev/null
rm -rf "$incoming"
[ -d /var/lib/machinist/bootstrap ]
"#;

#[async_trait]
impl Bootstrap for Account {
    async fn readiness(&self, which: &InstanceRef) -> Result<Readiness, Error> {
        let what = format!("observing the start of container {which}");
        bounded(Nature::Reads, &what, self.readiness_unlimited(which)).await
    }

    async fn load_images(&self, which: &InstanceRef, images: &[String]) -> Result<Progress<()>, Error> {
        // The pulls and loads themselves take longer. They run concurrently with this call.
        let what = format!("loading images into container {which}");
        bounded(Nature::Changes, &what, self.load_images_unlimited(which, images)).await
    }

    async fn start(&self, which: &InstanceRef, data: &BootstrapData) -> Result<(), Error> {
        let what = format!("starting the bootstrap of container {which}");
        bounded(Nature::Changes, &what, self.start_unlimited(which, data)).await
    }

    async fn progress(&self, which: &InstanceRef) -> Result<BootstrapStatus, Error> {
        let progress = async {
            let container = self.running(which).await?.id;
            self.status(&container).await
        };
        bounded(Nature::Reads, &format!("observing the bootstrap of container {which}"), progress).await
    }

    async fn boot(&self, which: &InstanceRef) -> Result<Boot, Error> {
        let what = format!("observing the boot of container {which}");
        bounded(Nature::Reads, &what, self.boot_unlimited(which)).await
    }
}

impl Account {
    async fn readiness_unlimited(&self, which: &InstanceRef) -> Result<Readiness, Error> {
        let container = match self.owned_running(which).await? {
            Ok(seen) => seen.id,
            Err(status) => return Ok(Readiness::Booting(format!("the container is {status}"))),
        };
        let output = self.run(&container, READINESS, Nature::Reads, Stdin::Empty).await?;
        match output.text().trim() {
            "" if output.code == 0 => Ok(Readiness::Ready),
            "" => Ok(Readiness::Booting("the container runs no commands yet".to_owned())),
            missing => Ok(Readiness::Booting(missing.to_owned())),
        }
    }

    async fn load_images_unlimited(
        &self,
        which: &InstanceRef,
        images: &[String],
    ) -> Result<Progress<()>, Error> {
        let container = self.created_by_us(which).await?.id;
        let mut missing = 0_usize;
        for image in images {
            if !self.images.ensure(image, self.options.pulls_images).await?
                || !self.images.load(&container, image).await?
            {
                missing += 1;
            }
        }
        Ok(match missing {
            0 => Progress::Done(()),
            missing => Progress::Working(format!(
                "loading images ({} of {} done)",
                images.len() - missing,
                images.len()
            )),
        })
    }

    async fn start_unlimited(&self, which: &InstanceRef, data: &BootstrapData) -> Result<(), Error> {
        let seen = self.created_by_us(which).await?;
        match self.status(&seen.id).await?.state {
            BootstrapState::NotStarted => {}
            BootstrapState::Running { .. } | BootstrapState::Succeeded | BootstrapState::Failed(_) => {
                return Ok(());
            }
        }
        let script = translate(data.format, &data.value, &machine(&seen))?;
        let bundle = Bundle::new(&script, data.timeout, Start::ByCall).archive();
        let staged = self.run(&seen.id, STAGE, Nature::Changes, Stdin::Bytes(&bundle)).await?;
        if staged.code != 0 {
            let text = format!(
                "container {}: cannot write the bootstrap data (exit code {}): {}",
                seen.name,
                staged.code,
                super::redact(&staged.errors(), 500, super::Cut::No)
            );
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let supervisor = Command {
            container: &seen.id,
            argv: vec!["/bin/sh", "/var/lib/machinist/bootstrap/supervisor"],
            nature: Nature::Changes,
        };
        Ok(self.engine.detach(supervisor).await?)
    }

    async fn boot_unlimited(&self, which: &InstanceRef) -> Result<Boot, Error> {
        let name = which.name.as_ref().map_or_else(|| which.to_string(), ToString::to_string);
        let Some(seen) = self.owned_by_caller(which).await? else { return Ok(boot::gone(&name)) };
        let Some(container): Option<Container> = self.engine.find(request::inspect(&seen.id)).await? else {
            return Ok(boot::gone(&seen.name));
        };
        match boot::outside(&container) {
            Outside::Known(boot) => Ok(boot),
            Outside::Console { cause, is_final } => {
                let console = self.console(&seen.id, BootTrouble::LINES).await?;
                Ok(boot::by_console(&seen.name, cause, is_final, &console))
            }
            Outside::Runs => {
                let output =
                    match self.try_run(&seen.id, &report::script(), Nature::Reads, Stdin::Empty).await {
                        // The container has ended since it was inspected. The next look shows how.
                        Err(failure) if failure.is_conflict() => return Ok(Boot::Working),
                        output => output?,
                    };
                let stderr = String::from_utf8_lossy(&output.stderr);
                if boot::has_no_shell(output.code, &format!("{}{stderr}", output.text())) {
                    return Ok(boot::unusable_image(&seen.name, "shell (/bin/sh)"));
                }
                // A container that begins to run may not run commands yet.
                let Some(status) = report::parse(&output.text(), &stderr) else { return Ok(Boot::Working) };
                let (has_systemd, is_staged) = report::surroundings(&output.text());
                Ok(boot::inside(&seen.name, &status, has_systemd, is_staged))
            }
        }
    }

    /// The container of a reference, which must exist, belong to the caller and run.
    async fn running(&self, which: &InstanceRef) -> Result<Seen, Error> {
        self.owned_running(which).await?.map_err(|status| {
            Error::new(ErrorKind::Unavailable, format!("container {which} is {status}: expected running"))
        })
    }

    /// The container of a reference, which must also have the key of the caller. Bootstrap data
    /// runs as root, so a recorded id does not suffice: a user may have recorded the container of
    /// another program.
    async fn created_by_us(&self, which: &InstanceRef) -> Result<Seen, Error> {
        let seen = self.running(which).await?;
        let is_ours = match &which.key {
            Some(key) => seen.key() == Some(key.as_str()),
            None => seen.key().is_some(),
        };
        if is_ours { Ok(seen) } else { Err(crate::driver::wrong_key(&seen)) }
    }

    /// The container, or its status if it does not run.
    async fn owned_running(&self, which: &InstanceRef) -> Result<Result<Seen, String>, Error> {
        let Some(seen) = self.owned_by_caller(which).await? else { return Ok(Err("absent".to_owned())) };
        Ok(if seen.is_running() { Ok(seen) } else { Err(seen.status) })
    }

    /// The container of a reference, if it exists. It must not belong to another object.
    async fn owned_by_caller(&self, which: &InstanceRef) -> Result<Option<Seen>, Error> {
        let Some(seen) = self.lookup(which).await? else { return Ok(None) };
        match &which.key {
            Some(key) if !seen.is_owned_by(key.as_str(), which.into()) => {
                Err(crate::driver::wrong_key(&seen))
            }
            Some(_) | None => Ok(Some(seen)),
        }
    }

    async fn status(&self, container: &str) -> Result<BootstrapStatus, Error> {
        let output = self.run(container, &report::script(), Nature::Reads, Stdin::Empty).await?;
        report::parse(&output.text(), &String::from_utf8_lossy(&output.stderr)).ok_or_else(|| {
            let text = format!(
                "cannot read the state of the bootstrap (exit code {}): expected a shell in the image",
                output.code
            );
            Error::new(ErrorKind::Unavailable, text)
        })
    }

    async fn run(
        &self,
        container: &str,
        script: &str,
        nature: Nature,
        stdin: Stdin<'_>,
    ) -> Result<crate::engine::Output, Error> {
        Ok(self.try_run(container, script, nature, stdin).await?)
    }

    /// Runs a script like [`Self::run`], and returns the status of the engine with a failure.
    async fn try_run(
        &self,
        container: &str,
        script: &str,
        nature: Nature,
        stdin: Stdin<'_>,
    ) -> Result<crate::engine::Output, Failure> {
        let command = Command { container, argv: vec!["/bin/sh", "-c", script], nature };
        self.engine.run(command, stdin).await
    }
}

/// The facts about a machine that its container's labels store.
fn machine(seen: &Seen) -> Machine {
    let image_mode = match label::get(&seen.labels, label::IMAGE_MODE) {
        Some("plain") => ImageMode::Plain,
        Some(_) | None => ImageMode::Kind,
    };
    Machine { name: seen.name.clone(), image_mode }
}
