//! Speaks with a forge through its own program, which has the user's account: `gh`, `glab` or `tea`.
//!
//! Each program passes requests on to the forge's API, so no password is known here. GitHub, Gitea and Forgejo share the
//! API of pulls; GitLab has merge requests. Both are read into the same [`PullRequestFacts`].

use std::{io, path::Path, time::Duration};

use serde_json::Value;
use toft_core::landing::{PullRequestComment, PullRequestFacts, PullRequestReview, PullRequestState};
use toft_session::{error::Error, land::ForgeProgram};
use toft_vcs::exchange::ExchangeError;

/// How long a forge may take to answer one request.
const FORGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The most failed checks of a commit that are read, with their logs.
const MAX_FAILED_CHECKS: usize = 5;

/// Characters of a program's error output in a message.
const MAX_ERROR_CHARS: usize = 300;

/// Asks for the longest page that every forge gives: GitHub's name for it, and Gitea's.
const PAGE_QUERY: &str = "per_page=100&limit=100";

/// Why a forge did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForgeError {
    #[error("{url} is no project on a forge: its address has to be like https://HOST/OWNER/NAME")]
    NotAProject { url: String },
    #[error("which forge is {host}? `forge` in [land] says gh, glab or tea")]
    UnknownForge { host: String },
    #[error("{program} is not installed, or not on PATH")]
    NotInstalled { program: &'static str },
    #[error("{program}: {source}")]
    NotStarted { program: &'static str, source: io::Error },
    #[error("{program} {path}: {output}")]
    Failed { program: &'static str, path: String, output: String },
    #[error("{program} does not answer in JSON: {source}")]
    NotJson { program: &'static str, source: serde_json::Error },
    #[error("the answer names no pull request: {answer}")]
    NoPullRequest { answer: Value },
}

impl From<ForgeError> for Error {
    fn from(error: ForgeError) -> Self {
        // To the caller a forge is one more remote that refuses: the target is blocked, and the run goes on.
        ExchangeError::Conflict(error.to_string()).into()
    }
}

/// A project on a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forge {
    program: ForgeProgram,
    host: String,
    /// `OWNER/NAME`.
    project: String,
}

/// A pull request to be opened.
pub(crate) struct NewPullRequest<'a> {
    /// The branch, with its owner if it is in a fork.
    pub(crate) head: &'a str,
    pub(crate) base: &'a str,
    pub(crate) title: &'a str,
    pub(crate) body: &'a str,
}

impl Forge {
    /// Finds the project that a remote's address names. Without `program`, the host tells which forge it is.
    pub(crate) fn from_remote_url(url: &str, program: Option<ForgeProgram>) -> Result<Self, ForgeError> {
        let Some((host, project)) = parse_project_url(url) else {
            // The address may have a password in it.
            let url = url.rsplit('@').next().unwrap_or(url).to_owned();
            return Err(ForgeError::NotAProject { url });
        };
        match program.or_else(|| program_of_host(&host)) {
            Some(program) => Ok(Self { program, host, project }),
            None => Err(ForgeError::UnknownForge { host }),
        }
    }

    pub(crate) fn project_owner(&self) -> &str {
        self.project.rsplit_once('/').map_or("", |(owner, _)| owner)
    }

    /// Opens a pull request; returns its number and address.
    pub(crate) fn open_pull_request(&self, new: &NewPullRequest<'_>) -> Result<(u64, String), ForgeError> {
        let NewPullRequest { head, base, title, body } = *new;
        let answer = match self.program {
            ForgeProgram::Gh | ForgeProgram::Tea => self.call_api(
                &format!("repos/{}/pulls", self.project),
                &[("title", title), ("head", head), ("base", base), ("body", body)],
            ),
            ForgeProgram::Glab => self.call_api(
                &format!("projects/{}/merge_requests", self.encoded_project()),
                &[("title", title), ("source_branch", head), ("target_branch", base), ("description", body)],
            ),
        }?;
        number_and_url(&answer).ok_or(ForgeError::NoPullRequest { answer })
    }

    /// Finds the open pull request of a branch; returns its number and address.
    pub(crate) fn find_open_pull_request(&self, head: &str, base: &str) -> Result<Option<(u64, String)>, ForgeError> {
        let (owner, branch) = head.split_once(':').unwrap_or((self.project_owner(), head));
        let listed = match self.program {
            ForgeProgram::Gh => {
                let query = format!("state=open&base={base}&head={owner}:{branch}");
                self.call_api(&format!("repos/{}/pulls?{query}", self.project), &[])
            }
            ForgeProgram::Tea => self.call_api(&format!("repos/{}/pulls?state=open&{PAGE_QUERY}", self.project), &[]),
            ForgeProgram::Glab => {
                let query = format!("state=opened&source_branch={branch}&target_branch={base}");
                self.call_api(&format!("projects/{}/merge_requests?{query}", self.encoded_project()), &[])
            }
        }?;
        let found = array_items(&listed).find(|request| is_request_of(request, owner, branch, base));
        Ok(found.and_then(number_and_url))
    }

    /// Reads what the forge says of a pull request.
    pub(crate) fn pull_request_facts(&self, number: u64) -> Result<PullRequestFacts, ForgeError> {
        match self.program {
            ForgeProgram::Gh | ForgeProgram::Tea => self.read_pull(number),
            ForgeProgram::Glab => self.read_merge_request(number),
        }
    }

    fn read_pull(&self, number: u64) -> Result<PullRequestFacts, ForgeError> {
        let path = format!("repos/{}/pulls/{number}", self.project);
        let pull = self.call_api(&path, &[])?;
        let mut facts = PullRequestFacts {
            state: pull_state(&pull),
            head: text_of(&pull["head"]["sha"]),
            ..PullRequestFacts::default()
        };
        if matches!(facts.state, PullRequestState::Merged { .. }) {
            return Ok(facts);
        }
        self.read_reviews(&path, &mut facts)?;
        if facts.state == PullRequestState::Open {
            self.read_statuses(&mut facts)?;
            self.read_check_runs(&mut facts)?;
        }
        Ok(facts)
    }

    /// Reads reviews, and comments on the newest commit.
    fn read_reviews(&self, pull_path: &str, facts: &mut PullRequestFacts) -> Result<(), ForgeError> {
        let listed = self.call_api(&format!("{pull_path}/reviews?{PAGE_QUERY}"), &[])?;
        let mut reviews = Vec::new();
        for review in array_items(&listed) {
            reviews.push(parse_review(review));
            // Gitea keeps comments with their review, GitHub with the pull request.
            if let (ForgeProgram::Tea, Some(id)) = (self.program, review["id"].as_u64()) {
                let comments = self.call_api(&format!("{pull_path}/reviews/{id}/comments"), &[])?;
                facts.comments.extend(comments_on(&comments, &facts.head));
            }
        }
        facts.take_reviews(reviews);
        if self.program == ForgeProgram::Gh {
            let comments = self.call_api(&format!("{pull_path}/comments?{PAGE_QUERY}"), &[])?;
            facts.comments.extend(comments_on(&comments, &facts.head));
        }
        Ok(())
    }

    /// Reads the failed statuses of the newest commit, which other services report.
    fn read_statuses(&self, facts: &mut PullRequestFacts) -> Result<(), ForgeError> {
        let status = self.call_api(&format!("repos/{}/commits/{}/status", self.project, facts.head), &[])?;
        facts.failed.extend(array_items(&status["statuses"]).filter_map(parse_failed_status));
        Ok(())
    }

    /// Reads the failed check runs of the newest commit, which only GitHub has, with their logs.
    fn read_check_runs(&self, facts: &mut PullRequestFacts) -> Result<(), ForgeError> {
        if self.program != ForgeProgram::Gh {
            return Ok(());
        }
        let path = format!("repos/{}/commits/{}/check-runs?{PAGE_QUERY}", self.project, facts.head);
        let listed = self.call_api(&path, &[])?;
        for run in array_items(&listed["check_runs"]).filter(|run| is_failed_check_run(run)).take(MAX_FAILED_CHECKS) {
            let output = ["title", "summary", "text"].map(|part| text_of(&run["output"][part])).join("\n");
            // A check of GitHub's own runners is a job, whose log can be read; of others there is only an address.
            let job = run["id"].as_u64().filter(|_| run["app"]["slug"].as_str() == Some("github-actions"));
            let log_path = job.map(|id| format!("repos/{}/actions/jobs/{id}/logs", self.project));
            let log = log_path.and_then(|path| self.run_program(&path, &[]).ok());
            let details = match log.filter(|log| !log.trim().is_empty()) {
                Some(log) => log.trim_end().to_owned(),
                None => text_of(&run["html_url"]),
            };
            let message = format!("{}\n{details}", output.trim());
            facts.failed.push((text_of(&run["name"]), message.trim().to_owned()));
        }
        Ok(())
    }

    fn read_merge_request(&self, number: u64) -> Result<PullRequestFacts, ForgeError> {
        let path = format!("projects/{}/merge_requests/{number}", self.encoded_project());
        let request = self.call_api(&path, &[])?;
        let mut facts = PullRequestFacts {
            state: merge_request_state(&request),
            head: text_of(&request["sha"]),
            ..PullRequestFacts::default()
        };
        if matches!(facts.state, PullRequestState::Merged { .. }) {
            return Ok(facts);
        }
        self.read_failed_jobs(&request["head_pipeline"], &mut facts)?;
        let discussions = self.call_api(&format!("{path}/discussions?{PAGE_QUERY}"), &[])?;
        for note in array_items(&discussions).flat_map(|discussion| array_items(&discussion["notes"])) {
            // A thread that nobody has resolved asks for a change.
            if note["resolvable"].as_bool() == Some(true) && note["resolved"].as_bool() != Some(true) {
                facts.changes_requested = true;
                facts.comments.push(parse_note(note));
            }
        }
        Ok(facts)
    }

    /// Reads the failed jobs of a pipeline, with their logs.
    fn read_failed_jobs(&self, pipeline: &Value, facts: &mut PullRequestFacts) -> Result<(), ForgeError> {
        if pipeline["status"].as_str() != Some("failed") {
            return Ok(());
        }
        let project = self.encoded_project();
        let path = format!("projects/{project}/pipelines/{}/jobs?scope[]=failed", pipeline["id"]);
        for job in array_items(&self.call_api(&path, &[])?).take(MAX_FAILED_CHECKS) {
            let trace = format!("projects/{project}/jobs/{}/trace", job["id"]);
            let log = self.run_program(&trace, &[]).unwrap_or_else(|_| text_of(&job["web_url"]));
            facts.failed.push((text_of(&job["name"]), log.trim_end().to_owned()));
        }
        // A pipeline can fail without a job, for example on a broken configuration.
        if facts.failed.is_empty() {
            facts.failed.push(("pipeline".into(), text_of(&pipeline["web_url"])));
        }
        Ok(())
    }

    /// Returns the project as a segment of a path of GitLab's API.
    fn encoded_project(&self) -> String {
        self.project.replace('/', "%2F")
    }

    /// Asks the forge, and reads its answer. With `fields`, the request creates something.
    fn call_api(&self, path: &str, fields: &[(&str, &str)]) -> Result<Value, ForgeError> {
        let answer = self.run_program(path, fields)?;
        serde_json::from_str(&answer).map_err(|source| ForgeError::NotJson { program: self.program_name(), source })
    }

    fn run_program(&self, path: &str, fields: &[(&str, &str)]) -> Result<String, ForgeError> {
        let program = self.program_name();
        let words = self.command_line(path, fields);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = toft_runner::ask_program(&words, Path::new("/"), FORGE_TIMEOUT);
        let output = ended.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ForgeError::NotInstalled { program },
            _ => ForgeError::NotStarted { program, source },
        })?;
        if !output.success {
            let text = format!("{} {}", output.err.trim(), output.out.trim());
            let text: String = text.chars().take(MAX_ERROR_CHARS).collect();
            return Err(ForgeError::Failed { program, path: path.to_owned(), output: text.trim().to_owned() });
        }
        Ok(output.out)
    }

    fn command_line(&self, path: &str, fields: &[(&str, &str)]) -> Vec<String> {
        let mut words: Vec<String> = vec![self.program_name().into(), "api".into()];
        // `tea` finds the account by the address of its login.
        if self.program != ForgeProgram::Tea {
            words.extend(["--hostname".into(), self.host.clone()]);
        }
        if !fields.is_empty() {
            let method_flag = if self.program == ForgeProgram::Tea { "-X" } else { "--method" };
            words.extend([method_flag.into(), "POST".into()]);
        }
        words.push(path.to_owned());
        for (name, value) in fields {
            words.extend(["-f".into(), format!("{name}={value}")]);
        }
        words
    }

    fn program_name(&self) -> &'static str {
        match self.program {
            ForgeProgram::Gh => "gh",
            ForgeProgram::Glab => "glab",
            ForgeProgram::Tea => "tea",
        }
    }
}

