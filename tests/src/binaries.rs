//! Where the programs of the workspace are.

use std::env;
use std::path::PathBuf;

use crate::failure::Failure;

/// Finds a program of this workspace beside the one that runs: `tenure`, `story-worker` and the like.
///
/// Programs lie in `<target>/<profile>/`, tests one folder below, in `deps/`. Cargo names the path of a
/// binary to tests of its own package only, and `tenure` is in another.
///
/// # Errors
///
/// When it was not built.
pub fn find(name: &str) -> Result<PathBuf, Failure> {
    let this = env::current_exe()?;
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    this.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(&file))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Failure::new(format!(
                "{file} is not beside {}: build it with `.ci/cargo build --all-targets`",
                this.display()
            ))
        })
}
