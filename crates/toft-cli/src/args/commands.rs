//! The table of commands. Each one's flags are put together only when it is the one that was typed, and only those are in
//! the table that were: building them all would take longer than answering most commands.

use std::{cell::RefCell, ffi::OsString};

use clap::Parser as _;

use super::Cli;

thread_local! {
    /// The words that are being parsed; every command is in the table while there are none.
    static TYPED_WORDS: RefCell<Option<Vec<OsString>>> = const { RefCell::new(None) };
}

/// Parses what was typed. A command that is not among the words cannot be meant, so it is left out of the table; what does not
/// parse then is parsed with all of them, for help and suggestions.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    TYPED_WORDS.set(Some(words.to_vec()));
    let parsed = Cli::try_parse_from(words);
    TYPED_WORDS.set(None);
    parsed.or_else(|_| Cli::try_parse_from(words))
}

/// Returns whether one of these names is among the typed words, or no words are being parsed.
pub(super) fn is_typed(names: &[&str]) -> bool {
    TYPED_WORDS.with_borrow(|words| {
        words.as_ref().is_none_or(|words| words.iter().any(|word| names.iter().any(|name| word == name)))
    })
}

/// Makes the `Command` enum from rows of `Variant(Args) "name" [hidden aliases] "what it does"`.
macro_rules! commands {
    ($($variant:ident($args:ty) $name:literal [$($alias:literal),*] $about:literal;)*) => {
        /// What was typed.
        #[derive(Debug)]
        pub(crate) enum Command {
            $(#[doc = $about] $variant($args),)*
        }

        /// Every command with what it does.
        pub(crate) const TABLE: &[(&str, &str)] = &[$(($name, $about)),*];

        impl Command {
            /// What it is called.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }
        }

        impl clap::Subcommand for Command {
            fn augment_subcommands(mut command: clap::Command) -> clap::Command {
                $(if $crate::args::commands::is_typed(&[$name $(, $alias)*]) {
                    command = command.subcommand(
                        clap::Command::new($name)
                            .about($about)
                            .hide($about.starts_with("Internal"))
                            .aliases([$($alias,)*] as [&str; 0 $(+ { let _ = $alias; 1 })*])
                            .defer(|command| {
                                $crate::args::page::on_one_page(<$args as clap::Args>::augment_args(command))
                            }),
                    );
                })*
                command
            }

            fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
                Self::augment_subcommands(command)
            }

            fn has_subcommand(name: &str) -> bool {
                [$($name),*].contains(&name)
            }
        }

        impl clap::FromArgMatches for Command {
            fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
                match matches.subcommand() {
                    $(Some(($name, matches)) => {
                        <$args as clap::FromArgMatches>::from_arg_matches(matches).map(Self::$variant)
                    })*
                    _ => Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand)),
                }
            }

            fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

pub(super) use commands;
