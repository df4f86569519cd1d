//! The table: where each harness keeps its instructions, its MCP servers and its hooks. These facts move; they stand here
//! and nowhere else.

use std::{env, path::Path};

use serde_json::{Value, json};

/// How a harness writes hooks down, and reads what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Claude Code, and those that follow it.
    Claude,
    /// Gemini CLI: only JSON, and another word for no.
    Gemini,
    /// Cursor.
    Cursor,
    /// Copilot.
    Copilot,
    /// Plain text.
    Plain,
}

/// A coding agent.
#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) name: &'static str,
    /// As people call it.
    pub(crate) title: &'static str,
    pub(crate) dialect: Dialect,
    /// Programs and directories that show it is used.
    programs: &'static [&'static str],
    signs: &'static [&'static str],
    /// Where instructions go, in a checkout and at home.
    instructions: (&'static str, Option<&'static str>),
    skills: Option<&'static str>,
    mcp: &'static [Mcp],
    hooks: Hooks,
    pub(super) check: Option<ClientCheck>,
    /// The list of directories that its sandbox lets it write to: file at home, table, key.
    writable: Option<(&'static str, &'static str, &'static str)>,
}

/// How a client itself is asked what it makes of its files.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientCheck {
    pub(super) command: &'static [&'static str],
    /// What a person does before the client uses the server.
    pub(super) trust: &'static str,
}

/// A file with MCP servers.
#[derive(Debug)]
struct Mcp {
    project: Option<&'static str>,
    user: Option<&'static str>,
    shape: McpShape,
}

#[derive(Clone, Copy, Debug)]
enum McpShape {
    /// `{"mcpServers": {"toft": …}}`
    Servers,
    /// `{"servers": {"toft": {"type": "stdio", …}}}`
    Typed,
    /// `{"mcp": {"toft": {"type": "local", "command": […]}}}`
    Local,
    /// `[mcp_servers.toft]`
    Toml,
}

/// Where hooks go.
#[derive(Debug)]
struct Hooks {
    project: &'static str,
    user: Option<&'static str>,
    events: &'static [&'static str],
    shape: HookShape,
}

#[derive(Clone, Copy, Debug)]
enum HookShape {
    /// `{"hooks": {EVENT: [{"hooks": [{"type": "command", "command": …}]}]}}`. Copilot reads Claude's file too, and refuses it
    /// whole for an empty `matcher`.
    Nested,
    /// `{"version": 1, "hooks": {EVENT: [{"command": …}]}}`
    Flat,
    /// A file of our own: `{"version": 1, "hooks": {EVENT: [{"type": "command", "bash": …}]}}`
    Own,
    /// A plugin of our own.
    Plugin,
}

/// One piece of one file.
pub(super) struct Piece {
    pub(super) project: Option<String>,
    pub(super) user: Option<String>,
    pub(super) change: Change,
}

