//! How to reach the coordinators: flags over environment over file over defaults.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::error::CliError;
use crate::options::{ClientOptions, address, timeout};
use crate::origin::{self, Origin};

/// Where a coordinator on the same machine listens, as `tenure dev` does.
const DEFAULT_ADDRESS: &str = "127.0.0.1:7400";
/// Longer than the replacement of a leader takes, and short enough for a person to wait.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// What the commands take from the environment. Read once, so that tests can put in what they like.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `TENURE_ADDRESSES`: addresses with commas between them.
    pub addresses: Option<String>,
    /// Where the file of the commands is looked for; `None` if there is no home folder.
    pub config: Option<PathBuf>,
    /// Who runs the commands, as `user@host`; `None` if that is not known.
    pub user: Option<String>,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn of_process() -> Self {
        let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let folder = set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")));
        Self {
            addresses: set("TENURE_ADDRESSES").map(|text| text.to_string_lossy().into_owned()),
            config: folder.map(|folder| folder.join("tenure/cli.toml")),
            user: origin::of_process(),
        }
    }
}

/// How to reach the coordinators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Addresses as `host:port`, tried in this order; at least one.
    pub addresses: Vec<String>,
    /// How long a command tries.
    pub timeout: Duration,
    /// TLS; `None` connects in plain text.
    pub tls: Option<Tls>,
    /// Who runs the commands and why.
    pub origin: Origin,
}

/// Files for TLS, all PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificates of the authorities to trust.
    pub ca: Option<PathBuf>,
    /// Own certificate, for coordinators that ask for one.
    pub cert: Option<PathBuf>,
    /// Key of the own certificate.
    pub key: Option<PathBuf>,
    /// Name to expect in the coordinators' certificates; `None` expects the host that is asked.
    pub server_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    addresses: Option<Vec<String>>,
    timeout: Option<String>,
    tls: Option<Tls>,
}

impl Settings {
    /// Decides every setting: a flag wins over the environment, that over the file, that over the
    /// default. The parts of TLS are decided one by one.
    ///
    /// # Errors
    /// [`CliError::Usage`] names the setting that is wrong and where it came from. A file that was
    /// named must exist; the default one need not.
    pub fn resolve(options: &ClientOptions, environment: &Environment) -> Result<Self, CliError> {
        let file = match (&options.config, &environment.config) {
            (Some(path), _) => read_file(path)?,
            (None, Some(path)) if path.exists() => read_file(path)?,
            (None, _) => File::default(),
        };
        let addresses = if !options.addresses.is_empty() {
            checked("--address", &options.addresses)?
        } else if let Some(list) = &environment.addresses {
            let list: Vec<_> = list.split(',').map(|part| part.trim().to_owned()).collect();
            checked("TENURE_ADDRESSES", &list)?
        } else if let Some(list) = &file.addresses {
            checked("addresses in the config file", list)?
        } else {
            vec![DEFAULT_ADDRESS.to_owned()]
        };
        let file_timeout = file
            .timeout
            .as_deref()
            .map(timeout)
            .transpose()
            .map_err(|error| CliError::Usage {
                message: format!("timeout in the config file: {error}"),
            })?;
        let tls = Tls::merged(options, file.tls)?;
        let timeout = options.timeout.or(file_timeout).unwrap_or(DEFAULT_TIMEOUT);
        Ok(Self {
            addresses,
            timeout,
            tls,
            origin: Origin {
                by: environment.user.clone().unwrap_or_default(),
                reason: options.reason.clone().unwrap_or_default(),
            },
        })
    }
}

impl Tls {
    fn merged(options: &ClientOptions, file: Option<Self>) -> Result<Option<Self>, CliError> {
        let file = file.unwrap_or_default();
        let tls = Self {
            ca: options.tls_ca.clone().or(file.ca),
            cert: options.tls_cert.clone().or(file.cert),
            key: options.tls_key.clone().or(file.key),
            server_name: options.tls_server_name.clone().or(file.server_name),
        };
        if tls == Self::default() {
            return Ok(None);
        }
        if tls.ca.is_none() {
            let message = "TLS needs the authorities to trust: give --tls-ca, or ca under [tls]";
            return Err(CliError::Usage {
                message: message.to_owned(),
            });
        }
        if tls.cert.is_some() != tls.key.is_some() {
            let message = "a TLS certificate and its key go together: give both or neither";
            return Err(CliError::Usage {
                message: message.to_owned(),
            });
        }
        Ok(Some(tls))
    }
}

