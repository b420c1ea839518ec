//! Finding the leader: which node to ask next, and how long to wait before.
//!
//! Pure: it is told how each try ended.

use std::time::Duration;

use super::stream::StreamEnd;
use crate::backoff::Backoff;

/// How many hints in a row are followed without waiting; as for other calls, see `connection`.
const HINTS_MAX: u32 = 3;

/// How long to wait, besides the usual pause, for a group that does not exist: whoever creates it is
/// perhaps not there yet, and a crowd may be waiting.
const NO_GROUP_PAUSE: Duration = Duration::from_secs(1);

/// Finds the leader: asks the known nodes in turn and follows what they say.
///
/// A node that led is asked once more before the others: streams break more often than leaders do,
/// and a node that does not answer costs a good part of the time there is.
#[derive(Debug)]
pub(crate) struct Finder {
    addresses: Vec<String>,
    next: usize,
    /// Who is asked before whose turn it is: the one a hint names, or the last leader.
    first: Option<String>,
    hints_followed: u32,
    /// The node that leads, until its stream ends.
    leader: Option<String>,
    /// Whether the node that is asked now was asked just before.
    asked_again: bool,
    backoff: Backoff,
}

impl Finder {
    /// Creates one that begins anywhere, so that a crowd of workers does not ask one node.
    pub(crate) fn new(addresses: Vec<String>, begin: usize) -> Self {
        let next = begin % addresses.len().max(1);
        Self {
            addresses,
            next,
            first: None,
            hints_followed: 0,
            leader: None,
            asked_again: false,
            backoff: Backoff::new(),
        }
    }

    /// Returns the node to ask now.
    pub(crate) fn pick(&mut self) -> String {
        if let Some(first) = self.first.take() {
            return first;
        }
        let address = self.addresses.get(self.next).cloned().unwrap_or_default();
        self.next = (self.next + 1) % self.addresses.len().max(1);
        address
    }

    /// Returns how many picks make a round: each node once, and the last leader twice.
    pub(crate) fn round(&self) -> u32 {
        u32::try_from(self.addresses.len() + 1).unwrap_or(u32::MAX)
    }

    /// Notes that asking a node, or the stream to it, ended so. Returns how long to wait: usually at
    /// most `pause_max`.
    pub(crate) fn ended(
        &mut self,
        address: Option<&str>,
        end: &StreamEnd,
        pause_max: Duration,
    ) -> Duration {
        let led = self.leader.take().as_deref() == address && address.is_some();
        let asked_again = std::mem::take(&mut self.asked_again);
        if let StreamEnd::NotLeader { hint: Some(hint) } = end
            && Some(hint.as_str()) != address
            && self.hints_followed < HINTS_MAX
        {
            self.hints_followed += 1;
            self.first = Some(hint.clone());
            return Duration::ZERO;
        }
        self.hints_followed = 0;
        // Not the same node again before the others were asked.
        let position = self
            .addresses
            .iter()
            .position(|known| Some(known.as_str()) == address);
        if let Some(position) = position {
            self.next = (position + 1) % self.addresses.len();
        }
        let pause = self.backoff.next_within(pause_max);
        match end {
            StreamEnd::NotLeader { .. } => {}
            StreamEnd::NoGroup => {
                // It leads, or it would not say so.
                self.first = address.map(str::to_owned);
                return NO_GROUP_PAUSE + pause;
            }
            // A node that does not lead says that first of all.
            StreamEnd::Unavailable { .. } if !asked_again => self.ask_again(address),
            _ if led => self.ask_again(address),
            _ => {}
        }
        pause
    }

    fn ask_again(&mut self, address: Option<&str>) {
        self.first = address.map(str::to_owned);
        self.asked_again = true;
    }

