//! A cluster of three etcd members.

use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use tokio::process::Command;

use crate::http;
use crate::installed;
use crate::server::{Crash, Program, Server};
use crate::site::Site;

/// Members of a cluster: the fewest that survive the loss of one.
const MEMBERS: usize = 3;

/// Three etcd members on this machine.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Server<EtcdMember>>,
    _ports: Ports,
}

/// One member of an [`EtcdCluster`].
#[derive(Debug)]
pub struct EtcdMember {
    name: String,
    client: SocketAddr,
    peer: SocketAddr,
    /// All members, as every one of them is told.
    cluster: String,
}

impl EtcdCluster {
    /// Starts three members and waits until each of them answers, which takes a leader.
    ///
    /// # Errors
    ///
    /// When they cannot be started.
    pub async fn start() -> Result<Self, Failure> {
        let mut ports = Ports::reserve()?;
        let mut addresses = Vec::with_capacity(MEMBERS);
        for number in 0..MEMBERS {
            addresses.push((format!("member-{number}"), ports.take()?, ports.take()?));
        }
        let cluster: Vec<String> = addresses
            .iter()
            .map(|(name, _, peer)| format!("{name}=http://{peer}"))
            .collect();
        let mut members = Vec::with_capacity(MEMBERS);
        for (name, client, peer) in addresses {
            let member = EtcdMember {
                name,
                client,
                peer,
                cluster: cluster.join(","),
            };
            members.push(Server::prepared(member).await?);
        }
        let mut cluster = Self {
            members,
            _ports: ports,
        };
        cluster.restart_all().await?;
        Ok(cluster)
    }

    /// Returns the URLs for clients, one for each member.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let addresses = self.addresses();
        addresses.iter().map(|at| format!("http://{at}")).collect()
    }

    /// Returns where the members listen for clients.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let members = self.members.iter();
        members.map(|member| member.program().client).collect()
    }

    /// Returns a member, to be killed or frozen by itself. They are numbered from zero.
    ///
    /// # Panics
    ///
    /// When there is no such member.
    pub fn member_mut(&mut self, number: usize) -> &mut Server<EtcdMember> {
        &mut self.members[number]
    }

    /// Kills all members.
    ///
    /// # Errors
    ///
    /// When one does not end.
    pub async fn kill_all(&mut self) -> Result<(), Failure> {
        for member in &mut self.members {
            member.kill().await?;
        }
        Ok(())
    }

    /// Starts all members again and waits until each answers. Those that run are killed first.
    ///
    /// # Errors
    ///
    /// When one does not answer.
    pub async fn restart_all(&mut self) -> Result<(), Failure> {
        self.kill_all().await?;
        // All, before any is waited for: one alone has no leader.
        for member in &mut self.members {
            member.spawn().await?;
        }
        for member in &mut self.members {
            member.ready().await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Crash for EtcdCluster {
    async fn kill(&mut self) -> Result<(), Failure> {
        self.kill_all().await
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.restart_all().await
    }
}

#[async_trait]
impl Program for EtcdMember {
    fn name(&self) -> String {
        format!("etcd {}", self.name)
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        let (client, peer) = (
            format!("http://{}", self.client),
            format!("http://{}", self.peer),
        );
        let mut command = site.command(installed::debian("etcd")?);
        command
            .args(["--name", &self.name])
            .args(["--data-dir", "data"])
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.cluster])
            .args(["--initial-cluster-state", "new"])
            .args(["--log-level", "warn"]);
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        // It reads through the leader.
        let answer = http::get(self.client, "/health").await?;
        if answer.contains("\"true\"") {
            Ok(())
        } else {
            Err(format!("health is {answer:?}"))
        }
    }
}
