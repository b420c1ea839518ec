//! Ports that nobody else takes while a story uses them.

use std::env;
use std::fs::{self, File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::failure::Failure;

/// Ports of one block.
const BLOCK: u16 = 20;

/// First port that is handed out.
const FIRST: u16 = 15_000;

/// Ports below the range from which the kernel takes the ports of outgoing connections.
///
/// A port that was free a moment ago, the usual way, may be taken by any connection before the node
/// listens there, or while it is restarted. So blocks come from below that range, and a lock on a file
/// keeps other stories away from a block, in this process and in others, until it is dropped.
#[derive(Debug)]
pub struct Ports {
    first: u16,
    used: u16,
    _lock: File,
}

impl Ports {
    /// Reserves a block of ports on which nobody listens.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn reserve() -> Result<Self, Failure> {
        let folder = env::temp_dir().join("tenure-story-ports");
        fs::create_dir_all(&folder)?;
        let end = first_outgoing_port()?;
        for first in (FIRST..end.saturating_sub(BLOCK)).step_by(usize::from(BLOCK)) {
            let lock = File::create(folder.join(first.to_string()))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            if (first..first + BLOCK).all(is_free) {
                return Ok(Self {
                    first,
                    used: 0,
                    _lock: lock,
                });
            }
        }
        Err(Failure::new(format!(
            "no block of {BLOCK} free ports from {FIRST} to {end}"
        )))
    }

    /// Returns the next address of the block.
    ///
    /// # Errors
    ///
    /// When all are used.
    pub fn take(&mut self) -> Result<SocketAddr, Failure> {
        if self.used == BLOCK {
            return Err(Failure::new(format!(
                "all {BLOCK} ports of the block are used"
            )));
        }
        let port = self.first + self.used;
        self.used += 1;
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }
}

fn first_outgoing_port() -> Result<u16, Failure> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let first = range
        .split_whitespace()
        .next()
        .and_then(|first| first.parse().ok());
    first.ok_or_else(|| Failure::new(format!("cannot read the port range {range:?}")))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reservations_never_share_a_port() {
        let (mut left, mut right) = (Ports::reserve().unwrap(), Ports::reserve().unwrap());
        let of = |ports: &mut Ports| -> Vec<SocketAddr> {
            std::iter::from_fn(|| ports.take().ok()).collect()
        };
        let (left, right) = (of(&mut left), of(&mut right));
        assert_eq!(
            (left.len(), right.len()),
            (usize::from(BLOCK), usize::from(BLOCK))
        );
        assert!(left.iter().all(|address| !right.contains(address)));
    }
}
