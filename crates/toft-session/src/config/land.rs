//! Reads how work is verified and landed.

use toft_core::time::parse_duration;

use super::{From, Settings, branch_name};
use crate::{
    config_file::{ConfigFile, LandSection},
    land::{ConfiguredCommands, LandHow, review_rules},
};

impl Settings {
    /// Reads how work is verified and landed.
    pub(super) fn read_land(&mut self, file: &ConfigFile, from: From, decided: &LandSection) -> Result<(), String> {
        let own = from == From::User;
        // An empty list in a repository does not switch off what the user wrote.
        let counts = |commands: &&Vec<String>| own || !commands.is_empty();
        let mut section = file.land.clone();
        if from == From::Tree {
            // What the user decided, a file that came with the repository does not weaken.
            section.into = section.into.filter(|_| decided.into.is_none());
            section.how = section.how.filter(|_| decided.how.is_none());
            section.review = section.review.filter(|_| decided.review.is_none());
            section.close = section.close.filter(|_| decided.close.is_none());
        }
        let rules = &mut self.land;
        if let Some(check) = section.check.as_ref().filter(|check| counts(&&check.list())) {
            rules.check = ConfiguredCommands { commands: check.list(), own };
            self.verify = if check.precedes_done() { rules.check.clone() } else { ConfiguredCommands::default() };
        }
        if let Some(commands) = file.verify.commands.as_ref().filter(counts) {
            self.verify = ConfiguredCommands { commands: commands.clone(), own };
        }
        if let Some(into) = &section.into {
            rules.into = Some(branch_name(into).map_err(|problem| format!("land.into: {problem}"))?);
            rules.own_target = from != From::Tree;
        }
        if let Some(review) = &section.review {
            rules.review = review_rules(review).map_err(|problem| format!("land.review: {problem}"))?;
        }
        if let Some(text) = &section.timeout {
            rules.timeout = parse_duration(text).map_err(|problem| format!("land.timeout: {problem}"))?;
        }
        if from == From::Tree && section.update.is_some() {
            return Err("a configuration file inside the tree may not say which checkouts are updated".into());
        }
        let publishes = section.how == Some(LandHow::Pr) || section.fork.is_some() || section.forge.is_some();
        if from == From::Tree && publishes {
            return Err("a configuration file inside the tree may not say that work is published".into());
        }
        if let Some(fork) = &section.fork {
            rules.fork = Some(branch_name(fork).map_err(|problem| format!("land.fork: {problem}"))?);
        }
        rules.forge = section.forge.or(rules.forge);
        if from == From::Tree && section.sandbox.is_some() {
            return Err("a configuration file inside the tree may not say what a check may do".into());
        }
        rules.sandbox = section.sandbox.unwrap_or(rules.sandbox);
        rules.how = section.how.unwrap_or(rules.how);
        rules.batch = section.batch.unwrap_or(rules.batch).max(1);
        rules.update = section.update.unwrap_or(rules.update);
        rules.close = section.close.unwrap_or(rules.close);
        if let Some(union) = &section.union {
            rules.union.clone_from(union);
        }
        Ok(())
    }
}
