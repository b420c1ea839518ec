//! A network of hosts that are network namespaces, on one bridge, which can be cut at any place.
//!
//! ```text
//!   tchaos3-node-1 ── veth ──┐
//!   tchaos3-node-2 ── veth ──┼── bridge, in tchaos3-hub ── veth ── tchaos3: this process, never cut off
//!   tchaos3-worker-1 ─ veth ─┘
//! ```
//!
//! Each host drops what it is told to (see `rules`), so that a partition may have one direction. Nothing
//! of the machine's own network is changed, but for the one interface through which the processes are
//! watched. Needs root, `ip` and `nft`.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal};

use super::rules::Rules;
use crate::failure::Failure;

/// What the names of all namespaces begin with, before the number of the network.
const PREFIX: &str = "tchaos";

/// Networks that may exist at one time: the third byte of their addresses.
const NETWORKS: u8 = 64;

/// The last byte of the address of this process.
const OUTSIDE: u8 = 254;

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// The machine of a coordinator, by its place, from 1.
    Node(u8),
    /// The machine of a worker, by its place, from 1.
    Worker(u8),
}

impl Host {
    /// Returns the last byte of its address.
    fn last_byte(self) -> u8 {
        match self {
            Self::Node(place) => 10 + place,
            Self::Worker(place) => 100 + place,
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Node(place) => format!("node-{place}"),
            Self::Worker(place) => format!("worker-{place}"),
        }
    }
}

/// The addresses of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    number: u8,
}

impl Addresses {
    /// Returns those of the network of this number.
    #[must_use]
    pub fn new(number: u8) -> Self {
        Self { number }
    }

    /// Returns the address of a host.
    #[must_use]
    pub fn of(self, host: Host) -> Ipv4Addr {
        Ipv4Addr::new(10, 231, self.number, host.last_byte())
    }

    /// Returns the address of this process.
    #[must_use]
    pub fn outside(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 231, self.number, OUTSIDE)
    }
}

/// The namespaces of one run. Removed when dropped.
#[derive(Debug)]
pub struct Network {
    number: u8,
    hosts: Vec<Host>,
    /// The rules each host has.
    loaded: BTreeMap<Host, String>,
    // Last: the number is free when everything is gone.
    _lock: File,
}

impl Network {
    /// Removes what aborted runs left behind, and makes a network of these hosts.
    ///
    /// # Errors
    ///
    /// Without root, or without the programs `ip` and `nft`.
    pub fn create(hosts: Vec<Host>) -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new(
                "network namespaces need root: run this as root, or with sudo",
            ));
        }
        for program in ["ip", "nft"] {
            output(Command::new(program).arg("-V")).map_err(|failure| {
                failure.during(format!("{program} (iproute2 and nftables) is needed"))
            })?;
        }
        let (number, lock) = take_number()?;
        let network = Self {
            number,
            hosts,
            loaded: BTreeMap::new(),
            _lock: lock,
        };
        network.build()?;
        Ok(network)
    }

    /// Returns what names everything of this run on the machine.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.number)
    }

    /// Returns the addresses.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        Addresses::new(self.number)
    }

    /// Returns a command that begins a program on a host; the program and its arguments follow.
    #[must_use]
    pub fn command(&self, host: Host) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]);
        command
    }

    /// Makes the hosts drop and redirect what the rules say, and nothing else.
    ///
    /// # Errors
    ///
    /// When the kernel does not take the rules.
    pub fn apply(&mut self, rules: &Rules) -> Result<(), Failure> {
        for host in self.hosts.clone() {
            let text = rules.of(host, self.addresses());
            if self.loaded.get(&host) != Some(&text) {
                self.load(host, &text)?;
                self.loaded.insert(host, text);
            }
        }
        Ok(())
    }

    fn load(&self, host: Host, text: &str) -> Result<(), Failure> {
        let mut nft = Command::new("ip")
            .args(["netns", "exec", &self.namespace(host), "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = nft.stdin.take() {
            stdin.write_all(text.as_bytes())?;
        }
        checked(nft.wait_with_output()?)
            .map(drop)
            .map_err(|failure| failure.during(format!("rules of {}:\n{text}", host.name())))
    }

    fn build(&self) -> Result<(), Failure> {
        let (hub, outside) = (self.hub(), self.name());
        ip(&format!("netns add {hub}"))?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        for &host in &self.hosts {
            let (space, port) = (self.namespace(host), format!("port{}", host.last_byte()));
            let address = self.addresses().of(host);
            ip(&format!("netns add {space}"))?;
            ip(&format!(
                "-n {hub} link add {port} type veth peer name eth0 netns {space}"
            ))?;
            ip(&format!("-n {hub} link set {port} master bridge up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} addr add {address}/24 dev eth0"))?;
            ip(&format!("-n {space} link set eth0 up"))?;
        }
        ip(&format!(
            "link add {outside} type veth peer name outside netns {hub}"
        ))?;
        ip(&format!("-n {hub} link set outside master bridge up"))?;
        let address = self.addresses().outside();
        ip(&format!("addr add {address}/24 dev {outside}"))?;
        ip(&format!("link set {outside} up"))
    }

    fn hub(&self) -> String {
        format!("{PREFIX}{}-hub", self.number)
    }

    fn namespace(&self, host: Host) -> String {
        format!("{PREFIX}{}-{}", self.number, host.name())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Nobody is left to be told; the next run removes what is still there.
        let _left = remove(self.number);
    }
}

