//! Workers for stories: as processes that are told what to do and report what they see, and inside the
//! process of a test.
//!
//! ```text
//!   story ── Order, a line on stdin ──▶ worker process ── SDK ──▶ coordinators
//!         ◀── Report, a line on stdout ──┘
//! ```

mod belief;
mod call;
mod gate;
mod holder;
mod local;
mod order;
mod process;
mod program;
mod recorded;
mod report;
mod scribe;

pub use belief::{Believed, overlaps};
pub use call::{Answer, Asked, Content};
pub use gate::{Gate, GatedStore};
pub use holder::{Holder, HolderOptions};
pub use local::LocalWorker;
pub use order::{Order, orders};
pub use process::{ReportLog, WorkerOptions, WorkerProcess};
pub use program::{Membership, report_end, run_program, run_watched};
pub use recorded::{CallLog, RecordedStore};
pub use report::{Report, Reports, now_ns};
pub use scribe::Scribe;
