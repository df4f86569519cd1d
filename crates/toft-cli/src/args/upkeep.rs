//! Flags of backups, and of what packages need.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Back up the store to a file, or restore it. For a repository's own store, the file also contains its id, ledger, settings and
/// attempt logs; for a server, it contains one space. Work can continue.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  toft backup /mnt/backups              # a new file in that directory\n  toft backup restore /mnt/backups/toft-20261116t022509123z.backup"
)]
pub(crate) struct Backup {
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// File to create, or a directory for it
    #[arg(value_name = "FILE|DIR")]
    pub(crate) target: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Restore a store from a backup
    Restore(RestoreBackup),
}

/// Restore a store from a backup. A damaged store is kept under another name; an undamaged one is replaced only with
/// --replace. Stop running agents first.
#[derive(Args, Debug)]
pub(crate) struct RestoreBackup {
    /// Backup file
    pub(crate) file: PathBuf,
    /// Replace an undamaged store; the old one is kept under another name
    #[arg(long)]
    pub(crate) replace: bool,
}

// Without a doc comment, each command keeps its own text from the table.
#[derive(Args, Debug)]
pub(crate) struct WriteTo {
    /// Directory; created if it does not exist
    #[arg(long = "dir", value_name = "DIR")]
    pub(crate) target: PathBuf,
}
