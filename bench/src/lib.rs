//! The workloads, and slicepool and its peers behind one interface.
//!
//! Machines are shared and noisy, so only ratios measured in one run count: subjects take turns in short rounds, and
//! sizes and victims are made before anything is timed.

pub mod best_fit;
pub mod buffers;
pub mod c_churn;
pub mod churn;
pub mod peers;
pub mod placement;
pub mod plot;
pub mod quartiles;
pub mod replay;
pub mod results;
pub mod segments;
pub mod subjects;

pub use slicepool_traces::{self as traces, Random};

/// Bytes of the smallest unit in all workloads.
pub const GRANULE: u64 = 256;
