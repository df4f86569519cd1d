//! The page of `toft` without a command, where toft is not set up yet: the next step.

use toft::{Config, Error, vcs::Checkout};

const NO_REPOSITORY: &str = "\
This directory is not in a repository.

  toft try             watch a demo: 5 agents, 40 issues, no account
  toft init --no-vcs   plan here, without version control
  toft --help          list the everyday commands";

/// Nothing where toft is set up, or where that cannot be told: there `toft` alone is `toft status`.
pub(crate) fn welcome() -> Option<String> {
    match toft::locate(&Config::default()) {
        Err(Error::NoRepository { .. }) => Some(NO_REPOSITORY.to_owned()),
        Ok(located) if located.store.missing() => located.checkout.as_ref().map(first_steps),
        _ => None,
    }
}

fn first_steps(checkout: &Checkout) -> String {
    let state = checkout.state_dir();
    let place = state.strip_prefix(&checkout.root).unwrap_or(&state).display();
    let beads = match checkout.root.join(".beads").is_dir() {
        true => "\n  toft init && toft import beads .beads   take its issues over",
        false => "",
    };
    let steps = format!(
        "{} is a {} repository. toft is not set up in it.
{beads}
  toft init            keep issues in {place}; your files do not change
  toft try             watch a demo first, in a directory of its own
  toft --help          list the everyday commands",
        checkout.name(),
        checkout.vcs.as_str(),
    );
    toft::text::clean_lines(&steps)
}