/// Guesses the program from the name of a forge's host.
fn program_of_host(host: &str) -> Option<ForgeProgram> {
    let names = [
        ("github", ForgeProgram::Gh),
        ("gitlab", ForgeProgram::Glab),
        ("gitea", ForgeProgram::Tea),
        ("forgejo", ForgeProgram::Tea),
        ("codeberg", ForgeProgram::Tea),
    ];
    names.into_iter().find(|(name, _)| host.contains(name)).map(|(_, program)| program)
}

/// Parses the host and the project of an address: `https://HOST/OWNER/NAME.git`, `git@HOST:OWNER/NAME.git`.
fn parse_project_url(url: &str) -> Option<(String, String)> {
    let (host, path) = match url.split_once("://") {
        Some(("file", _)) => return None,
        Some((_, rest)) => rest.split_once('/')?,
        None => url.split_once(':').filter(|(host, _)| !host.contains('/'))?,
    };
    let host = host.rsplit('@').next().unwrap_or(host);
    // The port of ssh is not that of the API.
    let host = if url.starts_with("http") { host } else { host.split(':').next().unwrap_or(host) };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let has_owner_and_name =
        path.split('/').count() > 1 && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    // Both become words of a command line: neither may be taken for an option, or for a query.
    let is_safe_word = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text.chars().all(|char| char.is_ascii_alphanumeric() || "-_./:".contains(char))
    };
    let valid = has_owner_and_name && is_safe_word(host) && is_safe_word(path);
    valid.then(|| (host.to_owned(), path.to_owned()))
}

