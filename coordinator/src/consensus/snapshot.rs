//! The snapshot file: all records of the state at one log entry.
//!
//! ```text
//!   "TENURESN"  8 bytes
//!   header      length u32, CRC-32C u32, message SnapshotHeader
//!   chunk*      length u32 (1 to 1 MiB), CRC-32C u32, bytes
//!   end         length 0, CRC-32C u32 over all chunks' bytes, number of records u64
//! ```
//!
//! Integers are little-endian. The chunks' bytes, put together, are records: length of the key u32,
//! length of the value u32, key, value; ascending by key.
//!
//! A file is read back only whole: every checksum, the number of records and the end must be right,
//! or the file is refused as [`SnapshotError::Corrupt`].

use std::io::{self, Read, Write};

use bytes::Bytes;
use prost::Message;
use tenure_ownership::ids::ClusterId;
use tenure_proto::raft::v1 as pb;

use super::codec::{self, CodecError};
use super::types::{LogId, StoredMembership};
use crate::storage::{FileWriter, Files, Record, StorageError};

const MAGIC: &[u8; 8] = b"TENURESN";

/// Layout that this release writes, and the only one it reads.
const FORMAT: u32 = 1;

/// Bytes of one chunk, at most.
pub(super) const CHUNK_BYTES_MAX: usize = 1 << 20;

/// A larger header, key or value is taken for damage rather than allocated.
const PART_BYTES_MAX: usize = 1 << 30;

/// A finished snapshot file. Its content is fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SnapshotFile {
    /// Its name among [`Files`].
    pub(super) name: String,
    /// Its length.
    pub(super) size_bytes: u64,
    /// CRC-32C of all of it.
    pub(super) crc32c: u32,
}

/// Why a snapshot could not be written or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    /// The file is not what was written.
    #[error("corrupt snapshot {name}: {reason}")]
    Corrupt {
        /// Name of the file.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The file belongs to another cluster.
    #[error("snapshot {name} belongs to cluster {found}, not {expected}")]
    Foreign {
        /// Name of the file.
        name: String,
        /// The cluster in its header.
        found: ClusterId,
        /// The node's own cluster.
        expected: ClusterId,
    },
    /// The file could not be written or read.
    #[error("snapshot cannot be written or read")]
    Io(#[from] io::Error),
    /// The records could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<SnapshotError> for io::Error {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Io(error) => error,
            SnapshotError::Storage(error) => error.into(),
            refused => Self::new(io::ErrorKind::InvalidData, refused),
        }
    }
}

/// What a snapshot contains, and of which cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SnapshotContent {
    pub(super) cluster: ClusterId,
    pub(super) last_log_id: Option<LogId>,
    pub(super) membership: StoredMembership,
}

/// Writes a snapshot file, record by record.
pub(super) struct SnapshotWriter {
    name: String,
    file: Box<dyn FileWriter>,
    chunk: Vec<u8>,
    records: u64,
    size_bytes: u64,
    file_crc32c: u32,
    content_crc32c: u32,
}

impl SnapshotWriter {
    /// Begins a file.
    pub(super) fn create(
        files: &dyn Files,
        name: &str,
        content: &SnapshotContent,
    ) -> Result<Self, SnapshotError> {
        let mut writer = Self {
            name: name.to_owned(),
            file: files.create(name)?,
            chunk: Vec::with_capacity(CHUNK_BYTES_MAX),
            records: 0,
            size_bytes: 0,
            file_crc32c: 0,
            content_crc32c: 0,
        };
        let header = pb::SnapshotHeader {
            format: FORMAT,
            cluster_id: codec::cluster_to_proto(content.cluster),
            last_log_id: content.last_log_id.as_ref().map(codec::log_id_to_proto),
            membership: Some(codec::stored_membership_to_proto(&content.membership)),
        }
        .encode_to_vec();
        writer.raw(MAGIC)?;
        writer.part(&header)?;
        Ok(writer)
    }

