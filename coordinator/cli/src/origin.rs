//! Who runs a command and why: what the coordinators note in their log beside a change.

use std::env;
use std::fs;

use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue, MetadataMap};

/// Longest name that coordinators accept, in bytes.
const BY_BYTES_MAX: usize = 128;
/// Longest reason that coordinators accept, in bytes.
const REASON_BYTES_MAX: usize = 256;

/// Who runs the command and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Who; empty if that is not known.
    pub by: String,
    /// Why, from `--reason`; empty if none was given.
    pub reason: String,
}

impl Origin {
    /// Adds it to the metadata of a request.
    pub(crate) fn put(&self, metadata: &mut MetadataMap) {
        put(metadata, "tenure-by", "tenure-by-bin", &self.by);
        put(metadata, "tenure-reason", "tenure-reason-bin", &self.reason);
    }
}

/// Plain metadata is ASCII; what is not goes in the encoded form.
fn put(metadata: &mut MetadataMap, plain: &'static str, encoded: &'static str, text: &str) {
    if text.is_empty() {
        return;
    }
    let is_ascii = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    match AsciiMetadataValue::try_from(text) {
        Ok(value) if is_ascii => {
            metadata.insert(plain, value);
        }
        _ => {
            let value = BinaryMetadataValue::from_bytes(text.as_bytes());
            metadata.insert_bin(encoded, value);
        }
    }
}

/// Returns who runs this process, as `user@host`, as far as the environment tells.
pub(crate) fn of_process() -> Option<String> {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let user = set("USER").or_else(|| set("LOGNAME"))?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|host| host.trim().to_owned())
        .or_else(|| set("HOSTNAME"));
    let by = match host {
        Some(host) if !host.is_empty() => format!("{user}@{host}"),
        _ => user,
    };
    Some(printable(&by))
}

/// Cuts a name to what coordinators accept: it must not keep a command from being carried out.
fn printable(text: &str) -> String {
    let mut kept = String::new();
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        if kept.len() + letter.len_utf8() > BY_BYTES_MAX {
            break;
        }
        kept.push(letter);
    }
    kept
}

/// Reads `--reason`: one line, at most 256 bytes.
pub(crate) fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > REASON_BYTES_MAX {
        return Err(format!(
            "it has {} bytes, {REASON_BYTES_MAX} are allowed",
            text.len()
        ));
    }
    if text.chars().any(char::is_control) {
        return Err("it must be one line without control characters".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_goes_plain_and_the_rest_encoded() {
        let origin = Origin {
            by: "alice@laptop".to_owned(),
            reason: "größere Platten".to_owned(),
        };
        let mut metadata = MetadataMap::new();
        origin.put(&mut metadata);
        assert_eq!(metadata.get("tenure-by").unwrap(), "alice@laptop");
        assert!(metadata.get("tenure-reason").is_none());
        let bytes = metadata.get_bin("tenure-reason-bin").unwrap();
        assert_eq!(bytes.to_bytes().unwrap(), "größere Platten".as_bytes());
        let mut empty = MetadataMap::new();
        Origin::default().put(&mut empty);
        assert!(empty.is_empty());
    }

    #[test]
    fn a_name_is_cut_to_what_is_accepted() {
        assert_eq!(printable("a\nb@c"), "ab@c");
        let long = "ä".repeat(100);
        assert_eq!(printable(&long).len(), BY_BYTES_MAX);
    }

    #[test]
    fn a_reason_is_one_short_line() {
        assert_eq!(reason(" disk swap ").unwrap(), "disk swap");
        assert!(reason(" ").is_err());
        assert!(reason("two\nlines").is_err());
        assert!(reason(&"x".repeat(257)).is_err());
    }
}
