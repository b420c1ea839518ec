//! The options of every operator command, and how their values are read. The doc comments of the
//! options are the help texts.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// A command that was forgotten ends on its own within a day.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Options of every operator command. Not of the whole binary: `serve` has a `--config` of its own.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection and output")]
pub struct ClientOptions {
    /// Coordinators to ask, with commas or repeated [env: TENURE_ADDRESSES] [default: 127.0.0.1:7400]
    #[arg(
        long = "address",
        global = true,
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    pub addresses: Vec<String>,
    /// File with addresses and TLS files [default: ~/.config/tenure/cli.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How long to try before giving up [default: 10s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// Why: kept with what the command changes, for whoever asks later
    #[arg(long, global = true, value_name = "TEXT", value_parser = crate::origin::reason)]
    pub reason: Option<String>,
    /// Print JSON instead of tables; 64-bit numbers are strings
    #[arg(long, global = true)]
    pub json: bool,
    /// Certificates (PEM) of the authorities to trust; turns TLS on
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Own certificate (PEM), if the coordinators ask for one
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Key (PEM) of the own certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Name to expect in the coordinators' certificates instead of the host asked
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

/// Checks one `host:port`. IPv6 hosts stand in brackets.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not host:port, such as 127.0.0.1:7400");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let plain = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if !(bracketed || plain) || port.parse::<u16>().ok().is_none_or(|port| port == 0) {
        return Err(wrong());
    }
    Ok(text.to_owned())
}

/// Reads a duration such as `5m`: above nothing.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("{text:?} is not a duration such as 5m, above 0"))
}

/// Reads a timeout such as `10s`: above nothing, at most a day.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .ok()
        .filter(|duration| !duration.is_zero() && *duration <= TIMEOUT_MAX)
        .ok_or_else(|| format!("{text:?} is not a duration such as 10s, above 0 and at most 1day"))
}
