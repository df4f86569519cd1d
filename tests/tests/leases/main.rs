//! One winner, told on every store: on files, on PostgreSQL, behind `toft serve`, and behind a pooler.

mod fenced;
mod linear;
mod one_winner;
