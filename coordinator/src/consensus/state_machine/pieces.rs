//! Reading a snapshot file to send it.

use std::io;

use bytes::Bytes;

use super::shared::Shared;
use crate::storage::StorageError;

/// Reads a whole snapshot file in pieces, to send it.
pub(in super::super) struct SnapshotPieces {
    file: Box<dyn io::Read + Send>,
}

impl SnapshotPieces {
    /// Opens a file. Blocks.
    pub(in super::super) fn open(shared: &Shared, name: &str) -> Result<Self, StorageError> {
        Ok(Self {
            file: shared.storage.files().open(name)?,
        })
    }

    /// Returns the next piece of at most `bytes_max` bytes, or `None` at the end. Blocks.
    pub(in super::super) fn next(&mut self, bytes_max: usize) -> io::Result<Option<Bytes>> {
        let mut piece = vec![0; bytes_max];
        let mut filled = 0;
        while let Some(room) = piece.get_mut(filled..)
            && !room.is_empty()
        {
            match self.file.read(room)? {
                0 => break,
                read => filled += read,
            }
        }
        piece.truncate(filled);
        Ok((filled > 0).then(|| Bytes::from(piece)))
    }
}
