//! What a person sees: the board in a real browser, and `toft top` in a real terminal.

mod board;
mod fleet_board;
mod top;