    /// Notes that the node at that address leads.
    pub(crate) fn found(&mut self, address: &str) {
        if self.leader.as_deref() != Some(address) {
            self.leader = Some(address.to_owned());
        }
        self.hints_followed = 0;
        self.asked_again = false;
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finder() -> Finder {
        Finder::new(["a:1", "b:1", "c:1"].map(str::to_owned).to_vec(), 0)
    }

    const PAUSE_MAX: Duration = Duration::from_secs(1);

    fn not_leader(hint: Option<&str>) -> StreamEnd {
        StreamEnd::NotLeader {
            hint: hint.map(str::to_owned),
        }
    }

    #[test]
    fn nodes_are_asked_in_turn_with_pauses() {
        let mut finder = finder();
        for address in ["a:1", "b:1", "c:1", "a:1"] {
            assert_eq!(finder.pick(), address);
            assert!(finder.ended(Some(address), &not_leader(None), PAUSE_MAX) > Duration::ZERO);
        }
    }

    #[test]
    fn a_hint_is_followed_at_once_also_to_an_address_that_was_not_known() {
        let mut finder = finder();
        finder.pick();
        assert_eq!(
            finder.ended(Some("a:1"), &not_leader(Some("d:1")), PAUSE_MAX),
            Duration::ZERO
        );
        assert_eq!(finder.pick(), "d:1");
        // The hint was of no use: on with the known ones.
        finder.ended(Some("d:1"), &StreamEnd::broken("refused"), PAUSE_MAX);
        assert_eq!(finder.pick(), "b:1");
    }

    #[test]
    fn nodes_that_name_each_other_are_not_asked_without_a_pause_for_ever() {
        let mut finder = finder();
        let mut address = finder.pick();
        let mut without_pause = 0;
        loop {
            let other = if address == "a:1" { "b:1" } else { "a:1" };
            let pause = finder.ended(Some(&address), &not_leader(Some(other)), PAUSE_MAX);
            if pause > Duration::ZERO {
                break;
            }
            without_pause += 1;
            address = finder.pick();
        }
        assert_eq!(without_pause, HINTS_MAX);
    }

    #[test]
    fn a_node_that_never_led_is_asked_again_only_after_the_others() {
        let mut finder = finder();
        finder.ended(Some("b:1"), &StreamEnd::broken("reset"), PAUSE_MAX);
        for address in ["c:1", "a:1", "b:1"] {
            assert_eq!(finder.pick(), address);
            finder.ended(Some(address), &StreamEnd::Silent, PAUSE_MAX);
        }
    }

    #[test]
    fn after_its_stream_broke_the_last_leader_is_asked_once_more_before_the_others() {
        for end in [StreamEnd::broken("reset"), StreamEnd::Silent] {
            let mut finder = finder();
            finder.found("b:1");
            finder.ended(Some("b:1"), &end, PAUSE_MAX);
            for address in ["b:1", "c:1", "a:1", "b:1"] {
                assert_eq!(finder.pick(), address);
                finder.ended(Some(address), &end, PAUSE_MAX);
            }
        }
    }

    #[test]
    fn a_leader_that_stops_leading_is_not_asked_again_first() {
        let mut finder = finder();
        finder.found("b:1");
        finder.ended(Some("b:1"), &not_leader(None), PAUSE_MAX);
        assert_eq!(finder.pick(), "c:1");
    }

    #[test]
    fn a_node_that_cannot_decide_now_is_asked_once_more_before_the_others() {
        let end = StreamEnd::Unavailable {
            message: "not known yet".to_owned(),
        };
        let mut finder = finder();
        assert_eq!(finder.pick(), "a:1");
        finder.ended(Some("a:1"), &end, PAUSE_MAX);
        assert_eq!(finder.pick(), "a:1");
        finder.ended(Some("a:1"), &end, PAUSE_MAX);
        assert_eq!(finder.pick(), "b:1");
    }

    #[test]
    fn pauses_are_as_short_as_they_have_to_be() {
        let mut finder = finder();
        let hurry = Duration::from_millis(30);
        for _ in 0..10 {
            let address = finder.pick();
            assert!(finder.ended(Some(&address), &StreamEnd::Silent, hurry) <= hurry);
        }
    }
}
