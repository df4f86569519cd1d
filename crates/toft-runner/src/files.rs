//! The files of an attempt on this machine: its brief, its log, and its agent's report.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    ops::Deref,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use toft_core::{
    flow::{Attempt, AttemptResult, Word},
    id::TaskId,
    lease::Processes as _,
    refusal::Refusal,
    verbs::{context, facts},
};
use toft_session::{
    error::{Error, io as failed},
    mask::Mask,
    recipe::is_session,
    session::Session,
};
use toft_store::private;
use toft_work::Work;

use super::log::{Log, Voice, older, open_plain};

/// A longer report is ignored.
const LONGEST_REPORT: u64 = 1 << 20;

/// The paths of an attempt's files.
pub(crate) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(crate) fn of(session: &Session, task: &TaskId, fence: u64) -> Option<Self> {
        let checkout = session.located().checkout.as_ref()?;
        Some(Self { dir: checkout.state_dir().join("attempts").join(task.as_str()).join(fence.to_string()) })
    }

    /// Their directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A temporary directory of its own, for a command in a sandbox.
    pub(super) fn passing(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Creates the directory, and writes the start of the attempt to the log.
    pub(crate) fn begin(&self, note: &str, mask: &Mask) -> Result<(), Error> {
        private::create_dir_all(&self.dir).map_err(failed("make", &self.dir))?;
        let mut log = Log::open(&self.log());
        log.line(Voice::Runner, mask.mask(note));
        // One that cannot be written says so once it can.
        log.flush();
        Ok(())
    }

    pub(super) fn brief(&self) -> PathBuf {
        self.dir.join("brief.md")
    }

    pub(super) fn report(&self) -> PathBuf {
        self.dir.join("report.json")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The conversation of its client.
    pub(super) fn conversation(&self) -> PathBuf {
        self.dir.join("conversation.json")
    }
}

/// The conversation of a client, as far as a later attempt needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Conversation {
    /// The agent, by the name of its recipe.
    pub(super) agent: String,
    /// The client's own id.
    pub(super) session: String,
    /// The directory that it is about.
    pub(super) workspace: String,
    /// It was begun by an earlier attempt.
    pub(super) resumed: bool,
}

impl Conversation {
    /// The newest conversation of earlier attempts at a task that this agent can continue in this workspace.
    pub(super) fn to_continue(work: &Work<'_>, earlier: &[Attempt], agent: &str, workspace: &str) -> Option<Self> {
        // An attempt that was given back before its command started has no brief, and says nothing.
        let begun = earlier.iter().rev().filter(|attempt| attempt.ended.is_some()).find_map(|attempt| {
            let files = Files::of(work, &attempt.task, attempt.fence)?;
            files.brief().exists().then_some((attempt, files))
        });
        let (newest, files) = begun?;
        // An agent can write there: what it says is an id or nothing.
        let text = plain_text(&files.conversation()).ok()??;
        let found: Self = serde_json::from_str(&text).ok()?;
        // One that was continued and failed is not what helps.
        let fails = found.resumed && newest.result == Some(AttemptResult::Failed);
        (found.agent == agent && found.workspace == workspace && is_session(&found.session) && !fails).then_some(found)
    }
}

/// The logs of attempts.
#[derive(Clone, Copy)]
pub struct Attempts<'s> {
    work: Work<'s>,
}

impl<'s> Attempts<'s> {
    /// The logs of agents that worked from there.
    pub fn of(work: Work<'s>) -> Self {
        Self { work }
    }
}

impl<'s> Deref for Attempts<'s> {
    type Target = Work<'s>;

    fn deref(&self) -> &Work<'s> {
        &self.work
    }
}

