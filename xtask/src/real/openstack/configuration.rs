//! The configuration of the services: the files beside this one, with values for their `{{names}}`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::programs::Programs;

pub(super) const REGION: &str = "lane";
pub(super) const ADMINISTRATOR_PASSWORD: &str = "admin";

const FILES: &[(&str, &str)] = &[
    ("keystone.conf", include_str!("keystone.conf")),
    ("placement.conf", include_str!("placement.conf")),
    ("glance-api.conf", include_str!("glance-api.conf")),
    ("nova.conf", include_str!("nova.conf")),
    ("neutron.conf", include_str!("neutron.conf")),
    ("cinder.conf", include_str!("cinder.conf")),
    ("rabbitmq.conf", include_str!("rabbitmq.conf")),
];

/// Folders that the services do not create.
const FOLDERS: &[&str] = &[
    "keystone/tokens",
    "keystone/credentials",
    "glance/images",
    "glance/staging",
    "glance/tasks",
    "glance/locks",
    "nova/locks",
    "neutron/locks",
    "cinder/locks",
];

/// The values that the files leave open.
pub(super) struct Values {
    /// Folder of the database's socket and of all files that the services write.
    pub(super) folder: PathBuf,
    pub(super) environment: PathBuf,
    pub(super) keystone: String,
    pub(super) glance: String,
    pub(super) amqp_port: u16,
    pub(super) token_seconds: u32,
}

impl Values {
    /// The values for programs that only use the database.
    pub(super) fn without_services(programs: &Programs, folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            environment: programs.environment(),
            keystone: "http://127.0.0.1:1".to_owned(),
            glance: "http://127.0.0.1:1".to_owned(),
            amqp_port: 1,
            token_seconds: 3600,
        }
    }

    fn fill(&self, text: &str) -> Result<String> {
        let service = format!(
            "auth_type = password\n\
             auth_url = {keystone}/v3\n\
             www_authenticate_uri = {keystone}/v3\n\
             username = service\n\
             password = service\n\
             user_domain_id = default\n\
             project_name = service\n\
             project_domain_id = default\n\
             region_name = {region}",
            keystone = self.keystone,
            region = REGION,
        );
        let mut filled = text.to_owned();
        for (name, value) in [
            ("folder", self.folder.display().to_string()),
            ("environment", self.environment.display().to_string()),
            ("service", service),
            ("transport", format!("rabbit://guest:guest@127.0.0.1:{}/", self.amqp_port)),
            ("amqpPort", self.amqp_port.to_string()),
            ("glance", self.glance.clone()),
            ("tokenSeconds", self.token_seconds.to_string()),
        ] {
            filled = filled.replace(&format!("{{{{{name}}}}}"), &value);
        }
        ensure!(!filled.contains("{{"), "a file of the configuration has an unknown name: {filled}");
        Ok(filled)
    }
}

/// Writes all files into the folder `etc`, and creates the folders of the services.
pub(super) fn write(etc: &Path, values: &Values) -> Result<()> {
    let folders = FOLDERS.iter().map(|folder| values.folder.join(folder));
    for folder in folders.chain([etc.to_owned()]) {
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    for (name, text) in FILES {
        fs::write(etc.join(name), values.fill(text)?)?;
    }
    Ok(())
}
