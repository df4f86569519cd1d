//! What a configuration file may contain. `docs/reference/configuration.md` is generated from these types: comments are
//! descriptions, and `extend` adds what the type does not say.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use toft_core::{
    schema::{JsonSchema, checked_in},
    workspace::Keep,
};

use crate::{
    config::{Names, OverlayMode},
    land::{CheckSandbox, CloseRule, ForgeProgram, LandHow, ReviewRule, ServerShare, UpdateRule},
    setup::Setup,
};

/// A configuration file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// The store: `repo`, one for all worktrees (`.git/toft/toft.db`); `worktree`, one for this worktree; `global`, one for all
    /// repositories of this user; the path of a file; or a `postgres://` URL.
    #[schemars(extend("default" = "repo", "scope" = "clone"))]
    pub(crate) store: Option<String>,
    /// How long history is kept: events, and the attempts, checkpoints and workspaces of ended work.
    #[schemars(extend("format" = "duration", "default" = "90d"))]
    pub(crate) keep: Option<String>,
    pub(crate) lease: LeaseSection,
    pub(crate) retry: RetrySection,
    pub(crate) workspaces: WorkspacesSection,
    pub(crate) run: RunSection,
    /// What `toft run` starts when an agent asks you something or a task has failed for good: `desktop` shows it there, with
    /// `notify-send`, or `osascript` on macOS. Or a command and its arguments: `{id}` is the issue, `{text}` what happened.
    #[schemars(extend("scope" = "user"))]
    pub(crate) notify: Option<NotifyRule>,
    /// How many units of a name there are on this machine. A task with the label `uses:NAME` holds one while an agent of `toft run` works on
    /// it, and so does every agent `--agent NAME`.
    #[schemars(extend("scope" = "user"))]
    pub(crate) capacity: BTreeMap<String, u32>,
    pub(crate) sync: SyncSection,
    /// Accepted until the next release: `land.check` with `before = "done"` replaces it.
    #[schemars(extend("hidden" = true))]
    pub(crate) verify: VerifySection,
    pub(crate) land: LandSection,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LeaseSection {
    /// How long a lease lasts without renewal.
    #[schemars(extend("format" = "duration", "default" = "30m"))]
    pub(crate) ttl: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetrySection {
    /// Number of attempts before a task waits for a person.
    #[schemars(extend("default" = 3))]
    pub(crate) max_attempts: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WorkspacesSection {
    /// Directory of all workspaces: an absolute path, or one that begins with `~`. By default `~/.local/share/toft/workspaces`.
    #[schemars(extend("format" = "path", "scope" = "clone"))]
    pub(crate) root: Option<String>,
    /// Which workspaces stay when their task ends.
    #[schemars(extend("default" = "always"))]
    pub(crate) keep: Option<Keep>,
    /// Maximum number of workspaces of a repository on this machine, for tests.
    #[schemars(extend("hidden" = true))]
    pub(crate) most: Option<usize>,
    /// `toft ws gc` removes unused workspaces until all together are smaller.
    #[schemars(extend("format" = "size"))]
    pub(crate) max_bytes: Option<String>,
    /// `toft ws gc` deletes rescues that are older. Without it, none.
    #[schemars(extend("format" = "duration", "scope" = "clone"))]
    pub(crate) rescue_max_age: Option<String>,
    pub(crate) setup: Option<Setup>,
    /// Whether workspaces share the files of a read-only checkout through an overlay.
    #[schemars(extend("default" = "auto"))]
    pub(crate) instant: Option<OverlayMode>,
    /// Directories of build artefacts that workspaces on an overlay share.
    pub(crate) warm: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunSection {
    #[schemars(extend("name" = "NAME"))]
    pub(crate) agents: BTreeMap<String, RunAgent>,
    pub(crate) container: ContainerSection,
    /// US dollars that all runs on this machine may cost on one day, as agents report it; the day begins at midnight UTC.
    #[schemars(extend("scope" = "user"))]
    pub(crate) day_cost: Option<f64>,
    /// US dollars that all attempts at one task may cost; before they are passed, a person is asked.
    #[schemars(extend("scope" = "user"))]
    pub(crate) task_cost: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContainerSection {
    /// Image of `toft run --in docker` and `--in podman`.
    #[schemars(extend("scope" = "user"))]
    pub(crate) image: Option<String>,
    /// More options of `docker run` or `podman run`; `--env=NAME` passes a variable of `toft run` on.
    #[schemars(extend("scope" = "user"))]
    pub(crate) args: Option<Vec<String>>,
}

/// How a person is told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "notify is \"desktop\", or a command and its arguments as a list")]
pub(crate) enum NotifyRule {
    /// `desktop`.
    Named(NotifyPlace),
    /// A command and its arguments.
    Command(Vec<String>),
}

/// A place that toft itself knows how to show something in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NotifyPlace {
    Desktop,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunAgent {
    /// Command and arguments of `toft run --agent NAME`.
    #[schemars(extend("scope" = "user"))]
    pub(crate) command: Vec<String>,
    /// Directories outside of its workspace that the agent may write to in a sandbox.
    #[serde(default)]
    #[schemars(extend("scope" = "user"))]
    pub(crate) writes: Vec<String>,
    /// Command and arguments that continue the conversation `{session}` of an earlier attempt.
    #[serde(default)]
    #[schemars(extend("scope" = "user"))]
    pub(crate) resume: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SyncSection {
    /// The remote to which the repository's ledger is sent.
    #[schemars(extend("scope" = "clone"))]
    pub(crate) remote: Option<String>,
    /// The branch of that remote that holds the ledger.
    #[schemars(extend("scope" = "clone"))]
    pub(crate) branch: Option<String>,
    /// Whose name a ledger shows as the writer of a change.
    #[schemars(extend("default" = "author", "scope" = "clone"))]
    pub(crate) names: Option<Names>,
    /// Commands synchronize ledgers automatically when the last time was this long ago.
    #[schemars(extend("format" = "duration", "scope" = "clone"))]
    pub(crate) auto: Option<String>,
    /// What goes to the toft server that is the store: `issues`, of the ledger beside the repository, so that every clone sees them
    /// at once; `all`, also finished commits with what no remote has of their history, so that every clone can land them.
    #[schemars(extend("default" = "all", "scope" = "clone"))]
    pub(crate) server: Option<ServerShare>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VerifySection {
    /// Commands that have to succeed in an agent's workspace before its work is done.
    pub(crate) commands: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LandSection {
    /// The branch that work lands in. By default the one that the main checkout was on when the work began. A branch of a
    /// remote, as `origin/main`, is pushed to; then it is not in a file of the working tree.
    pub(crate) into: Option<String>,
    /// How commits get into it. `pr` opens a pull request; then it is not in a file of the working tree.
    #[schemars(extend("default" = "merge"))]
    pub(crate) how: Option<LandHow>,
    /// Command, or commands, that have to succeed on the exact files of a commit before the branch moves to it. As
    /// `{ run = […], before = "done" }` they run in the agent's workspace, too, before its work is done.
    #[schemars(extend("whole" = true))]
    pub(crate) check: Option<CheckCommands>,
    /// What the check may do; it runs what agents wrote. Under `toft run --sandbox --land` the sandbox of the agents counts.
    #[schemars(extend("default" = "none", "scope" = "clone"))]
    pub(crate) sandbox: Option<CheckSandbox>,
    /// Longest time that the check may take.
    #[schemars(extend("format" = "duration", "default" = "20m"))]
    pub(crate) timeout: Option<String>,
    /// How many pieces of work are checked together, for tests.
    #[schemars(extend("hidden" = true))]
    pub(crate) batch: Option<usize>,
    /// Who has to approve work: `none`, `human`, or `agent:NAME` for agents of `toft run --as NAME`; or a table of them by
    /// `label:NAME` and `default`.
    #[schemars(extend("default" = "none"))]
    pub(crate) review: Option<ReviewRule>,
    /// Remote that branches of pull requests are pushed to. By default that of `into`.
    #[schemars(extend("scope" = "clone"))]
    pub(crate) fork: Option<String>,
    /// Program that opens pull requests. By default the one that the address of the remote suggests.
    #[schemars(extend("scope" = "clone"))]
    pub(crate) forge: Option<ForgeProgram>,
    /// Which checkouts of the branch are updated.
    #[schemars(extend("default" = "ask", "scope" = "clone"))]
    pub(crate) update: Option<UpdateRule>,
    /// When the issue of finished work is closed.
    #[schemars(extend("default" = "landed"))]
    pub(crate) close: Option<CloseRule>,
    /// Files in which both sides of a conflict are kept, as in `.gitattributes`: `["CHANGELOG.md"]`.
    pub(crate) union: Option<Vec<String>>,
}

/// One command, or several that run in order, and when.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a check is a command, a list of commands, or { run = ..., before = \"done\" or \"landed\" }"
)]
pub(crate) enum CheckCommands {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
    /// Either, with the first moment at which they run.
    Timed(TimedCheck),
}

/// Commands with the first moment at which they run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimedCheck {
    pub(crate) run: Box<CheckCommands>,
    pub(crate) before: CheckMoment,
}

/// What a check precedes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckMoment {
    /// Landing alone.
    Landed,
    /// The end of an agent's work, and landing.
    Done,
}

impl CheckCommands {
    /// The commands, in order.
    pub(crate) fn list(&self) -> Vec<String> {
        match self {
            Self::One(command) if command.trim().is_empty() => Vec::new(),
            Self::One(command) => vec![command.clone()],
            Self::Several(commands) => commands.clone(),
            Self::Timed(timed) => timed.run.list(),
        }
    }

    /// Whether they run before work is done, too.
    pub(crate) fn precedes_done(&self) -> bool {
        matches!(self, Self::Timed(TimedCheck { before: CheckMoment::Done, .. }))
    }
}

/// Which configuration files may contain a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// The user's, this clone's, and the one in the working tree.
    Everywhere,
    /// The user's and this clone's.
    Clone,
    /// Only the user's.
    User,
}

/// A key of a configuration file.
#[derive(Clone, Debug)]
pub struct ConfigKey {
    /// Its whole name: `lease.ttl`.
    pub name: String,
    /// What a value looks like.
    pub kind: String,
    /// The default, as it would be written.
    pub default: Option<String>,
    /// The files that may contain it.
    pub scope: KeyScope,
    /// What it does.
    pub meaning: String,
}

/// The JSON Schema of a configuration file.
fn config_schema() -> Value {
    checked_in(include_str!("config_schema.json"))
}

#[cfg(all(test, feature = "schema"))]
fn derive_config_schema() -> Value {
    let settings =
        schemars::generate::SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<ConfigFile>().to_value()
}

/// Every key of a configuration file: those without a section first, then by name.
pub fn config_keys() -> Vec<ConfigKey> {
    let mut keys = Vec::new();
    collect(&config_schema(), "", &mut keys);
    keys.sort_by_key(|key| (key.name.contains('.'), key.name.clone()));
    keys
}

fn collect(schema: &Value, prefix: &str, keys: &mut Vec<ConfigKey>) {
    let objects = || std::iter::once(schema).chain(schema["anyOf"].as_array().into_iter().flatten());
    for (name, property) in objects().filter_map(|schema| schema["properties"].as_object()).flatten() {
        if property["hidden"] == true {
            continue;
        }
        let name = format!("{prefix}{name}");
        let known = keys.len();
        if property["whole"] != true {
            collect(property, &format!("{name}."), keys);
        }
        if let Some(values) = property.get("additionalProperties").filter(|values| values.is_object()) {
            collect(values, &format!("{name}.{}.", property["name"].as_str().unwrap_or("NAME")), keys);
        }
        if keys.len() == known {
            // A table of plain values has a key for each of their names.
            let values = property.get("additionalProperties").filter(|values| values.is_object());
            let name = if values.is_some() { format!("{name}.NAME") } else { name };
            keys.push(ConfigKey {
                kind: kind(values.unwrap_or(property)),
                default: property
                    .get("default")
                    .filter(|value| {
                        !value.is_null() && !value.as_array().is_some_and(Vec::is_empty) && !value.is_object()
                    })
                    .map(Value::to_string),
                scope: match property["scope"].as_str() {
                    Some("user") => KeyScope::User,
                    Some(_) => KeyScope::Clone,
                    None => KeyScope::Everywhere,
                },
                meaning: property["description"].as_str().unwrap_or_default().replace('\n', " "),
                name,
            });
        }
    }
}

/// The alternatives of a schema at every depth, itself included.
fn collect_variants<'s>(schema: &'s Value, variants: &mut Vec<&'s Value>) {
    variants.push(schema);
    for member in ["anyOf", "oneOf"].iter().filter_map(|key| schema[key].as_array()).flatten() {
        collect_variants(member, variants);
    }
}

/// A word as it is written in a file, in the reference.
fn quoted_word(word: &str) -> String {
    format!("`\"{word}\"`")
}

/// What a value looks like, for people.
fn kind(schema: &Value) -> String {
    let mut variants = Vec::new();
    collect_variants(schema, &mut variants);
    let words = |schema: &Value| -> Vec<String> {
        let several = schema["enum"].as_array().into_iter().flatten();
        schema["const"].as_str().into_iter().chain(several.filter_map(Value::as_str)).map(quoted_word).collect()
    };
    let mut options: Vec<String> = variants.iter().flat_map(|variant| words(variant)).collect();
    if !options.is_empty() {
        if variants.iter().any(|variant| variant["type"] == "array") {
            options.push("or a list of strings".into());
        }
        return options.join(", ");
    }
    let plain = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        one => one.as_str(),
    };
    match (schema["format"].as_str(), plain) {
        (Some("duration"), _) => "duration".into(),
        (Some("size"), _) => "size".into(),
        (Some("path"), _) => "path".into(),
        (_, Some("array")) => "list of strings".into(),
        (_, Some("integer" | "number")) => "number".into(),
        (_, Some("boolean")) => "`true` or `false`".into(),
        _ => "string".into(),
    }
}

#[cfg(all(test, feature = "schema"))]
mod tests {
    use std::path::Path;

    use toft_core::testing::assert_checked_in;

    use super::*;

    #[test]
    fn checked_in_schema_is_what_the_types_say() {
        let path = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the package"))
            .join("src/config_schema.json");
        assert_checked_in(&path, &derive_config_schema());
    }
}
