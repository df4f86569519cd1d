//! Stores that other tools left, as they left them.

use std::{fs, path::Path};

use crate::Home;

/// A directory of beads: a ledger, deletions kept apart as an earlier one did, and settings of a contributor.
pub fn beads(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let issue = |id: &str, title: &str, more: &str| {
        format!(
            "{{\"id\":\"{id}\",\"title\":\"{title}\",\"status\":\"open\",\"priority\":1,\"issue_type\":\"task\",\
             \"created_at\":\"2025-11-02T21:58:00-08:00\",\"updated_at\":\"2025-11-03T08:00:00-08:00\"{more}}}\n"
        )
    };
    let needs = ",\"dependencies\":[{\"issue_id\":\"bd-2\",\"depends_on_id\":\"bd-1\",\"type\":\"blocks\"}]";
    let ledger =
        [issue("bd-1", "Parse it", ""), issue("bd-2", "Print it", needs), issue("bd-3", "Drop it", "")].concat();
    fs::write(dir.join("beads.jsonl"), ledger).unwrap();
    let deleted = "{\"id\":\"bd-3\",\"ts\":\"2025-11-04T00:00:00Z\",\"by\":\"ana\",\"reason\":\"cleanup\"}\n";
    fs::write(dir.join("deletions.jsonl"), deleted).unwrap();
    fs::write(dir.join("config.yaml"), "# settings\nrouting.contributor: ~/.beads-planning\n").unwrap();
}

/// Runs SQL with the program of that name.
fn sqlite(home: &Home, dir: &Path, file: &str, sql: &str) {
    fs::create_dir_all(dir).unwrap();
    home.run(dir, "sqlite3", &[file, sql]);
}

/// A global database of caw, with its tables: one workflow of three tasks here, one in another repository, a template.
pub fn caw(home: &Home, dir: &Path, here: &Path) {
    let here = here.display();
    let sql = format!(
        "
        CREATE TABLE repositories (id TEXT PRIMARY KEY, path TEXT NOT NULL UNIQUE, name TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
        CREATE TABLE workflows (id TEXT PRIMARY KEY, name TEXT NOT NULL, source_type TEXT NOT NULL, source_ref TEXT, source_content TEXT, status TEXT NOT NULL, initial_plan TEXT, plan_summary TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
        CREATE TABLE workflow_repositories (workflow_id TEXT NOT NULL, repository_id TEXT NOT NULL, added_at INTEGER NOT NULL);
        CREATE TABLE tasks (id TEXT PRIMARY KEY, workflow_id TEXT NOT NULL, name TEXT NOT NULL, description TEXT, status TEXT NOT NULL, sequence INTEGER NOT NULL, plan TEXT, context TEXT, outcome TEXT, outcome_detail TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
        CREATE TABLE task_dependencies (task_id TEXT NOT NULL, depends_on_id TEXT NOT NULL, dependency_type TEXT NOT NULL DEFAULT 'blocks');
        CREATE TABLE checkpoints (id TEXT PRIMARY KEY, task_id TEXT NOT NULL, sequence INTEGER NOT NULL, checkpoint_type TEXT NOT NULL, summary TEXT NOT NULL, detail TEXT, files_changed TEXT, created_at INTEGER NOT NULL);
        CREATE TABLE workflow_templates (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT, template TEXT NOT NULL, version INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
        INSERT INTO repositories VALUES ('rp_000000000001', '{here}', 'project', 1, 1), ('rp_000000000002', '/elsewhere', 'other', 1, 1);
        INSERT INTO workflows VALUES ('wf_a1b2c3d4e5f6', 'Sign in', 'prompt', NULL, 'People sign in', 'in_progress', NULL, NULL, 1763200000000, 1763200100000);
        INSERT INTO workflows VALUES ('wf_other', 'Sing', 'prompt', NULL, 'Of another project', 'in_progress', NULL, NULL, 1763200000000, 1763200100000);
        INSERT INTO workflow_repositories VALUES ('wf_a1b2c3d4e5f6', 'rp_000000000001', 1), ('wf_other', 'rp_000000000002', 1);
        INSERT INTO tasks VALUES ('tk_000000000001', 'wf_a1b2c3d4e5f6', 'Issue tokens', 'JWT', 'completed', 1, NULL, NULL, 'Tokens are issued', '{{\"files\":[\"token.rs\"]}}', 1763200000000, 1763200050000);
        INSERT INTO tasks VALUES ('tk_000000000002', 'wf_a1b2c3d4e5f6', 'Check tokens', '', 'pending', 2, NULL, NULL, NULL, NULL, 1763200000000, 1763200000000);
        INSERT INTO tasks VALUES ('tk_000000000003', 'wf_a1b2c3d4e5f6', 'Write it up', '', 'failed', 3, NULL, NULL, 'No examples', NULL, 1763200000000, 1763200000000);
        INSERT INTO tasks VALUES ('tk_other', 'wf_other', 'Do re mi', '', 'pending', 1, NULL, NULL, NULL, NULL, 1763200000000, 1763200000000);
        INSERT INTO task_dependencies VALUES ('tk_000000000002', 'tk_000000000001', 'blocks'), ('tk_000000000003', 'tk_000000000002', 'informs');
        INSERT INTO checkpoints VALUES ('cp_000000000001', 'tk_000000000001', 1, 'progress', 'keys are rotated', NULL, NULL, 1763200040000);
        INSERT INTO workflow_templates VALUES ('tmpl_00000000001', 'fix', 'Mend one thing', '{{\"variables\":[\"what\"],\"tasks\":[{{\"name\":\"find\",\"description\":\"Find {{{{what}}}}\"}},{{\"name\":\"mend\",\"depends_on\":[\"find\"]}}]}}', 1, 1763200000000, 1763200000000);"
    );
    sqlite(home, dir, "workflows.db", &sql);
}

/// A checkpoint database of LangGraph: two threads, one in MessagePack and one in JSON, and one of the project at `here`.
pub fn langgraph(home: &Home, dir: &Path, here: &Path) {
    let here = here.display();
    // {"v": 1, "ts": "2026-01-19T10:00:00+00:00", "channel_values": {"title": "Fix the parser", "branch:to:plan": true}}
    let packed = "83a17601a27473b9323032362d30312d31395431303a30303a30302b30303a3030ae6368616e6e656c5f76616c75657382a57469746c65ae4669782074686520706172736572ae6272616e63683a746f3a706c616ec3";
    let sql = format!(
        "CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
        CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, idx INTEGER, channel TEXT, type TEXT, value BLOB);
        INSERT INTO checkpoints VALUES ('issue-12', '', '1f0-a', NULL, 'msgpack', x'{packed}', '{{\"source\":\"loop\",\"step\":1,\"writes\":{{\"plan\":{{}}}}}}');
        INSERT INTO checkpoints VALUES ('issue-13', '', '1f0-b', NULL, 'json', '{{\"ts\":\"2026-01-20T10:00:00+00:00\",\"channel_values\":{{\"brief\":\"Write the docs\",\"status\":\"done\"}}}}', '{{}}');
        INSERT INTO checkpoints VALUES ('issue-14', '', '1f0-c', NULL, 'json', '{{\"ts\":\"2026-01-21T10:00:00+00:00\",\"channel_values\":{{\"brief\":\"Count the beans\",\"repo_root\":\"{here}\"}}}}', '{{}}');"
    );
    sqlite(home, dir, "issue_workflow.db", &sql);
}