    /// Adds a record. Keys come in ascending order.
    pub(super) fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), SnapshotError> {
        self.content(&length(key)?.to_le_bytes())?;
        self.content(&length(value)?.to_le_bytes())?;
        self.content(key)?;
        self.content(value)?;
        self.records += 1;
        Ok(())
    }

    /// Ends the file and makes it durable.
    pub(super) fn finish(mut self) -> Result<SnapshotFile, SnapshotError> {
        if !self.chunk.is_empty() {
            self.flush_chunk()?;
        }
        let (crc32c, records) = (self.content_crc32c, self.records);
        self.raw(&0_u32.to_le_bytes())?;
        self.raw(&crc32c.to_le_bytes())?;
        self.raw(&records.to_le_bytes())?;
        self.file.flush()?;
        self.file.sync()?;
        Ok(SnapshotFile {
            name: self.name,
            size_bytes: self.size_bytes,
            crc32c: self.file_crc32c,
        })
    }

    fn content(&mut self, mut bytes: &[u8]) -> Result<(), SnapshotError> {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES_MAX - self.chunk.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.chunk.extend_from_slice(now);
            bytes = later;
            if self.chunk.len() == CHUNK_BYTES_MAX {
                self.flush_chunk()?;
            }
        }
        Ok(())
    }

    fn flush_chunk(&mut self) -> Result<(), SnapshotError> {
        let chunk = std::mem::take(&mut self.chunk);
        self.content_crc32c = crc32c::crc32c_append(self.content_crc32c, &chunk);
        self.part(&chunk)?;
        self.chunk = chunk;
        self.chunk.clear();
        Ok(())
    }

    fn part(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.raw(&length(bytes)?.to_le_bytes())?;
        self.raw(&crc32c::crc32c(bytes).to_le_bytes())?;
        self.raw(bytes)
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.file.write_all(bytes)?;
        self.size_bytes += bytes.len() as u64;
        self.file_crc32c = crc32c::crc32c_append(self.file_crc32c, bytes);
        Ok(())
    }
}

fn length(bytes: &[u8]) -> Result<u32, SnapshotError> {
    u32::try_from(bytes.len())
        .map_err(|_| io::Error::other("a part of 4 GiB does not fit into a snapshot").into())
}

/// Reads a snapshot file, record by record.
pub(super) struct SnapshotReader {
    name: String,
    file: io::BufReader<Box<dyn Read + Send>>,
    content: SnapshotContent,
    /// Bytes of chunks read and not yet handed out, from `consumed` on.
    buffer: Vec<u8>,
    consumed: usize,
    records: u64,
    content_crc32c: u32,
    ended: bool,
}

impl SnapshotReader {
    /// Opens a file and reads its header. It must be of the node's own cluster.
    pub(super) fn open(
        files: &dyn Files,
        name: &str,
        cluster: ClusterId,
    ) -> Result<Self, SnapshotError> {
        Self::begin(name, files.open(name)?, Some(cluster))
    }

    /// Reads the header of a file of whatever cluster, as a backup is. `name` is for messages.
    pub(super) fn of_any_cluster(
        name: &str,
        file: Box<dyn Read + Send>,
    ) -> Result<Self, SnapshotError> {
        Self::begin(name, file, None)
    }

    fn begin(
        name: &str,
        file: Box<dyn Read + Send>,
        cluster: Option<ClusterId>,
    ) -> Result<Self, SnapshotError> {
        let mut reader = Self {
            name: name.to_owned(),
            file: io::BufReader::with_capacity(CHUNK_BYTES_MAX, file),
            content: SnapshotContent {
                cluster: cluster.unwrap_or(ClusterId(0)),
                last_log_id: None,
                membership: StoredMembership::default(),
            },
            buffer: Vec::new(),
            consumed: 0,
            records: 0,
            content_crc32c: 0,
            ended: false,
        };
        let mut magic = [0; 8];
        reader.exact(&mut magic)?;
        if &magic != MAGIC {
            return Err(reader.corrupt("it does not begin like a snapshot"));
        }
        let length = reader.u32()?;
        let header = reader.part(length)?;
        reader.content = reader.header(header, cluster)?;
        Ok(reader)
    }

    /// Returns what the header says.
    pub(super) fn content(&self) -> &SnapshotContent {
        &self.content
    }

