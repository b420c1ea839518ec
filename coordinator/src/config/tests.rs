use std::collections::BTreeSet;

use super::*;

const REFERENCE: &str = include_str!("../../../docs/config.md");

const MINIMAL: &str = r#"
data_dir = "/var/lib/tenure"
[client]
listen = "127.0.0.1:7400"
[peer]
listen = "127.0.0.1:7401"
"#;

/// The minimal file with more lines at its end.
fn with(more: &str) -> String {
    format!("{MINIMAL}{more}")
}

fn refused(text: &str) -> String {
    let line = Config::parse(text).unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn a_minimal_file_takes_the_defaults() {
    let config = Config::parse(MINIMAL).unwrap();
    assert_eq!(config.raft, RaftConfig::default());
    assert_eq!(config.limits.watch_history_events, 100_000);
    assert_eq!(config.http, None);
    assert_eq!(config.log.format, LogFormat::Text);
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let line = refused(&with("[raft]\nheartbeat = \"1s\"\n"));
    assert!(
        line.contains("line 8") && line.contains("heartbeat"),
        "{line}"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_its_key() {
    let line = refused(&with("[raft]\nheartbeat_interval = 100\n"));
    assert!(line.contains("heartbeat_interval = 100"), "{line}");
    let line = refused(&MINIMAL.replace("127.0.0.1:7400", "7400"));
    assert!(line.contains("listen = \"7400\""), "{line}");
}

#[test]
fn a_missing_key_is_named() {
    let line = refused("data_dir = \"x\"\n[client]\nlisten = \"127.0.0.1:1\"\n");
    assert!(line.contains("missing field `peer`"), "{line}");
}

#[test]
fn values_out_of_bounds_are_refused_by_name() {
    let too_long = with("[raft]\nelection_timeout_max = \"1h\"\n");
    for (text, key) in [
        (too_long, "raft.election_timeout_max"),
        (
            with("[raft]\nheartbeat_interval = \"400ms\"\n"),
            "raft.election_timeout_min",
        ),
        (
            with("[raft]\nelection_timeout_max = \"700ms\"\n"),
            "raft.election_timeout_max",
        ),
        (with("[limits]\nttl_min = \"10ms\"\n"), "limits.ttl_min"),
        (with("[limits]\nttl_max = \"11m\"\n"), "limits.ttl_max"),
        (
            with("[limits]\nttl_min = \"20s\"\nttl_max = \"10s\"\n"),
            "limits.ttl_max",
        ),
        (
            with("[limits]\nrequest_timeout_max = \"1s\"\n"),
            "limits.request_timeout_max",
        ),
        (
            with("[limits]\nwatch_history_events = 10\n"),
            "limits.watch_history_events",
        ),
        (with("[limits]\nwatchers_max = 0\n"), "limits.watchers_max"),
        (
            with("[storage]\nbackground_jobs = 0\n"),
            "storage.background_jobs",
        ),
        (
            with("[storage]\nwrite_buffer_bytes = 1\n"),
            "storage.write_buffer_bytes",
        ),
        (with("[log]\nlevel = \"loud=very\"\n"), "log.level"),
        (
            with("[identity]\ncluster_id = \"12\"\nnode_id = 1\n"),
            "identity.cluster_id",
        ),
        (
            with("[identity]\ncluster_id = \"00000000000000000000000000c0ffee\"\nnode_id = 0\n"),
            "identity.node_id",
        ),
        (
            MINIMAL.replace("127.0.0.1:7400", "0.0.0.0:7400"),
            "client.advertise",
        ),
        (with("advertise = \"here\"\n"), "peer.advertise"),
        (
            with("[peer.tls]\ncert = \"a\"\nkey = \"b\"\n"),
            "peer.tls.ca",
        ),
    ] {
        let line = refused(&text);
        assert!(line.starts_with(&format!("config {key}: ")), "{line}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Config::load(Path::new("/nonexistent/tenure.toml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "config /nonexistent/tenure.toml cannot be read"
    );
}

/// The example in the reference page, which has every key.
fn example() -> &'static str {
    let (_, after) = REFERENCE.split_once("```toml\n").unwrap();
    after.split_once("```").unwrap().0
}

#[test]
fn the_example_of_the_reference_page_is_accepted() {
    Config::parse(example()).unwrap();
}

#[test]
fn every_key_is_in_the_reference_page_and_its_example() {
    let example: toml::Table = toml::from_str(example()).unwrap();
    let mut sections = vec![String::new()];
    let mut keys = 0;
    while let Some(section) = sections.pop() {
        for field in fields_of(&section) {
            let key = if section.is_empty() {
                field.clone()
            } else {
                format!("{section}.{field}")
            };
            let found = lookup(&example, &key);
            assert!(found.is_some(), "{key} is not in the example");
            if found.is_some_and(toml::Value::is_table) {
                sections.push(key);
                continue;
            }
            assert!(
                REFERENCE.contains(&format!("| `{key}` |")),
                "{key} is not in the page"
            );
            keys += 1;
        }
    }
    let described = REFERENCE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .count();
    assert_eq!(described, keys, "the page describes keys that do not exist");
}

/// The names of a section's keys: what the parser says it would have taken.
fn fields_of(section: &str) -> BTreeSet<String> {
    let header = if section.is_empty() {
        String::new()
    } else {
        format!("[{section}]\n")
    };
    let error = toml::from_str::<Config>(&format!("{header}no_such_key = 1\n")).unwrap_err();
    let message = error.message();
    assert!(
        message.starts_with("unknown field `no_such_key`"),
        "{section}: {message}"
    );
    message
        .split('`')
        .skip(3)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn lookup<'a>(table: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    let mut parts = key.split('.');
    let first = table.get(parts.next()?);
    parts.fold(first, |value, part| value?.get(part))
}