impl Attempts<'_> {
    /// Deletes the files of attempts at ended tasks that ended this long ago; returns their number.
    pub fn forget_logs(&self, older_than: Duration) -> Result<usize, Error> {
        let Some(checkout) = &self.located().checkout else { return Ok(0) };
        let root = checkout.state_dir().join("attempts");
        let mut count = 0;
        for task in subdirectories(&root)? {
            let id = TaskId::known(task.file_name().unwrap_or_default().to_string_lossy());
            let open = self.perform(facts::TaskRow { task: id })?.is_some_and(|task| task.state.status.open());
            for attempt in if open { Vec::new() } else { subdirectories(&task)? } {
                let age = fs::metadata(attempt.join("log")).and_then(|meta| meta.modified()).map(|at| at.elapsed());
                if age.is_ok_and(|age| age.is_ok_and(|age| age >= older_than)) {
                    fs::remove_dir_all(&attempt).map_err(failed("remove", &attempt))?;
                    count += 1;
                }
            }
            // One that holds other attempts stays.
            let _ = fs::remove_dir(&task);
        }
        Ok(count)
    }
}

fn subdirectories(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(failed("read", dir)(cause)),
    }
}

/// The log of an attempt.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptLog {
    pub task: TaskId,
    /// Number of the attempt.
    pub attempt: u64,
    /// Its files, the older part first.
    pub files: Vec<PathBuf>,
    pub lines: Vec<String>,
}

impl Attempts<'_> {
    /// An attempt at a task; the newest if the number is 0.
    pub(crate) fn attempt(&self, actor: &str, id: &str, number: u64) -> Result<(TaskId, Attempt), Error> {
        let facts = self.perform_as(actor, None, context::Request { id: id.to_owned() });
        let task = match facts {
            Ok(facts) => facts.task.id,
            Err(Error::Refused(Refusal::NotFound { .. })) => {
                return Err(Refusal::NotFound {
                    what: "attempt".into(),
                    text: format!("{id}: nobody has taken it yet"),
                }
                .into());
            }
            Err(error) => return Err(error),
        };
        let attempts = self.perform(facts::TaskAttempts { task: task.clone() })?;
        let found = attempts.into_iter().rev().find(|attempt| number == 0 || attempt.fence == number);
        let missing = || Refusal::NotFound { what: "log".into(), text: format!("{task} attempt {number}") };
        let attempt = found.ok_or_else(missing)?;
        Ok((task, attempt))
    }

    /// The log of an attempt at a task; of the newest attempt if the number is 0.
    pub fn attempt_log(&self, actor: &str, id: &str, number: u64) -> Result<AttemptLog, Error> {
        let (task, attempt) = self.attempt(actor, id, number)?;
        let missing = |text: String| Refusal::NotFound { what: "log".into(), text };
        let elsewhere = attempt.report.as_ref().filter(|report| report.host != self.machine().disks());
        if let Some(report) = elsewhere {
            let lines = self.lines_on_server(&task, attempt.fence)?;
            if !lines.is_empty() {
                return Ok(AttemptLog { task, attempt: attempt.fence, files: Vec::new(), lines });
            }
            return Err(missing(format!("{} on another machine, {}", report.log, report.host)).into());
        }
        let files: Vec<PathBuf> = Files::of(self, &task, attempt.fence)
            .map(|files| [older(&files.log()), files.log()])
            .into_iter()
            .flatten()
            .filter(|path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()))
            .collect();
        let mut lines = Vec::new();
        for path in &files {
            let mut bytes = Vec::new();
            open_plain(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(failed("read", path))?;
            lines.extend(String::from_utf8_lossy(&bytes).lines().map(str::to_owned));
        }
        if files.is_empty() {
            lines = self.lines_on_server(&task, attempt.fence)?;
        }
        Ok(AttemptLog { task, attempt: attempt.fence, files, lines })
    }

    /// The log of an attempt on another machine, as far as that has sent it.
    fn lines_on_server(&self, task: &TaskId, fence: u64) -> Result<Vec<String>, Error> {
        let (mut text, mut offset) = (Vec::new(), 0);
        while let Some(part) = self.load_log(task, fence, offset)?.filter(|part| part.end > offset) {
            text.extend(part.text);
            offset = part.end;
        }
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }
}

