//! The wire contract only grows, and every part of it is explained.
//!
//! `testdata/tenure.bin` is the contract that clients may have been built against. What it holds must
//! stay as it is: same number, type, label and name. What comes on top is accepted with `UPDATE=1`,
//! which writes the file anew; a change of what was there is refused whatever is set.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn built() -> FileDescriptorSet {
    FileDescriptorSet::decode(tenure_proto::FILE_DESCRIPTOR_SET).unwrap()
}

/// What a client may rely on: each element of the contract by its full name, with what must not
/// change about it.
fn elements(set: &FileDescriptorSet) -> BTreeMap<String, String> {
    let mut elements = BTreeMap::new();
    for file in &set.file {
        // What is imported from others keeps its own promises.
        if !file.package().starts_with("tenure.") {
            continue;
        }
        add_messages(&mut elements, file.package(), &file.message_type);
        add_enums(&mut elements, file.package(), &file.enum_type);
        add_services(&mut elements, file);
    }
    elements
}

fn add_messages(
    elements: &mut BTreeMap<String, String>,
    scope: &str,
    messages: &[DescriptorProto],
) {
    for message in messages {
        let name = format!("{scope}.{}", message.name());
        elements.insert(name.clone(), "message".to_owned());
        for field in &message.field {
            elements.insert(format!("{name}.{}", field.name()), shape(message, field));
        }
        add_messages(elements, &name, &message.nested_type);
        add_enums(elements, &name, &message.enum_type);
    }
}

fn shape(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let oneof = field
        .oneof_index
        .and_then(|index| message.oneof_decl.get(index as usize));
    let oneof = oneof.map_or("", |oneof| oneof.name());
    format!(
        "field {} {:?} {:?} {} oneof={oneof} optional={}",
        field.number(),
        field.label(),
        field.r#type(),
        field.type_name(),
        field.proto3_optional(),
    )
}

fn add_enums(
    elements: &mut BTreeMap<String, String>,
    scope: &str,
    enums: &[prost_types::EnumDescriptorProto],
) {
    for enumeration in enums {
        let name = format!("{scope}.{}", enumeration.name());
        elements.insert(name.clone(), "enum".to_owned());
        for value in &enumeration.value {
            elements.insert(
                format!("{name}.{}", value.name()),
                format!("value {}", value.number()),
            );
        }
    }
}

fn add_services(elements: &mut BTreeMap<String, String>, file: &FileDescriptorProto) {
    for service in &file.service {
        let name = format!("{}.{}", file.package(), service.name());
        elements.insert(name.clone(), "service".to_owned());
        for method in &service.method {
            let shape = format!(
                "rpc stream={} {} -> stream={} {}",
                method.client_streaming(),
                method.input_type(),
                method.server_streaming(),
                method.output_type(),
            );
            elements.insert(format!("{name}/{}", method.name()), shape);
        }
    }
}

/// Numbers and names of fields that may never be used again, by message.
fn reserved(set: &FileDescriptorSet) -> BTreeMap<String, &DescriptorProto> {
    fn add<'a>(
        found: &mut BTreeMap<String, &'a DescriptorProto>,
        scope: &str,
        messages: &'a [DescriptorProto],
    ) {
        for message in messages {
            let name = format!("{scope}.{}", message.name());
            add(found, &name, &message.nested_type);
            found.insert(name, message);
        }
    }
    let mut found = BTreeMap::new();
    for file in &set.file {
        add(&mut found, file.package(), &file.message_type);
    }
    found
}

/// What is wrong with `new` for a client that was built against `old`. A field may leave if its
/// number and its name are reserved; everything else stays for ever.
fn breaks(old: &FileDescriptorSet, new: &FileDescriptorSet) -> Vec<String> {
    let now = elements(new);
    let messages = reserved(new);
    let mut breaks = Vec::new();
    for (name, was) in elements(old) {
        match now.get(&name) {
            Some(is) if *is == was => {}
            Some(is) => breaks.push(format!("{name} was `{was}`, is `{is}`")),
            None => {
                let left_in_order = name
                    .rsplit_once('.')
                    .and_then(|(message, field)| Some((messages.get(message)?, field)))
                    .is_some_and(|(message, field)| is_reserved(message, field, &was));
                if !left_in_order {
                    breaks.push(format!(
                        "{name} is gone; reserve the number and name of a field"
                    ));
                }
            }
        }
    }
    breaks
}

