//! What the hosts of a network drop and redirect, as rules for nftables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::network::{Addresses, Host};

/// A direction between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way {
    /// Who sends.
    pub from: Host,
    /// Who receives.
    pub to: Host,
}

impl Way {
    /// Returns the other direction.
    #[must_use]
    pub fn back(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
        }
    }
}

/// Returns both directions between every host of one side and every host of the other.
#[must_use]
pub fn between(left: &[Host], right: &[Host]) -> BTreeSet<Way> {
    let mut ways = BTreeSet::new();
    for &from in left {
        for &to in right.iter().filter(|&&to| to != from) {
            let way = Way { from, to };
            ways.extend([way, way.back()]);
        }
    }
    ways
}

/// One disturbance of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing arrives.
    Cut(BTreeSet<Way>),
    /// Of a hundred packets so many are lost, at random.
    Loss {
        /// Where.
        ways: BTreeSet<Way>,
        /// How many.
        percent: u8,
    },
    /// Connections are broken once, and then go through proxies.
    Detour {
        /// Who connects to whom.
        way: Way,
        /// The ports of `way.to`, and those of this process that stand for them.
        ports: Vec<(u16, u16)>,
    },
}

/// All disturbances at one time, by the number of the fault they belong to.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    disturbances: BTreeMap<u64, Disturbance>,
}

impl Rules {
    /// Adds a disturbance.
    pub fn add(&mut self, fault: u64, disturbance: Disturbance) {
        self.disturbances.insert(fault, disturbance);
    }

    /// Removes a disturbance.
    pub fn remove(&mut self, fault: u64) {
        self.disturbances.remove(&fault);
    }

    /// Returns what a host is to be told: all its rules, which replace those it has.
    #[must_use]
    pub fn of(&self, host: Host, addresses: Addresses) -> String {
        let (mut arriving, mut leaving, mut detours) =
            (String::new(), String::new(), String::new());
        for way in self.cuts().filter(|way| way.to == host) {
            line(
                &mut arriving,
                format_args!("ip saddr {} drop", addresses.of(way.from)),
            );
        }
        for disturbance in self.disturbances.values() {
            match disturbance {
                Disturbance::Cut(_) => {}
                Disturbance::Loss { ways, percent } => {
                    for way in ways.iter().filter(|way| way.to == host) {
                        let from = addresses.of(way.from);
                        line(
                            &mut arriving,
                            format_args!("ip saddr {from} numgen random mod 100 < {percent} drop"),
                        );
                    }
                }
                Disturbance::Detour { way, ports } if way.from == host => {
                    let to = addresses.of(way.to);
                    self.cut_detour(*way, addresses, &mut arriving, &mut leaving);
                    for (port, proxy) in ports {
                        let outside = addresses.outside();
                        line(
                            &mut detours,
                            format_args!(
                                "ip daddr {to} tcp dport {port} dnat ip to {outside}:{proxy}"
                            ),
                        );
                        // What still goes there directly is a connection from before.
                        line(
                            &mut leaving,
                            format_args!("ip daddr {to} tcp dport {port} reject with tcp reset"),
                        );
                    }
                }
                Disturbance::Detour { .. } => {}
            }
        }
        format!(
            "add table inet chaos\ndelete table inet chaos\ntable inet chaos {{\n\
             chain arriving {{\ntype filter hook input priority 0; policy accept;\n{arriving}}}\n\
             chain leaving {{\ntype filter hook output priority 0; policy accept;\n{leaving}}}\n\
             chain detours {{\ntype nat hook output priority -100; policy accept;\n{detours}}}\n}}\n"
        )
    }

    /// Cuts a detour as the way it stands for is cut: what it carries comes from another address.
    fn cut_detour(
        &self,
        way: Way,
        addresses: Addresses,
        arriving: &mut String,
        leaving: &mut String,
    ) {
        let to = addresses.of(way.to);
        if self.cuts().any(|cut| cut == way) {
            line(leaving, format_args!("ct original ip daddr {to} drop"));
        }
        if self.cuts().any(|cut| cut == way.back()) {
            line(
                arriving,
                format_args!("ct direction reply ct original ip daddr {to} drop"),
            );
        }
    }

    fn cuts(&self) -> impl Iterator<Item = Way> {
        let ways: BTreeSet<Way> = self
            .disturbances
            .values()
            .filter_map(|disturbance| match disturbance {
                Disturbance::Cut(ways) => Some(ways.iter().copied()),
                _ => None,
            })
            .flatten()
            .collect();
        ways.into_iter()
    }
}

fn line(text: &mut String, rule: std::fmt::Arguments<'_>) {
    // Writing to a string never fails.
    let _written = writeln!(text, "{rule}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Host = Host::Node(1);
    const WORKER: Host = Host::Worker(2);

    fn rules(disturbances: impl IntoIterator<Item = Disturbance>) -> Rules {
        let mut rules = Rules::default();
        for (fault, disturbance) in (0..).zip(disturbances) {
            rules.add(fault, disturbance);
        }
        rules
    }

    fn way(from: Host, to: Host) -> Way {
        Way { from, to }
    }

    #[test]
    fn a_cut_of_one_way_is_dropped_by_the_receiver_alone() {
        let rules = rules([Disturbance::Cut(BTreeSet::from([way(NODE, WORKER)]))]);
        let addresses = Addresses::new(3);
        assert!(
            rules
                .of(WORKER, addresses)
                .contains("ip saddr 10.231.3.11 drop")
        );
        assert!(!rules.of(NODE, addresses).contains("drop"));
    }

    #[test]
    fn disturbances_end_one_by_one() {
        let cut = Disturbance::Cut(between(&[NODE], &[WORKER]));
        let mut rules = rules([cut.clone(), cut]);
        let addresses = Addresses::new(3);
        let whole = rules.of(NODE, addresses);
        rules.remove(0);
        assert_eq!(rules.of(NODE, addresses), whole);
        rules.remove(1);
        assert_eq!(
            rules.of(NODE, addresses),
            Rules::default().of(NODE, addresses)
        );
    }

    #[test]
    fn a_detour_is_cut_with_the_way_it_stands_for() {
        let detour = Disturbance::Detour {
            way: way(WORKER, NODE),
            ports: vec![(7001, 40_000)],
        };
        let addresses = Addresses::new(3);
        let open = rules([detour.clone()]).of(WORKER, addresses);
        assert!(open.contains("tcp dport 7001 dnat ip to 10.231.3.254:40000"));
        assert!(!open.contains("ct original"));
        let back = Disturbance::Cut(BTreeSet::from([way(NODE, WORKER)]));
        let cut = rules([detour, back]).of(WORKER, addresses);
        assert!(cut.contains("ct direction reply ct original ip daddr 10.231.3.11 drop"));
    }
}
