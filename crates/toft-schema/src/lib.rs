//! `#[derive(JsonSchema)]` that derives nothing.
//!
//! Schemas are derived from the types by schemars when the project checks them (feature `schema` of `toft-core`), and read
//! from checked-in files everywhere else: the code of schemars for some 400 types is an eighth of what the compiler works
//! on, and a program that is shipped needs its result alone.

use proc_macro::TokenStream;

/// Accepts what the derive of schemars accepts, and writes nothing.
#[proc_macro_derive(JsonSchema, attributes(schemars))]
pub fn derive_nothing(_: TokenStream) -> TokenStream {
    TokenStream::new()
}