/// An agent's report in the file that `TOFT_REPORT` names. Secrets in the file are masked, too.
pub(super) fn read_word(path: &Path, mask: &Mask) -> Result<Word, String> {
    let Some(text) = plain_text(path)? else { return Ok(Word::default()) };
    let masked = mask.mask(&text);
    if masked != text {
        private::write(path, &masked).map_err(|error| error.to_string())?;
    }
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Writes the report of an agent. The agent can write in that directory, so the file is replaced: a link that it put there
/// is not followed.
pub fn write_report(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(dir)?;
    draft.write_all(text.as_bytes())?;
    draft.persist(path).map(drop).map_err(|error| error.error)
}

/// The text of a file that an agent can write; nothing if there is none.
fn plain_text(path: &Path) -> Result<Option<String>, String> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !meta.is_file() || meta.len() > LONGEST_REPORT {
        return Err("is no plain file of a sensible size".into());
    }
    fs::read_to_string(path).map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use toft_core::flow::{SaidOutcome, Usage};

    use super::*;

    fn read(text: impl AsRef<[u8]>) -> Result<Word, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        fs::write(&path, text).unwrap();
        read_word(&path, &Mask::from_environment(None))
    }

    #[test]
    fn a_report_is_read_as_it_is_written() {
        assert_eq!(read("{}"), Ok(Word::default()));
        let whole = r#"{"outcome":"done","message":"m","choices":["a"],"evidence":"c0ffee","no_change":"n","cost":1.5,
                       "usage":{"input_tokens":7}}"#;
        let word = Word {
            outcome: Some(SaidOutcome::Done),
            choices: vec!["a".into()],
            message: "m".into(),
            evidence: Some("c0ffee".into()),
            no_change: Some("n".into()),
            cost: Some(1.5),
            usage: Some(Usage { input_tokens: 7, output_tokens: 0 }),
        };
        assert_eq!(read(whole), Ok(word));
        for (text, outcome) in [
            ("failed", SaidOutcome::Failed),
            ("release", SaidOutcome::Release),
            ("handoff", SaidOutcome::Handoff),
            ("waiting", SaidOutcome::Waiting),
        ] {
            assert_eq!(read(format!(r#"{{"outcome":"{text}"}}"#)).unwrap().outcome, Some(outcome));
        }
    }

    #[test]
    fn a_report_that_says_anything_else_is_a_problem_and_no_word() {
        for text in [
            "",
            "done",
            "null",
            "{",
            r#"{"outcome":"perfect"}"#,
            r#"{"outcome":"done","result":"unknown key"}"#,
            r#"{"message":7}"#,
            r#"{"cost":"much"}"#,
            r#"{"outcome":"done"} {"outcome":"failed"}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(b"{\"message\":\"\xff\"}").is_err(), "it is not UTF-8");
        let large = format!(r#"{{"message":"{}"}}"#, "x".repeat(LONGEST_REPORT as usize));
        assert_eq!(read(large), Err("is no plain file of a sensible size".into()));
    }

    #[test]
    fn a_report_is_a_plain_file_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mask) = (dir.path().join("report.json"), Mask::from_environment(None));
        assert_eq!(read_word(&path, &mask), Ok(Word::default()), "no file, no word");
        fs::create_dir(&path).unwrap();
        assert!(read_word(&path, &mask).is_err());
        fs::remove_dir(&path).unwrap();
        #[cfg(unix)]
        {
            let elsewhere = dir.path().join("elsewhere");
            fs::write(&elsewhere, "{}").unwrap();
            std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
            assert!(read_word(&path, &mask).is_err(), "an agent's link is not followed");
        }
    }

    #[test]
    fn secrets_of_a_report_are_masked_where_it_lies() {
        let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        fs::write(&path, format!(r#"{{"message":"used {token}"}}"#)).unwrap();
        read_word(&path, &Mask::from_environment(None)).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains(&token));
    }
}