fn is_reserved(message: &DescriptorProto, field: &str, shape: &str) -> bool {
    let number = shape
        .strip_prefix("field ")
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    let Some(number) = number else { return false };
    let numbers = &message.reserved_range;
    numbers
        .iter()
        .any(|range| (range.start()..range.end()).contains(&number))
        && message.reserved_name.iter().any(|name| name == field)
}

#[test]
fn the_contract_only_grows() {
    let path = folder().join("testdata/tenure.bin");
    let new = built();
    let old = match fs::read(&path) {
        Ok(bytes) => FileDescriptorSet::decode(bytes.as_slice()).unwrap(),
        // The first contract there is.
        Err(_) => FileDescriptorSet::default(),
    };
    let broken = breaks(&old, &new);
    assert!(
        broken.is_empty(),
        "the contract of clients is broken:\n{}",
        broken.join("\n")
    );

    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, tenure_proto::FILE_DESCRIPTOR_SET).unwrap();
        return;
    }
    let was = elements(&old);
    let added: Vec<_> = elements(&new)
        .into_keys()
        .filter(|name| !was.contains_key(name))
        .collect();
    assert!(
        added.is_empty(),
        "the contract has grown by\n{}\nIf that is meant: UPDATE=1 cargo test -p tenure-proto --test \
         contract, and commit testdata/tenure.bin",
        added.join("\n"),
    );
}

/// Changes the message `tenure.v1.Cursor` of the contract.
fn with_cursor(change: impl Fn(&mut DescriptorProto)) -> FileDescriptorSet {
    let mut set = built();
    let messages = set.file.iter_mut().flat_map(|file| &mut file.message_type);
    let cursor = messages
        .into_iter()
        .find(|message| message.name() == "Cursor")
        .unwrap();
    change(cursor);
    set
}

#[test]
fn a_change_of_what_was_there_is_refused() {
    let old = built();
    let changed: [(&str, FileDescriptorSet); 5] = [
        (
            "number",
            with_cursor(|cursor| cursor.field[0].number = Some(9)),
        ),
        (
            "name",
            with_cursor(|cursor| cursor.field[0].name = Some("index".to_owned())),
        ),
        (
            "type",
            with_cursor(|cursor| {
                cursor.field[0].set_type(prost_types::field_descriptor_proto::Type::Sint64)
            }),
        ),
        (
            "label",
            with_cursor(|cursor| {
                cursor.field[0].set_label(prost_types::field_descriptor_proto::Label::Repeated)
            }),
        ),
        (
            "absence",
            with_cursor(|cursor| drop(cursor.field.remove(0))),
        ),
    ];
    for (what, new) in changed {
        let broken = breaks(&old, &new);
        assert_eq!(broken.len(), 1, "{what}: {broken:?}");
        assert!(
            broken[0].starts_with("tenure.v1.Cursor.revision "),
            "{what}: {broken:?}"
        );
    }
    assert_eq!(breaks(&old, &old), [""; 0]);
}

#[test]
fn a_renumbered_enum_value_and_a_changed_method_are_refused() {
    let old = built();
    let mut new = built();
    let file = new
        .file
        .iter_mut()
        .find(|file| !file.service.is_empty())
        .unwrap();
    file.service[0].method[0].server_streaming = Some(!old_streams(file));
    let common = new
        .file
        .iter_mut()
        .find(|file| file.name().ends_with("common.proto"))
        .unwrap();
    common.enum_type[0].value[1].number = Some(77);
    let broken = breaks(&old, &new);
    assert_eq!(broken.len(), 2, "{broken:?}");
}

fn old_streams(file: &FileDescriptorProto) -> bool {
    file.service[0].method[0].server_streaming()
}

