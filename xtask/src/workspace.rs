//! Where the workspace is and what cargo knows of it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace, as `cargo metadata` describes it.
pub(crate) struct Workspace {
    /// Its root directory.
    pub(crate) root: PathBuf,
    /// Where cargo puts what it builds.
    pub(crate) target: PathBuf,
    /// The packages of the workspace.
    pub(crate) packages: Vec<Package>,
}

/// One package of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// The name of its directory, which is how rules and the architecture page call it.
    pub(crate) directory: String,
    /// Its manifest, from the root.
    pub(crate) manifest: PathBuf,
    /// Names of the packages that it depends on, of every kind.
    pub(crate) dependencies: Vec<String>,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn find() -> Result<Self, String> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Self::from_metadata(&metadata).ok_or_else(|| "cargo metadata has another form".to_owned())
    }

    fn from_metadata(metadata: &Value) -> Option<Self> {
        let root = PathBuf::from(metadata["workspace_root"].as_str()?);
        let packages = metadata["packages"].as_array()?;
        let packages = packages.iter().map(|package| Package::new(package, &root));
        Some(Self {
            target: PathBuf::from(metadata["target_directory"].as_str()?),
            packages: packages.collect::<Option<_>>()?,
            root,
        })
    }

    /// The release binary of the server.
    pub(crate) fn server_binary(&self) -> PathBuf {
        self.target.join("release").join("thalweg")
    }

    /// The release binary of what is counted.
    pub(crate) fn counts_binary(&self) -> PathBuf {
        self.target.join("release").join("thalweg-counts")
    }

    /// The release binary that measures turns of the loop.
    pub(crate) fn turns_binary(&self) -> PathBuf {
        self.target.join("release").join("thalweg-turns")
    }

    /// An empty directory for one run of `purpose`.
    pub(crate) fn scratch(&self, purpose: &str) -> Result<PathBuf, String> {
        let path = self.target.join("xtask").join(format!("{purpose}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Package {
    fn new(package: &Value, root: &Path) -> Option<Self> {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let dependencies = package["dependencies"].as_array()?.iter();
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            directory: manifest.parent()?.file_name()?.to_str()?.to_owned(),
            manifest: manifest.strip_prefix(root).ok()?.to_owned(),
            dependencies: dependencies
                .map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
                .collect::<Option<_>>()?,
        })
    }
}
