//! A disk that can be full: a small file system in memory.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::network::output;
use crate::failure::Failure;

/// The size. Write buffers, logs and snapshots of a node take much less in a run.
const SIZE_MIB: u64 = 384;

/// The file that takes all the room there is.
const BALLAST: &str = "ballast";

/// Bytes that are written at one time to fill it.
const CHUNK_BYTES: usize = 1 << 20;

/// A mounted disk. Unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    mount: PathBuf,
}

impl SmallDisk {
    /// Mounts an empty disk at a folder, which is created. `name` is what the table of mounts says.
    ///
    /// # Errors
    ///
    /// When it cannot be mounted.
    pub fn mount(folder: &Path, name: &str) -> Result<Self, Failure> {
        fs::create_dir_all(folder)?;
        let size = format!("size={SIZE_MIB}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, name]);
        output(mount.arg(folder)).map_err(|failure| failure.during("mount"))?;
        let mount = folder.to_owned();
        Ok(Self { mount })
    }

    /// Fills it.
    ///
    /// # Errors
    ///
    /// When that fails for another reason than that it is full.
    pub async fn fill(&self) -> Result<(), Failure> {
        let path = self.mount.join(BALLAST);
        let filling = move || {
            let mut ballast = File::create(path)?;
            let mut chunk = vec![0_u8; CHUNK_BYTES];
            // At last byte by byte: nothing is to fit beside it.
            while !chunk.is_empty() {
                match ballast.write_all(&chunk) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                        chunk.truncate(chunk.len() / 2);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        Ok(tokio::task::spawn_blocking(filling).await??)
    }

    /// Frees it again.
    ///
    /// # Errors
    ///
    /// When the ballast cannot be removed.
    pub fn free(&self) -> Result<(), Failure> {
        Ok(fs::remove_file(self.mount.join(BALLAST))?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that was just killed may still hold files in it.
        let _left = output(Command::new("umount").arg("--lazy").arg(&self.mount));
    }
}