/// What is to be in a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// A block between two marks.
    Block(String),
    /// The whole file is ours.
    Whole(String),
    /// A value under keys of a JSON file.
    Key(Vec<&'static str>, Value),
    /// A value that stands in a list of a JSON file, among others; and what must be in the file besides.
    Item(Vec<&'static str>, Value, Option<(&'static str, Value)>),
    /// A table of a TOML file.
    Table(&'static str, &'static str, Vec<(&'static str, Value)>),
    /// A text that stands in a list of a table of a TOML file, among others.
    Entry(&'static str, &'static str, String),
}

const CLAUDE_EVENTS: &[&str] = &["SessionStart", "UserPromptSubmit", "PostToolUse", "PreCompact", "Stop", "SessionEnd"];

pub(crate) const HARNESSES: [Harness; 7] = [
    Harness {
        name: "claude",
        title: "Claude Code",
        dialect: Dialect::Claude,
        programs: &["claude"],
        signs: &[".claude", "CLAUDE.md"],
        instructions: ("CLAUDE.md", Some(".claude/CLAUDE.md")),
        skills: Some(".claude/skills"),
        mcp: &[Mcp { project: Some(".mcp.json"), user: Some(".claude.json"), shape: McpShape::Servers }],
        hooks: Hooks {
            project: ".claude/settings.json",
            user: Some(".claude/settings.json"),
            events: CLAUDE_EVENTS,
            shape: HookShape::Nested,
        },
        check: Some(ClientCheck { command: &["claude", "mcp", "list"], trust: "start claude here and approve toft" }),
        writable: None,
    },
    Harness {
        name: "codex",
        title: "Codex",
        dialect: Dialect::Claude,
        programs: &["codex"],
        signs: &[".codex"],
        instructions: ("AGENTS.md", Some(".codex/AGENTS.md")),
        skills: Some(".agents/skills"),
        mcp: &[Mcp { project: Some(".codex/config.toml"), user: Some(".codex/config.toml"), shape: McpShape::Toml }],
        hooks: Hooks {
            project: ".codex/hooks.json",
            user: Some(".codex/hooks.json"),
            events: &["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"],
            shape: HookShape::Nested,
        },
        check: Some(ClientCheck {
            command: &["codex", "mcp", "list"],
            trust: "start codex here and trust the directory, then each hook (/hooks)",
        }),
        writable: Some((".codex/config.toml", "sandbox_workspace_write", "writable_roots")),
    },
    Harness {
        name: "gemini",
        title: "Gemini CLI",
        dialect: Dialect::Gemini,
        programs: &["gemini"],
        signs: &[".gemini", "GEMINI.md"],
        instructions: ("GEMINI.md", Some(".gemini/GEMINI.md")),
        skills: Some(".agents/skills"),
        mcp: &[Mcp {
            project: Some(".gemini/settings.json"),
            user: Some(".gemini/settings.json"),
            shape: McpShape::Servers,
        }],
        hooks: Hooks {
            project: ".gemini/settings.json",
            user: Some(".gemini/settings.json"),
            events: &["SessionStart", "BeforeAgent", "AfterTool", "PreCompress", "AfterAgent", "SessionEnd"],
            shape: HookShape::Nested,
        },
        check: Some(ClientCheck {
            command: &["gemini", "mcp", "list"],
            trust: "start gemini here and trust the folder",
        }),
        writable: None,
    },
    Harness {
        name: "antigravity",
        title: "Antigravity",
        dialect: Dialect::Gemini,
        programs: &["antigravity", "agy"],
        signs: &[".antigravity", ".agents/mcp_config.json"],
        instructions: ("AGENTS.md", None),
        skills: Some(".agents/skills"),
        mcp: &[Mcp { project: Some(".agents/mcp_config.json"), user: None, shape: McpShape::Servers }],
        hooks: Hooks { project: ".agents/hooks.json", user: None, events: CLAUDE_EVENTS, shape: HookShape::Nested },
        check: None,
        writable: None,
    },
    Harness {
        name: "cursor",
        title: "Cursor",
        dialect: Dialect::Cursor,
        programs: &["cursor-agent", "cursor"],
        signs: &[".cursor"],
        instructions: ("AGENTS.md", None),
        skills: Some(".agents/skills"),
        mcp: &[Mcp { project: Some(".cursor/mcp.json"), user: Some(".cursor/mcp.json"), shape: McpShape::Servers }],
        hooks: Hooks {
            project: ".cursor/hooks.json",
            user: Some(".cursor/hooks.json"),
            events: &["sessionStart", "postToolUse", "preCompact", "stop", "sessionEnd"],
            shape: HookShape::Flat,
        },
        check: None,
        writable: None,
    },
    Harness {
        name: "copilot",
        title: "Copilot",
        dialect: Dialect::Copilot,
        programs: &["copilot", "code"],
        signs: &[".github/copilot-instructions.md", ".copilot", ".vscode"],
        instructions: ("AGENTS.md", None),
        skills: Some(".agents/skills"),
        mcp: &[
            Mcp { project: Some(".mcp.json"), user: Some(".copilot/mcp-config.json"), shape: McpShape::Servers },
            Mcp { project: Some(".vscode/mcp.json"), user: None, shape: McpShape::Typed },
        ],
        hooks: Hooks {
            project: ".github/hooks/toft.json",
            user: None,
            events: &["sessionStart", "userPromptSubmitted", "postToolUse", "preCompact", "agentStop", "sessionEnd"],
            shape: HookShape::Own,
        },
        check: Some(ClientCheck {
            command: &["copilot", "mcp", "list"],
            trust: "start copilot here and trust the folder",
        }),
        writable: None,
    },
    Harness {
        name: "opencode",
        title: "OpenCode",
        dialect: Dialect::Plain,
        programs: &["opencode"],
        signs: &[".opencode", "opencode.json", ".config/opencode"],
        instructions: ("AGENTS.md", Some(".config/opencode/AGENTS.md")),
        skills: Some(".agents/skills"),
        mcp: &[Mcp {
            project: Some("opencode.json"),
            user: Some(".config/opencode/opencode.json"),
            shape: McpShape::Local,
        }],
        hooks: Hooks {
            project: ".opencode/plugins/toft.ts",
            user: Some(".config/opencode/plugins/toft.ts"),
            events: &["session.created", "prompt", "tools", "compact", "session.idle", "session.deleted"],
            shape: HookShape::Plugin,
        },
        check: None,
        writable: None,
    },
];

const INSTRUCTIONS: &str = "\
## Work is shared through toft

Several agents work here at once. `toft prime` says who you are, what you hold, what was said to you and what is ready.

- `toft ready` shows what can start, `toft claim` takes it under a lease; what another agent holds is theirs.
- `toft save -m \"done so far, what is next\"` after each step: whoever comes after you starts there.
- `toft finish -m \"what you did\" --evidence COMMIT` when it is done; `toft finish waiting -m \"question\"` asks a person.
- Found more work? `toft add \"title\" --needs ID` writes it down.";

const SKILL: &str = "\
---
name: toft
description: Take, track and hand over work that several agents share. Use when asked what to do next, before starting \
work in this repository, to note progress, to finish, to hand over, or to plan work with dependencies.
---

# Working with toft

1. `toft prime`: who you are, what you hold, messages, ready work.
2. `toft claim` takes the best ready work, `toft claim ID` a certain one; `--ws` gives it a directory of its own.
3. `toft show @ --context` is everything known about what you hold.
4. `toft save -m \"…\"` after each step that took long. It renews your lease.
5. `toft finish -m \"…\" --evidence COMMIT`, or `--no-change \"why\"`; `failed`, `release`, `handoff`, `waiting -m \"question\"`.

Planning: `toft add \"title\" -d \"…\" --needs ID --parent ID`; `toft list --graph` shows the plan; `toft ready --explain` says why
something cannot start. Messages: `toft agent send NAME \"…\"`, `toft agent inbox`.

Exit codes: 0 ok, 2 usage, 3 not found, 4 not allowed, 5 somebody else holds it, 6 nothing to do, 7 try again.
";

/// Plugins are programs; this one only calls `toft hook`, and is silent when there is no toft.
const PLUGIN: &str = r#"// Written by `toft setup`; `toft setup --remove` takes it away.
export const Toft = async ({ $, directory }) => {
  const said = new Map()
  const hook = async (event, session) => {
    try {
      const input = new Response(JSON.stringify({ session_id: session, cwd: directory }))
      return (await $`toft hook ${event} --for opencode < ${input}`.quiet().nothrow().text()).trim()
    } catch {
      return ""
    }
  }
  const hear = async (event, session) => {
    const text = await hook(event, session)
    if (text) said.set(session, [said.get(session), text].filter(Boolean).join("\n\n"))
  }
  return {
    event: async ({ event }) => {
      const session = event.properties?.sessionID ?? event.properties?.info?.id
      if (event.type === "session.created") await hear("session.created", session)
      if (event.type === "session.idle") await hear("session.idle", session)
      if (event.type === "session.deleted") await hook("session.deleted", session)
    },
    "chat.message": async (input) => hear("prompt", input.sessionID),
    "tool.execute.after": async (input) => hear("tools", input.sessionID),
    "experimental.session.compacting": async (input) => {
      await hook("compact", input.sessionID)
      await hear("session.created", input.sessionID)
    },
    "experimental.chat.system.transform": async (input, output) => {
      const text = said.get(input.sessionID)
      if (text) output.system.push(text)
    },
  }
}
"#;

/// The command that a hook runs; where there is no toft it does nothing.
pub(super) fn command(event: &str, harness: &str) -> String {
    format!("if command -v toft >/dev/null 2>&1; then toft hook {event} --for {harness} || true; fi")
}

impl Harness {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        HARNESSES.iter().find(|harness| harness.name == name)
    }

    /// Whether it seems to be used here.
    pub(super) fn is_used(&self, root: &Path, home: &Path) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        let installed = |program: &&str| env::split_paths(&path).any(|dir| dir.join(program).is_file());
        self.programs.iter().any(installed)
            || self.signs.iter().any(|sign| root.join(sign).exists() || home.join(sign).exists())
    }

    /// Everything that is written for it. `writes` is the directory of the store, for sandboxes.
    pub(super) fn pieces(&self, writes: Option<&Path>) -> Vec<Piece> {
        let owned = |name: &str| name.to_owned();
        let (project, user) = self.instructions;
        let mut pieces = vec![Piece {
            project: Some(owned(project)),
            user: user.map(owned),
            change: Change::Block(INSTRUCTIONS.to_owned()),
        }];
        if let Some(dir) = self.skills {
            let name = format!("{dir}/toft/SKILL.md");
            pieces.push(Piece {
                project: Some(name.clone()),
                user: Some(name),
                change: Change::Whole(SKILL.to_owned()),
            });
        }
        for Mcp { project, user, shape } in self.mcp {
            pieces.push(Piece { project: project.map(owned), user: user.map(owned), change: shape.change() });
        }
        pieces.extend(self.hook_pieces());
        if let (Some((file, table, key)), Some(dir)) = (self.writable, writes) {
            let change = Change::Entry(table, key, dir.display().to_string());
            pieces.push(Piece { project: None, user: Some(owned(file)), change });
        }
        pieces
    }

    fn hook_pieces(&self) -> Vec<Piece> {
        let Hooks { project, user, events, shape } = &self.hooks;
        let piece = |change| Piece { project: Some((*project).to_owned()), user: user.map(str::to_owned), change };
        let command = |event: &str| command(event, self.name);
        match shape {
            HookShape::Nested => {
                let item = |event: &&'static str| {
                    let hook = json!({ "type": "command", "command": command(event) });
                    piece(Change::Item(vec!["hooks", event], json!({ "hooks": [hook] }), None))
                };
                events.iter().map(item).collect()
            }
            HookShape::Flat => {
                let item = |event: &&'static str| {
                    let besides = Some(("version", json!(1)));
                    piece(Change::Item(vec!["hooks", event], json!({ "command": command(event) }), besides))
                };
                events.iter().map(item).collect()
            }
            HookShape::Own => {
                let hooks: serde_json::Map<String, Value> = events
                    .iter()
                    .map(|event| {
                        ((*event).to_owned(), json!([{ "type": "command", "bash": command(event), "timeoutSec": 10 }]))
                    })
                    .collect();
                let text = serde_json::to_string_pretty(&json!({ "version": 1, "hooks": hooks })).unwrap_or_default();
                vec![piece(Change::Whole(format!("{text}\n")))]
            }
            HookShape::Plugin => vec![piece(Change::Whole(PLUGIN.to_owned()))],
        }
    }

    /// Whether a command is one that toft writes for it, letter by letter.
    pub(super) fn wrote(&self, line: &str) -> bool {
        line == command("prompt", self.name) || self.hooks.events.iter().any(|event| line == command(event, self.name))
    }

    /// Whether a text is the plugin that toft writes for it.
    pub(super) fn is_plugin(&self, text: &str) -> bool {
        matches!(self.hooks.shape, HookShape::Plugin) && text == PLUGIN
    }

    /// The events that its hooks are called for.
    #[cfg(test)]
    pub(crate) fn events(&self) -> &'static [&'static str] {
        self.hooks.events
    }

    /// The file that its hooks are in, in a checkout and at home.
    pub(super) fn hook_files(&self) -> (&'static str, Option<&'static str>) {
        (self.hooks.project, self.hooks.user)
    }
}

impl McpShape {
    fn change(self) -> Change {
        let plain = json!({ "command": "toft", "args": ["mcp"] });
        match self {
            Self::Servers => Change::Key(vec!["mcpServers", "toft"], plain),
            Self::Typed => {
                Change::Key(vec!["servers", "toft"], json!({ "type": "stdio", "command": "toft", "args": ["mcp"] }))
            }
            Self::Local => Change::Key(
                vec!["mcp", "toft"],
                json!({ "type": "local", "command": ["toft", "mcp"], "enabled": true }),
            ),
            Self::Toml => {
                Change::Table("mcp_servers", "toft", vec![("command", json!("toft")), ("args", json!(["mcp"]))])
            }
        }
    }
}