    /// Returns the next record, or `None` after the last, when all of the file has been checked.
    pub(super) fn next_record(&mut self) -> Result<Option<Record>, SnapshotError> {
        if !self.fill(8)? {
            return match self.buffer.len() - self.consumed {
                0 => Ok(None),
                _ => Err(self.corrupt("it ends inside a record")),
            };
        }
        let key_length = self.taken_length()?;
        let value_length = self.taken_length()?;
        if !self.fill(key_length + value_length)? {
            return Err(self.corrupt("it ends inside a record"));
        }
        let key = self.take(key_length);
        let value = self.take(value_length);
        self.records += 1;
        Ok(Some((key, value)))
    }

    fn header(
        &self,
        bytes: Vec<u8>,
        cluster: Option<ClusterId>,
    ) -> Result<SnapshotContent, SnapshotError> {
        let undecodable = |error: CodecError| self.corrupt(&error.to_string());
        let header: pb::SnapshotHeader =
            codec::decode("snapshot header", Bytes::from(bytes)).map_err(undecodable)?;
        if header.format != FORMAT {
            return Err(self.corrupt(&format!("its format is {}, not {FORMAT}", header.format)));
        }
        let found = codec::cluster_from_proto(&header.cluster_id).map_err(undecodable)?;
        if let Some(expected) = cluster.filter(|expected| *expected != found) {
            return Err(SnapshotError::Foreign {
                name: self.name.clone(),
                found,
                expected,
            });
        }
        Ok(SnapshotContent {
            cluster: found,
            last_log_id: header.last_log_id.map(codec::log_id_from_proto),
            membership: codec::stored_membership_from_proto(header.membership)
                .map_err(undecodable)?,
        })
    }

    /// Reads chunks until `needed` bytes are at hand; `false` if the file ends before.
    fn fill(&mut self, needed: usize) -> Result<bool, SnapshotError> {
        while self.buffer.len() - self.consumed < needed {
            if self.ended {
                return Ok(false);
            }
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
            self.read_chunk()?;
        }
        Ok(true)
    }

    fn read_chunk(&mut self) -> Result<(), SnapshotError> {
        let length = self.u32()?;
        if length == 0 {
            return self.read_end();
        }
        if length as usize > CHUNK_BYTES_MAX {
            return Err(self.corrupt("a chunk is too long"));
        }
        let chunk = self.part(length)?;
        self.content_crc32c = crc32c::crc32c_append(self.content_crc32c, &chunk);
        self.buffer.extend_from_slice(&chunk);
        Ok(())
    }

    fn read_end(&mut self) -> Result<(), SnapshotError> {
        let crc32c = self.u32()?;
        let mut records = [0; 8];
        self.exact(&mut records)?;
        if crc32c != self.content_crc32c {
            return Err(self.corrupt("the checksum of its records is wrong"));
        }
        // The end is read when nothing but the last record's absence is left to find out.
        if u64::from_le_bytes(records) != self.records {
            return Err(self.corrupt("it does not hold as many records as it says"));
        }
        if self.file.read(&mut [0])? != 0 {
            return Err(self.corrupt("something follows its end"));
        }
        self.ended = true;
        Ok(())
    }

    fn taken_length(&mut self) -> Result<usize, SnapshotError> {
        let bytes = self.take(4);
        let length = bytes.try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX) as usize;
        if length > PART_BYTES_MAX {
            return Err(self.corrupt("a record is too long"));
        }
        Ok(length)
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let end = self.consumed + length;
        let taken = self
            .buffer
            .get(self.consumed..end)
            .unwrap_or_default()
            .to_vec();
        self.consumed = end;
        taken
    }

    fn part(&mut self, length: u32) -> Result<Vec<u8>, SnapshotError> {
        if length as usize > PART_BYTES_MAX {
            return Err(self.corrupt("a part is too long"));
        }
        let crc32c = self.u32()?;
        let mut bytes = vec![0; length as usize];
        self.exact(&mut bytes)?;
        if crc32c::crc32c(&bytes) != crc32c {
            return Err(self.corrupt("the checksum of a part is wrong"));
        }
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn exact(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotError> {
        self.file
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.corrupt("it ends too early"),
                _ => SnapshotError::Io(error),
            })
    }

    fn corrupt(&self, reason: &str) -> SnapshotError {
        SnapshotError::Corrupt {
            name: self.name.clone(),
            reason: reason.to_owned(),
        }
    }
}