/// Locks a number that no other process uses, and removes what earlier users of any free number left.
fn take_number() -> Result<(u8, File), Failure> {
    let folder = env::temp_dir().join("tenure-chaos-networks");
    fs::create_dir_all(&folder)?;
    let mut taken = None;
    for number in 0..NETWORKS {
        let lock = File::create(folder.join(number.to_string()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        remove(number)?;
        taken = taken.or(Some((number, lock)));
    }
    taken.ok_or_else(|| Failure::new(format!("all {NETWORKS} networks are in use")))
}

/// Removes the namespaces of a number, after the processes that still run in them.
fn remove(number: u8) -> Result<(), Failure> {
    let prefix = format!("{PREFIX}{number}-");
    let listed = output(Command::new("ip").args(["netns", "list"]))?;
    let names = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| name.starts_with(&prefix)) {
        let inside = output(Command::new("ip").args(["netns", "pids", name]))?;
        let inside = inside.lines().filter_map(|pid| pid.trim().parse().ok());
        for pid in inside.filter_map(Pid::from_raw) {
            // It may have ended meanwhile.
            let _ended = rustix::process::kill_process(pid, Signal::KILL);
        }
        ip(&format!("netns del {name}"))?;
    }
    unmount(&format!("{PREFIX}{number}"))?;
    // Its other end is gone with the hub, but the kernel takes its time.
    let _gone = ip(&format!("link del {PREFIX}{number}"));
    Ok(())
}

/// Unmounts the disks that an aborted run left.
fn unmount(name: &str) -> Result<(), Failure> {
    for mount in fs::read_to_string("/proc/mounts")?.lines() {
        let mut columns = mount.split(' ');
        if let (Some(source), Some(folder)) = (columns.next(), columns.next())
            && source == name
        {
            output(Command::new("umount").arg("--lazy").arg(folder))?;
        }
    }
    Ok(())
}

/// Runs `ip` with arguments that are separated by spaces.
fn ip(arguments: &str) -> Result<(), Failure> {
    output(Command::new("ip").args(arguments.split(' ')))
        .map(drop)
        .map_err(|failure| failure.during(format!("ip {arguments}")))
}

/// Runs a command and returns what it wrote to stdout.
pub(super) fn output(command: &mut Command) -> Result<String, Failure> {
    checked(command.stdin(Stdio::null()).output()?)
}

fn checked(output: Output) -> Result<String, Failure> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("{}: {}", output.status, said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
