//! The standard health service: serving while a leader is known and this node has caught up.

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::readiness::Readiness;

/// The services whose health is reported; the empty name stands for the node.
const SERVICES: [&str; 6] = [
    "",
    "tenure.v1.AdminService",
    "tenure.v1.CheckpointService",
    "tenure.v1.ClusterService",
    "tenure.v1.OwnershipService",
    "tenure.v1.WorkerService",
];

/// A node that is not part of a cluster yet serves this one, for it is how it becomes part of one.
const ALWAYS_SERVING: &str = "tenure.v1.ClusterService";

/// Reports a node's readiness until its sender is gone.
pub(crate) async fn report(reporter: HealthReporter, mut readiness: watch::Receiver<Readiness>) {
    loop {
        let ready = *readiness.borrow_and_update() == Readiness::Ready;
        for service in SERVICES {
            let serving = ready || service == ALWAYS_SERVING;
            let status = if serving {
                ServingStatus::Serving
            } else {
                ServingStatus::NotServing
            };
            reporter.set_service_status(service, status).await;
        }
        if readiness.changed().await.is_err() {
            break;
        }
    }
    for service in SERVICES {
        reporter
            .set_service_status(service, ServingStatus::NotServing)
            .await;
    }
}