fn pull_state(pull: &Value) -> PullRequestState {
    match (pull["merged"].as_bool(), pull["state"].as_str()) {
        (Some(true), _) => PullRequestState::Merged { commit: text_of(&pull["merge_commit_sha"]) },
        (_, Some("closed")) => PullRequestState::Closed,
        _ => PullRequestState::Open,
    }
}

fn merge_request_state(request: &Value) -> PullRequestState {
    match request["state"].as_str() {
        Some("merged") => {
            // Which one is set depends on how it was merged; without a merge commit it is the tip itself.
            let commits = ["squash_commit_sha", "merge_commit_sha", "sha"].map(|name| text_of(&request[name]));
            PullRequestState::Merged {
                commit: commits.into_iter().find(|commit| !commit.is_empty()).unwrap_or_default(),
            }
        }
        Some("closed") => PullRequestState::Closed,
        _ => PullRequestState::Open,
    }
}

fn number_and_url(request: &Value) -> Option<(u64, String)> {
    let number = request["number"].as_u64().or(request["iid"].as_u64())?;
    let url = request["html_url"].as_str().or(request["web_url"].as_str())?;
    Some((number, url.to_owned()))
}

/// Returns whether a listed request is of this branch. One of the same name in a stranger's fork is another branch.
fn is_request_of(request: &Value, owner: &str, branch: &str, base: &str) -> bool {
    let is_absent_or =
        |value: &Value, wanted: &str| value.as_str().is_none_or(|text| text.eq_ignore_ascii_case(wanted));
    let name = request["head"]["ref"].as_str().or(request["source_branch"].as_str());
    name == Some(branch)
        && is_absent_or(&request["base"]["ref"], base)
        && is_absent_or(&request["target_branch"], base)
        && is_absent_or(&request["head"]["repo"]["owner"]["login"], owner)
}

