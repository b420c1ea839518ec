//! Faults of the network between processes.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Stage, Undo, pick};
use crate::chaos::coordinators::{CLIENT_PORT, PEER_PORT};
use crate::chaos::delay::DelayProxy;
use crate::chaos::network::Host;
use crate::chaos::rules::{Disturbance, Way, between};
use crate::chaos::schedule::Kind;
use crate::failure::Failure;

impl Stage {
    /// Chooses what is disturbed, and says it.
    pub(super) async fn disturbance(
        &self,
        kind: Kind,
        choice: u64,
    ) -> Option<(Disturbance, String)> {
        let nodes: Vec<Host> = self.members();
        let workers = self.worker_hosts();
        let leader = match kind {
            Kind::CutLeader | Kind::CutLeaderFromNodes => {
                Some(Host::Node(self.coordinators.leader().await?))
            }
            _ => None,
        };
        let node = leader.or_else(|| pick(&nodes, choice))?;
        let worker = pick(&workers, choice >> 8)?;
        let everybody: Vec<Host> = nodes.iter().chain(&workers).copied().collect();
        let others: Vec<Host> = nodes
            .iter()
            .copied()
            .filter(|&other| other != node)
            .collect();
        let name = node.name();
        Some(match kind {
            // Half of the time a worker is on the same side.
            Kind::CutLeader if choice.is_multiple_of(2) => {
                let rest: Vec<Host> = everybody
                    .iter()
                    .copied()
                    .filter(|&host| host != node && host != worker)
                    .collect();
                let ways = between(&[node, worker], &rest);
                let what = format!("{name} and {} from everybody", worker.name());
                (Disturbance::Cut(ways), what)
            }
            Kind::CutLeaderFromNodes => (
                Disturbance::Cut(between(&[node], &others)),
                format!("{name} from the other nodes"),
            ),
            Kind::OneWay => {
                let sends = choice.is_multiple_of(2);
                let ways = between(&[node], &everybody);
                let ways = ways.into_iter().filter(|way| (way.from == node) == sends);
                let text = if sends { "from" } else { "to" };
                (
                    Disturbance::Cut(ways.collect()),
                    format!("nothing arrives {text} {name}"),
                )
            }
            Kind::Partial => {
                let other = pick(&others, choice >> 16)?;
                (
                    Disturbance::Cut(between(&[node], &[other])),
                    format!("{name} and {} do not hear each other", other.name()),
                )
            }
            Kind::CutWorker => (
                Disturbance::Cut(between(&[worker], &nodes)),
                format!("{} from all nodes", worker.name()),
            ),
            Kind::Loss => {
                let percent = [5, 10, 20, 30][usize::try_from(choice % 4).unwrap_or(0)];
                let ways = between(&everybody, &nodes);
                let what = format!("{percent} % of all packets");
                (Disturbance::Loss { ways, percent }, what)
            }
            _ => (
                Disturbance::Cut(between(&[node], &everybody)),
                format!("{name} from everybody"),
            ),
        })
    }

    /// Lets the connections of a host to a coordinator be slow.
    pub(super) async fn delay(
        &mut self,
        fault: u64,
        choice: u64,
    ) -> Result<Option<(Undo, String)>, Failure> {
        let nodes = self.members();
        let Some(to) = pick(&nodes, choice) else {
            return Ok(None);
        };
        let from: Vec<Host> = nodes
            .into_iter()
            .chain(self.worker_hosts())
            .filter(|&from| from != to)
            .collect();
        let Some(from) = pick(&from, choice >> 8) else {
            return Ok(None);
        };
        let delay = Duration::from_millis(20 + (choice >> 16) % 400);
        let addresses = self.network.addresses();
        let (mut proxies, mut ports) = (Vec::new(), Vec::new());
        for port in [CLIENT_PORT, PEER_PORT] {
            let target = SocketAddr::from((addresses.of(to), port));
            let proxy = DelayProxy::open(addresses.outside(), target, delay).await?;
            ports.push((port, proxy.port()));
            proxies.push(proxy);
        }
        let way = Way { from, to };
        self.rules.add(fault, Disturbance::Detour { way, ports });
        self.network.apply(&self.rules)?;
        let what = format!("{} to {} by {delay:?}", from.name(), to.name());
        Ok(Some((Undo::Network(proxies), what)))
    }
}
