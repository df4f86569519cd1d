//! Kills, full disks, power cuts and tidying up: nothing is lost.

mod backup;
mod careful;
mod growth;
mod held;
mod holds;
mod kept;
mod killed;
mod power_cut;
mod rescue;
mod store;
mod survives;
mod whole;
