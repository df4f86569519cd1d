//! What is measured: `cargo xtask speed` runs it alone, with the binary that is shipped.

mod board_size;
mod lists;
