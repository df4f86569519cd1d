//! Strangers, hostile repositories and agents: what they never get.

mod bad_rows;
mod confined;
mod guarded;
mod hostile;
mod identity;
mod leaves;
mod plots;
mod rights;
mod secrets;
mod swapped;
mod untrusted;
mod wary;