#[test]
fn a_field_may_leave_if_its_number_and_name_are_reserved() {
    let old = built();
    let range = |start, end| prost_types::descriptor_proto::ReservedRange {
        start: Some(start),
        end: Some(end),
    };
    let reserved = with_cursor(|cursor| {
        cursor.field.remove(0);
        cursor.reserved_range.push(range(1, 2));
        cursor.reserved_name.push("revision".to_owned());
    });
    assert_eq!(breaks(&old, &reserved), [""; 0]);
    let number_only = with_cursor(|cursor| {
        cursor.field.remove(0);
        cursor.reserved_range.push(range(1, 2));
    });
    assert_eq!(breaks(&old, &number_only).len(), 1);
}

/// Elements of a protocol file without a comment before them, as `line: text`.
fn uncommented(text: &str) -> Vec<String> {
    let mut bare = Vec::new();
    let mut scopes: Vec<&str> = Vec::new();
    let mut commented = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("//") {
            commented = true;
            continue;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        let first = words.first().copied().unwrap_or_default();
        let scope = scopes.last().copied().unwrap_or_default();
        let opens = line.ends_with('{') || line.ends_with("{}");
        let must_be_explained = match (first, scope) {
            // The names of requests and answers say whose they are; their fields are explained.
            ("message", _) => !["Request", "Response"]
                .iter()
                .any(|end| words[1].ends_with(end)),
            ("enum" | "service" | "rpc", _) => true,
            // The zero of an enum means that nothing was said.
            (_, "enum") => line.ends_with(';') && !first.ends_with("_UNSPECIFIED"),
            (_, "message") => line.ends_with(';') && first != "reserved" && first != "option",
            // The messages in a oneof say themselves what they are.
            _ => false,
        };
        if must_be_explained && !commented {
            bare.push(format!("{}: {line}", number + 1));
        }
        if opens && !line.ends_with("{}") {
            scopes.push(match first {
                "message" | "enum" | "service" | "oneof" => first,
                _ => "other",
            });
        }
        if line == "}" {
            scopes.pop();
        }
        commented = false;
    }
    bare
}

fn protocol_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(protocol_files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_element_of_the_contract_is_explained() {
    let files = protocol_files(&folder().join("tenure"));
    assert!(
        files
            .iter()
            .any(|path| path.ends_with("tenure/v1/worker.proto"))
    );
    let mut bare = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(folder()).unwrap().display().to_string();
        bare.extend(
            uncommented(&text)
                .into_iter()
                .map(|line| format!("{name}:{line}")),
        );
    }
    assert!(bare.is_empty(), "without a comment:\n{}", bare.join("\n"));
}

#[test]
fn an_element_without_a_comment_is_noticed() {
    let text = "\
// A thing.
message Thing {
  // Its size.
  uint64 size = 1;
  uint64 weight = 2;
  oneof kind {
    Other other = 3;
  }
}

message ThingRequest {
  string name = 1;
}

enum Colour {
  COLOUR_UNSPECIFIED = 0;
  COLOUR_RED = 1;
}

// Service.
service Things {
  rpc Get(ThingRequest) returns (Thing);
}
";
    let lines: Vec<_> = uncommented(text);
    assert_eq!(
        lines,
        [
            "5: uint64 weight = 2;",
            "12: string name = 1;",
            "15: enum Colour {",
            "17: COLOUR_RED = 1;",
            "22: rpc Get(ThingRequest) returns (Thing);",
        ],
    );
}

/// Names in the first column of the table in a page.
fn listed(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}

/// Reasons are the constants whose value is their name; metadata keys are in lower case.
fn declared(source: &str) -> Vec<&str> {
    source
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = "))
        .filter(|(name, value)| value.trim_matches(['"', ';']) == *name)
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn every_reason_is_in_the_page_about_errors_and_no_other() {
    let page = fs::read_to_string(folder().join("../docs/errors.md")).unwrap();
    let source = fs::read_to_string(folder().join("src/reason.rs")).unwrap();
    let (mut listed, mut declared) = (listed(&page), declared(&source));
    listed.sort_unstable();
    declared.sort_unstable();
    assert!(declared.contains(&tenure_proto::reason::NOT_LEADER));
    assert_eq!(
        listed, declared,
        "docs/errors.md and proto/src/reason.rs differ"
    );
}
