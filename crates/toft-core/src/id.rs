//! Typed ids: a prefix that names the kind, then twelve characters of `0-9a-z`.
//!
//! Defines the format of ids and generates new ones. Randomness is passed in through [`IdGenerator`].

use std::fmt;

use serde::{Deserialize, Serialize};

const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Number of characters after a prefix.
pub const WORD: usize = 12;

/// Generates ids from a source of random bytes that the caller provides, so that tests are repeatable.
pub struct IdGenerator {
    fill: Fill,
}

/// Fills sixteen bytes.
type Fill = Box<dyn FnMut(&mut [u8; 16]) + Send>;

impl IdGenerator {
    /// A generator that takes its bytes from `fill`.
    pub fn new(fill: impl FnMut(&mut [u8; 16]) + Send + 'static) -> Self {
        Self { fill: Box::new(fill) }
    }

    /// Sixty-four bits from the source.
    pub fn number(&mut self) -> u64 {
        let mut bytes = [0; 16];
        (self.fill)(&mut bytes);
        u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default())
    }

    /// Twelve characters of `0-9a-z`.
    pub fn word(&mut self) -> String {
        let mut bytes = [0; 16];
        (self.fill)(&mut bytes);
        let mut value = u128::from_le_bytes(bytes);
        (0..WORD)
            .map(|_| {
                let digit = (value % 36) as usize;
                value /= 36;
                ALPHABET[digit] as char
            })
            .collect()
    }
}

impl fmt::Debug for IdGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mint")
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, crate::schema::JsonSchema)]
            #[serde(transparent)]
            pub struct $name(String);

            impl $name {
                /// The prefix of every id of this kind.
                pub const PREFIX: &'static str = $prefix;

                /// A new id.
                pub fn generate(ids: &mut IdGenerator) -> Self {
                    Self(format!("{}{}", $prefix, ids.word()))
                }

                /// An id from a store or a user; it is not checked.
                pub fn known(text: impl Into<String>) -> Self {
                    Self(text.into())
                }

                /// Whether it is one that toft could have made: such a one is safe as a part of a path.
                #[must_use]
                pub fn is_well_formed(&self) -> bool {
                    let word = self.0.strip_prefix($prefix).unwrap_or_default();
                    !word.is_empty() && self.0.len() <= 64 && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
                }

                /// The id as text.
                pub fn as_str(&self) -> &str {
                    &self.0
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.pad(&self.0)
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(&self.0)
                }
            }
        )*
    };
}

ids! {
    /// A repository, identified by its root commits and remotes.
    RepositoryId "rp_";
    /// A workflow.
    WorkflowId "wf_";
    /// A task: the unit that an agent leases.
    TaskId "tk_";
    /// A lease: the random half of a fence.
    LeaseId "ls_";
    /// A checkpoint.
    CheckpointId "cp_";
    /// An agent: anything that can hold a lease.
    AgentId "ag_";
    /// A message.
    MessageId "msg_";
    /// A gate: a condition that a task waits for.
    GateId "gt_";
    /// A workspace.
    WorkspaceId "ws_";
    /// A template.
    TemplateId "tmpl_";
    /// A landing: finished work on its way into a target branch.
    LandingId "ln_";
    /// One operation: repeating it changes nothing.
    OpId "op_";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_have_a_prefix_and_twelve_characters() {
        let mut n = 0u128;
        let mut ids = IdGenerator::new(move |bytes| {
            n = n.wrapping_add(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834);
            *bytes = n.to_le_bytes();
        });
        let a = TaskId::generate(&mut ids);
        let b = TaskId::generate(&mut ids);
        assert_ne!(a, b);
        assert!(a.as_str().starts_with("tk_"));
        assert_eq!(a.as_str().len(), 15);
        assert!(a.as_str()[3..].bytes().all(|c| ALPHABET.contains(&c)));
    }
}