fn parse_review(review: &Value) -> PullRequestReview {
    PullRequestReview {
        by: text_of(&review["user"]["login"]),
        by_member: is_by_member(review),
        commit: text_of(&review["commit_id"]),
        asks: match review["state"].as_str() {
            // GitHub's word, and Gitea's.
            Some("CHANGES_REQUESTED" | "REQUEST_CHANGES") => Some(true),
            Some("APPROVED") => Some(false),
            _ => None,
        },
        text: text_of(&review["body"]),
    }
}

/// Parses comments at lines of a commit. Those on older commits are about what was changed since.
fn comments_on(listed: &Value, head: &str) -> Vec<PullRequestComment> {
    let is_on_head = |comment: &&Value| comment["commit_id"].as_str().is_none_or(|commit| commit == head);
    let comments = array_items(listed).filter(|comment| is_by_member(comment)).filter(is_on_head);
    let parse = |comment: &Value| PullRequestComment {
        by: text_of(&comment["user"]["login"]),
        file: comment["path"].as_str().map(str::to_owned),
        line: comment["line"].as_u64().or(comment["position"].as_u64()),
        text: text_of(&comment["body"]),
    };
    comments.map(parse).collect()
}

fn parse_note(note: &Value) -> PullRequestComment {
    PullRequestComment {
        by: text_of(&note["author"]["username"]),
        file: note["position"]["new_path"].as_str().map(str::to_owned),
        line: note["position"]["new_line"].as_u64(),
        text: text_of(&note["body"]),
    }
}

