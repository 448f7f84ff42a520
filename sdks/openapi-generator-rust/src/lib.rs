//! What the program and the example share.

pub mod requests;
