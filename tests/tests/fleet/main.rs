//! Servers and the machines that work with them.

mod client_fleet;
mod deploy;
mod fleet;
mod fleet_api;
mod fleet_bare;
mod fleet_commits;
mod fleet_failover;
mod fleet_far;
mod fleet_hostile;
mod fleet_ledgers;
mod fleet_login;
mod fleet_machines;
mod fleet_operate;
mod fleet_restore;
mod fleet_spaces;
mod fleet_wire;
mod server;
