//! Nodes of the coordinator cluster.

use tenure_proto::v1 as pb;

use super::Invalid;
use crate::config::is_host_and_port;
use crate::consensus::NodeAddresses;

/// Where a node to be added is reached. Its id is given by the cluster.
pub(in crate::rpc) fn node(node: Option<pb::Node>) -> Result<NodeAddresses, Invalid> {
    let node = node.ok_or_else(|| Invalid::missing("node"))?;
    if node.id != 0 {
        return Err(Invalid::new(
            "node.id",
            "is given by the cluster and must be 0",
        ));
    }
    addresses("node", node)
}

fn addresses(field: &str, node: pb::Node) -> Result<NodeAddresses, Invalid> {
    for (name, address) in [
        ("peer_address", &node.peer_address),
        ("client_address", &node.client_address),
        ("http_address", &node.http_address),
    ] {
        let optional = name == "http_address" && address.is_empty();
        if !optional && !is_host_and_port(address) {
            let problem = format!("{address:?} is not host:port");
            return Err(Invalid::new(format!("{field}.{name}"), problem));
        }
    }
    Ok(NodeAddresses {
        raft: node.peer_address,
        client: node.client_address,
        http: node.http_address,
    })
}

/// The other nodes of a new cluster, in the order of their ids. This node gets id 1, the others follow
/// in the order of the request; ids may be left 0, or be just these.
pub(in crate::rpc) fn init(
    request: pb::InitRequest,
    own_peer_address: &str,
) -> Result<Vec<NodeAddresses>, Invalid> {
    let count = request.nodes.len();
    if !matches!(count, 1 | 3 | 5) {
        return Err(Invalid::new(
            "nodes",
            format!("are {count}, a cluster begins with 1, 3 or 5"),
        ));
    }
    let (own, others): (Vec<_>, Vec<_>) = (0..)
        .zip(request.nodes)
        .partition(|(_, node): &(usize, pb::Node)| node.peer_address == own_peer_address);
    if own.len() != 1 {
        let problem = format!("must name this node, {own_peer_address}, once");
        return Err(Invalid::new("nodes", problem));
    }
    let mut addresses_of_others = Vec::with_capacity(others.len());
    let in_order = own.into_iter().chain(others);
    for (id, (at, node)) in (1_u64..).zip(in_order) {
        if node.id != 0 && node.id != id {
            let problem = format!(
                "is {}, will be {id}: the node asked to initialise gets id 1, the others follow",
                node.id
            );
            return Err(Invalid::new(format!("nodes[{at}].id"), problem));
        }
        let checked = addresses(&format!("nodes[{at}]"), node)?;
        if id > 1 {
            addresses_of_others.push(checked);
        }
    }
    Ok(addresses_of_others)
}