fn read_file(path: &Path) -> Result<File, CliError> {
    let usage = |message: String| CliError::Usage { message };
    let text = fs::read_to_string(path).map_err(|error: io::Error| {
        usage(format!(
            "config file {} cannot be read: {error}",
            path.display()
        ))
    })?;
    let mut file: File = toml::from_str(&text).map_err(|error| {
        // The parser points at the place in several lines; an error of this program is one.
        let line = error
            .span()
            .map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let reason = error.message().replace('\n', " ");
        usage(format!(
            "config file {} line {line}: {reason}",
            path.display()
        ))
    })?;
    // Files are named relative to the file that names them, wherever the command is called.
    let folder = path.parent().unwrap_or(Path::new("."));
    if let Some(tls) = &mut file.tls {
        for named in [&mut tls.ca, &mut tls.cert, &mut tls.key]
            .into_iter()
            .flatten()
        {
            *named = folder.join(&named);
        }
    }
    Ok(file)
}

fn checked(source: &str, list: &[String]) -> Result<Vec<String>, CliError> {
    if list.is_empty() {
        return Err(CliError::Usage {
            message: format!("{source}: no address is given"),
        });
    }
    let mut addresses = Vec::with_capacity(list.len());
    for text in list {
        let address = address(text).map_err(|error| CliError::Usage {
            message: format!("{source}: {error}"),
        })?;
        // A node that is named twice is asked once a round.
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(folder: &Path, addresses: Option<&str>) -> Environment {
        Environment {
            addresses: addresses.map(str::to_owned),
            config: Some(folder.join("cli.toml")),
            user: None,
        }
    }

    fn message(result: Result<Settings, CliError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = ClientOptions::default();
        let resolved = |options: &ClientOptions, addresses| {
            Settings::resolve(options, &environment(folder.path(), addresses)).unwrap()
        };
        assert_eq!(resolved(&options, None).addresses, ["127.0.0.1:7400"]);
        assert_eq!(resolved(&options, None).timeout, Duration::from_secs(10));

        let text = "addresses = ['file:1', 'file:2']\ntimeout = '3s'\n";
        fs::write(folder.path().join("cli.toml"), text).unwrap();
        assert_eq!(resolved(&options, None).addresses, ["file:1", "file:2"]);
        assert_eq!(resolved(&options, None).timeout, Duration::from_secs(3));

        assert_eq!(
            resolved(&options, Some("env:1, env:2,env:1")).addresses,
            ["env:1", "env:2"]
        );

        options.addresses = vec!["flag:1".to_owned()];
        options.timeout = Some(Duration::from_secs(1));
        assert_eq!(resolved(&options, Some("env:1")).addresses, ["flag:1"]);
        assert_eq!(
            resolved(&options, Some("env:1")).timeout,
            Duration::from_secs(1)
        );
    }

    #[test]
    fn a_file_that_was_named_replaces_the_default_one_and_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cli.toml"), "addresses = ['default:1']").unwrap();
        let named = folder.path().join("named.toml");
        let options = ClientOptions {
            config: Some(named.clone()),
            ..Default::default()
        };
        let environment = environment(folder.path(), None);
        let missing = message(Settings::resolve(&options, &environment));
        assert!(missing.contains("named.toml cannot be read"), "{missing}");
        fs::write(named, "addresses = ['named:1']").unwrap();
        assert_eq!(
            Settings::resolve(&options, &environment).unwrap().addresses,
            ["named:1"]
        );
    }

    #[test]
    fn files_for_tls_are_found_beside_the_file_that_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[tls]\nca = 'ca.pem'\ncert = '/etc/own.pem'\nkey = 'own.key'\n";
        fs::write(folder.path().join("cli.toml"), text).unwrap();
        let options = ClientOptions {
            tls_key: Some("flag.key".into()),
            ..ClientOptions::default()
        };
        let settings = Settings::resolve(&options, &environment(folder.path(), None)).unwrap();
        let tls = settings.tls.unwrap();
        assert_eq!(tls.ca, Some(folder.path().join("ca.pem")));
        assert_eq!(tls.cert, Some(PathBuf::from("/etc/own.pem")));
        assert_eq!(tls.key, Some(PathBuf::from("flag.key")));
    }

    #[test]
    fn wrong_settings_are_refused_with_their_source() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = ClientOptions::default();
        let environment = environment(folder.path(), Some("localhost"));
        let error = message(Settings::resolve(&options, &environment));
        assert!(
            error.starts_with("TENURE_ADDRESSES: \"localhost\" is not host:port"),
            "{error}"
        );

        options.addresses = vec!["http://h:1".to_owned()];
        let error = message(Settings::resolve(&options, &environment));
        assert!(
            error.starts_with("--address: \"http://h:1\" is not host:port"),
            "{error}"
        );

        options.addresses = vec!["h:1".to_owned()];
        options.tls_cert = Some("own.pem".into());
        let error = message(Settings::resolve(&options, &environment));
        assert!(error.contains("--tls-ca"), "{error}");

        fs::write(
            folder.path().join("cli.toml"),
            "timeout = '3s'\nadress = 'x'\n",
        )
        .unwrap();
        let error = message(Settings::resolve(&options, &environment));
        assert!(
            error.contains("cli.toml line 2: unknown field `adress`"),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}
