//! Speaks with a forge through its own program, which has the user's account: `gh`, `glab` or `tea`. Each passes requests on
//! to the forge's API; nothing here knows a password.

use std::{path::Path, time::Duration};

use serde_json::Value;
use toft_core::landing::{PullRequestComment, PullRequestFacts, PullRequestReview, PullRequestState};
use toft_session::land::ForgeProgram;

/// How long a forge may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many failed checks of a commit are told, with their logs.
const TOLD: usize = 5;
/// Maximum number of characters of what a program says when it fails.
const SAID: usize = 300;
/// How many comments, reviews and checks are read.
const READ: &str = "per_page=100&limit=100";

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
    /// The project that a remote's address names.
    pub(crate) fn of(url: &str, named: Option<ForgeProgram>) -> Result<Self, String> {
        let (host, project) = project_of(url).ok_or_else(|| {
            // A password may be in it.
            let url = url.rsplit('@').next().unwrap_or(url);
            format!("{url} is no project on a forge: its address has to be like https://HOST/OWNER/NAME")
        })?;
        let program = named.or_else(|| {
            let says = |word: &str| host.contains(word);
            match (says("github"), says("gitlab"), says("gitea") || says("forgejo") || says("codeberg")) {
                (true, ..) => Some(ForgeProgram::Gh),
                (_, true, _) => Some(ForgeProgram::Glab),
                (.., true) => Some(ForgeProgram::Tea),
                _ => None,
            }
        });
        let program =
            program.ok_or_else(|| format!("which forge is {host}? `forge` in [land] says gh, glab or tea"))?;
        Ok(Self { program, host, project })
    }

    /// The owner of the project.
    pub(crate) fn owner(&self) -> &str {
        self.project.rsplit_once('/').map_or("", |(owner, _)| owner)
    }

    /// Opens a pull request; returns its number and address.
    pub(crate) fn open(&self, new: &NewPullRequest<'_>) -> Result<(u64, String), String> {
        let NewPullRequest { head, base, title, body } = *new;
        let made = match self.program {
            ForgeProgram::Gh | ForgeProgram::Tea => self.ask(
                &format!("repos/{}/pulls", self.project),
                &[("title", title), ("head", head), ("base", base), ("body", body)],
            ),
            ForgeProgram::Glab => self.ask(
                &format!("projects/{}/merge_requests", self.encoded()),
                &[("title", title), ("source_branch", head), ("target_branch", base), ("description", body)],
            ),
        }?;
        number_and_url(&made).ok_or_else(|| format!("the answer names no pull request: {made}"))
    }

    /// The open pull request of a branch.
    pub(crate) fn opened(&self, head: &str, base: &str) -> Result<Option<(u64, String)>, String> {
        let branch = head.rsplit(':').next().unwrap_or(head);
        let listed = match self.program {
            ForgeProgram::Gh => {
                let owner = if head.contains(':') { head.to_owned() } else { format!("{}:{head}", self.owner()) };
                self.ask(&format!("repos/{}/pulls?state=open&base={base}&head={owner}", self.project), &[])
            }
            ForgeProgram::Tea => self.ask(&format!("repos/{}/pulls?state=open&{READ}", self.project), &[]),
            ForgeProgram::Glab => {
                let query = format!("state=opened&source_branch={branch}&target_branch={base}");
                self.ask(&format!("projects/{}/merge_requests?{query}", self.encoded()), &[])
            }
        }?;
        let owner = head.split_once(':').map_or(self.owner(), |(owner, _)| owner);
        let is = |value: &Value, wanted: &str| value.as_str().is_none_or(|said| said.eq_ignore_ascii_case(wanted));
        let of_branch = |found: &&Value| {
            let name = found["head"]["ref"].as_str().or(found["source_branch"].as_str());
            let target = is(&found["base"]["ref"], base) && is(&found["target_branch"], base);
            // A branch of the same name in a stranger's fork is another one.
            name == Some(branch) && target && is(&found["head"]["repo"]["owner"]["login"], owner)
        };
        Ok(listed.as_array().into_iter().flatten().find(of_branch).and_then(number_and_url))
    }

    /// What the forge says of a pull request.
    pub(crate) fn look(&self, number: u64) -> Result<PullRequestFacts, String> {
        match self.program {
            ForgeProgram::Gh | ForgeProgram::Tea => self.look_at_pull(number),
            ForgeProgram::Glab => self.look_at_merge_request(number),
        }
    }

    fn look_at_pull(&self, number: u64) -> Result<PullRequestFacts, String> {
        let at = format!("repos/{}/pulls/{number}", self.project);
        let pull = self.ask(&at, &[])?;
        let head = pull["head"]["sha"].as_str().unwrap_or_default().to_owned();
        let state = match (pull["merged"].as_bool(), pull["state"].as_str()) {
            (Some(true), _) => PullRequestState::Merged { commit: text(&pull["merge_commit_sha"]) },
            (_, Some("closed")) => PullRequestState::Closed,
            _ => PullRequestState::Open,
        };
        let mut facts = PullRequestFacts { state, head, ..PullRequestFacts::default() };
        if matches!(facts.state, PullRequestState::Merged { .. }) {
            return Ok(facts);
        }
        self.read_reviews(&at, &mut facts)?;
        if facts.state == PullRequestState::Open {
            self.read_checks(&mut facts)?;
        }
        Ok(facts)
    }

    /// Reviews, and comments on the newest commit.
    fn read_reviews(&self, at: &str, facts: &mut PullRequestFacts) -> Result<(), String> {
        let listed = self.ask(&format!("{at}/reviews?{READ}"), &[])?;
        let mut reviews = Vec::new();
        for review in listed.as_array().into_iter().flatten() {
            let asks = match review["state"].as_str() {
                Some("CHANGES_REQUESTED" | "REQUEST_CHANGES") => Some(true),
                Some("APPROVED") => Some(false),
                _ => None,
            };
            reviews.push(PullRequestReview {
                by: text(&review["user"]["login"]),
                by_member: is_of_project(review),
                commit: text(&review["commit_id"]),
                asks,
                text: text(&review["body"]),
            });
            if let (ForgeProgram::Tea, Some(id)) = (self.program, review["id"].as_u64()) {
                let comments = self.ask(&format!("{at}/reviews/{id}/comments"), &[])?;
                facts.comments.extend(comments_on(&comments, &facts.head));
            }
        }
        facts.take_reviews(reviews);
        if self.program == ForgeProgram::Gh {
            let comments = self.ask(&format!("{at}/comments?{READ}"), &[])?;
            facts.comments.extend(comments_on(&comments, &facts.head));
        }
        Ok(())
    }

    fn read_checks(&self, facts: &mut PullRequestFacts) -> Result<(), String> {
        let at = format!("repos/{}/commits/{}", self.project, facts.head);
        let status = self.ask(&format!("{at}/status"), &[])?;
        for one in status["statuses"].as_array().into_iter().flatten() {
            let state = one["state"].as_str().or(one["status"].as_str());
            if matches!(state, Some("failure" | "error")) {
                let said = format!("{} {}", text(&one["description"]), text(&one["target_url"]));
                facts.failed.push((text(&one["context"]), said.trim().to_owned()));
            }
        }
        if self.program != ForgeProgram::Gh {
            return Ok(());
        }
        let runs = self.ask(&format!("{at}/check-runs?{READ}"), &[])?;
        let failed =
            |run: &&Value| matches!(run["conclusion"].as_str(), Some("failure" | "timed_out" | "startup_failure"));
        for run in runs["check_runs"].as_array().into_iter().flatten().filter(failed).take(TOLD) {
            let output = ["title", "summary", "text"].map(|part| text(&run["output"][part])).join("\n");
            let output = output.trim();
            // A check of GitHub's own runners is a job, whose log can be read.
            let job = run["id"].as_u64().filter(|_| run["app"]["slug"].as_str() == Some("github-actions"));
            let log = job.and_then(|id| self.run(&format!("repos/{}/actions/jobs/{id}/logs", self.project), &[]).ok());
            let said = match log.filter(|log| !log.trim().is_empty()) {
                Some(log) => format!("{output}\n{}", log.trim_end()),
                None => format!("{output}\n{}", text(&run["html_url"])),
            };
            facts.failed.push((text(&run["name"]), said.trim().to_owned()));
        }
        Ok(())
    }

    fn look_at_merge_request(&self, number: u64) -> Result<PullRequestFacts, String> {
        let at = format!("projects/{}/merge_requests/{number}", self.encoded());
        let request = self.ask(&at, &[])?;
        let commit = ["squash_commit_sha", "merge_commit_sha", "sha"].map(|name| text(&request[name]));
        let state = match request["state"].as_str() {
            Some("merged") => {
                PullRequestState::Merged { commit: commit.into_iter().find(|sha| !sha.is_empty()).unwrap_or_default() }
            }
            Some("closed") => PullRequestState::Closed,
            _ => PullRequestState::Open,
        };
        let mut facts = PullRequestFacts { state, head: text(&request["sha"]), ..PullRequestFacts::default() };
        if matches!(facts.state, PullRequestState::Merged { .. }) {
            return Ok(facts);
        }
        let pipeline = &request["head_pipeline"];
        if pipeline["status"].as_str() == Some("failed") {
            let jobs = format!("projects/{}/pipelines/{}/jobs?scope[]=failed", self.encoded(), pipeline["id"]);
            for job in self.ask(&jobs, &[])?.as_array().into_iter().flatten().take(TOLD) {
                let trace = format!("projects/{}/jobs/{}/trace", self.encoded(), job["id"]);
                let log = self.run(&trace, &[]).unwrap_or_else(|_| text(&job["web_url"]));
                facts.failed.push((text(&job["name"]), log.trim_end().to_owned()));
            }
            if facts.failed.is_empty() {
                facts.failed.push(("pipeline".into(), text(&pipeline["web_url"])));
            }
        }
        let discussions = self.ask(&format!("{at}/discussions?{READ}"), &[])?;
        let notes = discussions.as_array().into_iter().flatten().flat_map(|one| one["notes"].as_array());
        for note in notes.flatten() {
            // A thread that nobody has resolved asks for a change.
            if note["resolvable"].as_bool() == Some(true) && note["resolved"].as_bool() != Some(true) {
                facts.changes_requested = true;
                facts.comments.push(PullRequestComment {
                    by: text(&note["author"]["username"]),
                    file: note["position"]["new_path"].as_str().map(str::to_owned),
                    line: note["position"]["new_line"].as_u64(),
                    text: text(&note["body"]),
                });
            }
        }
        Ok(facts)
    }

    /// The name of the project in a path of GitLab's API.
    fn encoded(&self) -> String {
        self.project.replace('/', "%2F")
    }

    /// Asks the forge, with fields as a request that makes something.
    fn ask(&self, path: &str, fields: &[(&str, &str)]) -> Result<Value, String> {
        let said = self.run(path, fields)?;
        serde_json::from_str(&said).map_err(|error| format!("{} does not answer in JSON: {error}", self.program_name()))
    }

    fn run(&self, path: &str, fields: &[(&str, &str)]) -> Result<String, String> {
        let program = self.program_name();
        let mut words: Vec<String> = vec![program.into(), "api".into()];
        // `tea` finds the account by the address of its login.
        if self.program != ForgeProgram::Tea {
            words.extend(["--hostname".into(), self.host.clone()]);
        }
        if !fields.is_empty() {
            words.extend([if self.program == ForgeProgram::Tea { "-X" } else { "--method" }.into(), "POST".into()]);
        }
        words.push(path.to_owned());
        for (name, value) in fields {
            words.extend(["-f".into(), format!("{name}={value}")]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = toft_runner::ask_program(&words, Path::new("/"), PATIENCE).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("{program} is not installed, or not on PATH"),
            _ => format!("{program}: {error}"),
        })?;
        match ended.success {
            true => Ok(ended.out),
            false => {
                let said: String = format!("{} {}", ended.err.trim(), ended.out.trim()).chars().take(SAID).collect();
                Err(format!("{program} {path}: {}", said.trim()))
            }
        }
    }

    fn program_name(&self) -> &'static str {
        match self.program {
            ForgeProgram::Gh => "gh",
            ForgeProgram::Glab => "glab",
            ForgeProgram::Tea => "tea",
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether a member of the project says it, where the forge tells: anybody can comment on a public one.
fn is_of_project(said: &Value) -> bool {
    said["author_association"].as_str().is_none_or(|who| matches!(who, "OWNER" | "MEMBER" | "COLLABORATOR"))
}

fn number_and_url(found: &Value) -> Option<(u64, String)> {
    let number = found["number"].as_u64().or(found["iid"].as_u64())?;
    let url = found["html_url"].as_str().or(found["web_url"].as_str())?;
    Some((number, url.to_owned()))
}

/// Comments at lines of a commit.
fn comments_on(listed: &Value, head: &str) -> Vec<PullRequestComment> {
    let here = |comment: &&Value| is_of_project(comment) && comment["commit_id"].as_str().is_none_or(|of| of == head);
    let read = |comment: &Value| PullRequestComment {
        by: text(&comment["user"]["login"]),
        file: comment["path"].as_str().map(str::to_owned),
        line: comment["line"].as_u64().or(comment["position"].as_u64()),
        text: text(&comment["body"]),
    };
    listed.as_array().into_iter().flatten().filter(here).map(read).collect()
}

/// The host and the project of an address: `https://HOST/OWNER/NAME.git`, `git@HOST:OWNER/NAME.git`.
fn project_of(url: &str) -> Option<(String, String)> {
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
    let plain = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c))
    };
    let whole = path.split('/').count() > 1 && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    (whole && plain(host) && plain(path)).then(|| (host.to_owned(), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_remote_names_the_project_and_the_program() {
        for url in
            ["https://github.com/acme/shop.git", "git@github.com:acme/shop", "ssh://git@github.com:22/acme/shop.git"]
        {
            let forge = Forge::of(url, None).unwrap();
            assert_eq!(
                (forge.host.as_str(), forge.project.as_str(), forge.owner()),
                ("github.com", "acme/shop", "acme")
            );
            assert_eq!(forge.program, ForgeProgram::Gh);
        }
        assert_eq!(Forge::of("https://gitlab.com/a/b/c.git", None).unwrap().encoded(), "a%2Fb%2Fc");
        assert_eq!(Forge::of("https://code.acme.org/a/b", Some(ForgeProgram::Tea)).unwrap().program, ForgeProgram::Tea);
        for wrong in [
            "/srv/shop.git",
            "../shop",
            "file:///srv/a/b",
            "https://github.com/shop",
            "x",
            "git@h:a/../b",
            "https://h/-a b/c",
        ] {
            assert!(Forge::of(wrong, Some(ForgeProgram::Gh)).is_err(), "{wrong}");
        }
        assert!(Forge::of("https://code.acme.org/a/b", None).unwrap_err().contains("which forge is code.acme.org"));
    }
}