/// Parses a commit status that failed: its name, and what it says.
fn parse_failed_status(status: &Value) -> Option<(String, String)> {
    let state = status["state"].as_str().or(status["status"].as_str());
    matches!(state, Some("failure" | "error")).then(|| {
        let message = format!("{} {}", text_of(&status["description"]), text_of(&status["target_url"]));
        (text_of(&status["context"]), message.trim().to_owned())
    })
}

fn is_failed_check_run(run: &Value) -> bool {
    matches!(run["conclusion"].as_str(), Some("failure" | "timed_out" | "startup_failure"))
}

/// Returns whether a member of the project wrote it, where the forge tells: anybody can comment on a public one.
fn is_by_member(comment: &Value) -> bool {
    let association = comment["author_association"].as_str();
    association.is_none_or(|association| matches!(association, "OWNER" | "MEMBER" | "COLLABORATOR"))
}

/// Returns the text of a value; empty if it is absent or no text.
fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Iterates over an array; over nothing if it is absent or no array.
fn array_items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn remote_url_names_project_and_program() {
        for url in
            ["https://github.com/acme/shop.git", "git@github.com:acme/shop", "ssh://git@github.com:22/acme/shop.git"]
        {
            let forge = Forge::from_remote_url(url, None).unwrap();
            assert_eq!((forge.host.as_str(), forge.project.as_str()), ("github.com", "acme/shop"));
            assert_eq!((forge.project_owner(), forge.program), ("acme", ForgeProgram::Gh));
        }
        let gitlab = Forge::from_remote_url("https://gitlab.com/a/b/c.git", None).unwrap();
        assert_eq!(gitlab.encoded_project(), "a%2Fb%2Fc");
        let named = Forge::from_remote_url("https://code.acme.org/a/b", Some(ForgeProgram::Tea)).unwrap();
        assert_eq!(named.program, ForgeProgram::Tea);
        let unknown = Forge::from_remote_url("https://code.acme.org/a/b", None).unwrap_err();
        assert!(unknown.to_string().contains("which forge is code.acme.org"));
    }

    #[test]
    fn refused_remote_url_is_shown_without_its_password() {
        for url in [
            "/srv/shop.git",
            "../shop",
            "file:///srv/a/b",
            "https://github.com/shop",
            "x",
            "git@h:a/../b",
            "https://h/-a b/c",
        ] {
            assert!(Forge::from_remote_url(url, Some(ForgeProgram::Gh)).is_err(), "{url}");
        }
        let refused = Forge::from_remote_url("https://me:secret@h/shop", None).unwrap_err();
        assert!(!refused.to_string().contains("secret"));
    }

    #[test]
    fn request_of_a_strangers_fork_is_another_one() {
        let request = |owner: &str| json!({ "head": { "ref": "fix", "repo": { "owner": { "login": owner } } }, "base": { "ref": "main" } });
        assert!(is_request_of(&request("Acme"), "acme", "fix", "main"));
        assert!(!is_request_of(&request("mallory"), "acme", "fix", "main"));
    }

    #[test]
    fn comments_of_strangers_and_on_older_commits_are_left_out() {
        let comment = |commit: &str, who: &str| {
            json!({ "body": "no", "path": "a.rs", "line": 3, "commit_id": commit, "author_association": who,
                    "user": { "login": "eve" } })
        };
        let listed = json!([comment("new", "MEMBER"), comment("old", "MEMBER"), comment("new", "NONE")]);
        let found = comments_on(&listed, "new");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].file.as_deref(), found[0].line), (Some("a.rs"), Some(3)));
    }
}
