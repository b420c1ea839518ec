//! Where the servers are installed.

use std::env;
use std::fs;
use std::path::PathBuf;

use cluster_tests::failure::Failure;

/// Names the folder that `.ci/setup-stores` has installed servers in.
const FOLDER_VARIABLE: &str = "TENURE_STORE_SERVERS";

/// Returns the path of a file below the folder that `.ci/setup-stores` has installed servers in.
///
/// That is `TENURE_STORE_SERVERS`, or without it the place where the script puts them by itself.
///
/// # Errors
///
/// When it is not there.
pub fn file(path: &str) -> Result<PathBuf, Failure> {
    let file = folder()?.join(path);
    if file.exists() {
        return Ok(file);
    }
    Err(missing(&file.display().to_string()))
}

/// Returns the path of a program in the Python environment.
///
/// # Errors
///
/// When it is not installed.
pub fn python(name: &str) -> Result<PathBuf, Failure> {
    file(&format!("python/bin/{name}"))
}

/// Returns the path of a script of an npm package.
///
/// # Errors
///
/// When it is not installed.
pub fn node(name: &str) -> Result<PathBuf, Failure> {
    file(&format!("node/node_modules/.bin/{name}"))
}

/// Returns the path of a program that Debian packages: from `PATH`, from where daemons are, or from
/// where `.ci/setup-stores` has unpacked it.
///
/// # Errors
///
/// When it is not installed.
pub fn debian(name: &str) -> Result<PathBuf, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        // Not in the PATH of everybody.
        .chain(["/usr/local/sbin", "/usr/sbin", "/usr/bin"].map(PathBuf::from))
        .chain(folder().map(|folder| folder.join("bin")))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| missing(name))
}

/// Returns the path of a program of the newest PostgreSQL: Debian keeps them out of `PATH`.
///
/// # Errors
///
/// When it is not installed.
pub fn postgresql(name: &str) -> Result<PathBuf, Failure> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    versions
        .flatten()
        .filter_map(|version| {
            let number: u32 = version.file_name().to_str()?.parse().ok()?;
            let file = version.path().join("bin").join(name);
            file.is_file().then_some((number, file))
        })
        .max()
        .map(|(_, file)| file)
        .map_or_else(|| debian(name), Ok)
}

fn folder() -> Result<PathBuf, Failure> {
    if let Some(folder) = env::var_os(FOLDER_VARIABLE) {
        return Ok(folder.into());
    }
    let cache = env::var_os("TENURE_CACHE").map(PathBuf::from);
    let home_cache = || {
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
        cache.map(|cache| cache.join("tenure"))
    };
    cache
        .or_else(home_cache)
        .map(|cache| cache.join("stores"))
        .ok_or_else(|| Failure::new(format!("neither {FOLDER_VARIABLE} nor HOME is set")))
}

fn missing(what: &str) -> Failure {
    Failure::new(format!(
        "{what} is not installed: run the tests with `make test-stores`, or .ci/setup-stores first"
    ))
}
