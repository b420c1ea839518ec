//! `tenure cluster backup`.
//!
//! The backup goes to a temporary file beside the one named, is read back to its end, and only then gets
//! its name: what bears the name of a backup is one.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;
use tenure_proto::v1;
use tenure_proto::v1::backup_response::Part;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;
use tonic::Streaming;

use crate::command::BackupArguments;
use crate::connection::Connection;
use crate::console::Console;
use crate::error::CliError;
use crate::text::{self, Wide};

/// Bytes that are read back at a time.
const READ_BYTES: usize = 256 << 10;

pub(crate) async fn run(
    connection: &Connection,
    console: &mut Console<'_>,
    arguments: &BackupArguments,
) -> Result<(), CliError> {
    let file = &arguments.to;
    if !arguments.overwrite && file.exists() {
        return Err(exists(file));
    }
    let temporary = create_beside(file)?;
    let request = v1::BackupRequest {
        local: arguments.local,
    };
    let mut parts = connection
        .subscribe(request, |channel, request| async move {
            ClusterServiceClient::new(channel).backup(request).await
        })
        .await?;
    let header = match next(&mut parts).await? {
        Some(Part::Header(header)) => header,
        _ => return Err(CliError::incomplete("the header of the backup")),
    };
    let (temporary, received) = receive(&mut parts, temporary, &header).await?;
    received.check(&header)?;
    temporary
        .as_file()
        .sync_all()
        .map_err(|error| unwritable(temporary.path(), &error))?;
    let stored =
        Content::of(temporary.path()).map_err(|error| unwritable(temporary.path(), &error))?;
    stored.check(&header)?;
    name_finally(temporary, arguments)?;
    show(console, file, &header)
}

/// Length and checksum of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    size_bytes: u64,
    crc32c: u32,
}

impl Content {
    fn add(&mut self, bytes: &[u8]) {
        self.size_bytes += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
    }

    fn of(path: &Path) -> io::Result<Self> {
        let mut file = fs::File::open(path)?;
        let mut buffer = vec![0; READ_BYTES];
        let mut content = Self::default();
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(content),
                read => content.add(buffer.get(..read).unwrap_or_default()),
            }
        }
    }

    fn check(self, header: &v1::BackupHeader) -> Result<(), CliError> {
        if self.size_bytes == header.size_bytes && self.crc32c == header.crc32c {
            return Ok(());
        }
        Err(CliError::Failed {
            message: format!(
                "the backup is damaged or was cut short: {} of {} bytes, checksum {:08x} instead of \
                 {:08x}; nothing was kept",
                self.size_bytes, header.size_bytes, self.crc32c, header.crc32c
            ),
        })
    }
}

async fn next(parts: &mut Streaming<v1::BackupResponse>) -> Result<Option<Part>, CliError> {
    let message = parts
        .message()
        .await
        .map_err(|status| match status.code() {
            // Nothing was changed anywhere, and nothing is kept of what arrived.
            tonic::Code::Unknown | tonic::Code::Cancelled | tonic::Code::DeadlineExceeded => {
                CliError::Unavailable {
                    message: format!("the backup broke off: {}", status.message()),
                }
            }
            _ => CliError::from_status(&status),
        })?;
    match message {
        None => Ok(None),
        Some(message) => match message.part {
            Some(part) => Ok(Some(part)),
            None => Err(CliError::incomplete("a part that this program knows")),
        },
    }
}

/// Writes what arrives. The disk keeps the sender waiting, not the memory of this program.
async fn receive(
    parts: &mut Streaming<v1::BackupResponse>,
    mut temporary: NamedTempFile,
    header: &v1::BackupHeader,
) -> Result<(NamedTempFile, Content), CliError> {
    let mut received = Content::default();
    while let Some(part) = next(parts).await? {
        let Part::Piece(piece) = part else {
            return Err(CliError::incomplete("an end: it has two headers"));
        };
        received.add(&piece.bytes);
        if received.size_bytes > header.size_bytes {
            break;
        }
        let path = temporary.path().to_owned();
        temporary
            .write_all(&piece.bytes)
            .map_err(|error| unwritable(&path, &error))?;
    }
    Ok((temporary, received))
}

/// In the same folder, so that it can be renamed. Removed if it never is.
fn create_beside(file: &Path) -> Result<NamedTempFile, CliError> {
    let folder = folder_of(file);
    tempfile::Builder::new()
        .prefix(".tenure-backup-")
        .suffix(".unfinished")
        .tempfile_in(&folder)
        .map_err(|error| CliError::Usage {
            message: format!("--to: no file can be made in {}: {error}", folder.display()),
        })
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn name_finally(temporary: NamedTempFile, arguments: &BackupArguments) -> Result<(), CliError> {
    let file = &arguments.to;
    let named = if arguments.overwrite {
        temporary.persist(file)
    } else {
        temporary.persist_noclobber(file)
    };
    match named {
        Ok(_) => {}
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(exists(file));
        }
        Err(error) => return Err(unwritable(file, &error.error)),
    }
    // The name is to survive a loss of power too.
    fs::File::open(folder_of(file))
        .and_then(|folder| folder.sync_all())
        .map_err(|error| unwritable(file, &error))
}

fn exists(file: &Path) -> CliError {
    CliError::Refused {
        message: format!(
            "{} exists; name another file, or add --overwrite",
            file.display()
        ),
    }
}

fn unwritable(file: &Path, error: &io::Error) -> CliError {
    CliError::Failed {
        message: format!("{} cannot be written: {error}", file.display()),
    }
}

fn show(console: &mut Console<'_>, file: &Path, header: &v1::BackupHeader) -> Result<(), CliError> {
    if console.json() {
        return console.document(&View {
            file: file.display().to_string(),
            cluster_id: text::cluster_id(&header.cluster_id),
            node_id: Wide(header.node_id),
            revision: Wide(header.revision),
            groups: Wide(header.groups),
            shards: Wide(header.shards),
            bytes: Wide(header.size_bytes),
            crc32c: format!("{:08x}", header.crc32c),
        });
    }
    console.details(vec![
        ("file", file.display().to_string()),
        ("cluster", text::cluster_id(&header.cluster_id)),
        ("taken_on_node", header.node_id.to_string()),
        ("revision", header.revision.to_string()),
        ("groups", header.groups.to_string()),
        ("shards", header.shards.to_string()),
        ("size", text::bytes(header.size_bytes)),
        ("crc32c", format!("{:08x}", header.crc32c)),
    ])
}

#[derive(Serialize)]
struct View {
    file: String,
    cluster_id: String,
    node_id: Wide,
    revision: Wide,
    groups: Wide,
    shards: Wide,
    bytes: Wide,
    crc32c: String,
}
