//! `toft review`: shows finished work that waits for a reviewer, approves it, or returns it with comments.

use toft::{LandingDiff, Toft, landing::LandingState, verbs::land::Review};

use super::{App, Done, confined, land::find_landing};
use crate::{
    args::{LineComment, ReviewArgs, ReviewDecision},
    render::{view_landing, view_landing_decision, view_landings, view_review},
};

pub(super) fn cmd_review(app: &App<'_>, args: &ReviewArgs) -> Done {
    let toft = app.open()?;
    match (&args.id, args.decision()) {
        (None, _) => list_reviews(app, toft),
        (Some(id), None) => show_review(app, toft, id),
        (Some(id), Some(decision)) => decide_review(app, toft, id, decision, args),
    }
}

fn list_reviews(app: &App<'_>, toft: &Toft) -> Done {
    let mut waiting = toft.work().landings(&[], 0)?;
    waiting.retain(|entry| entry.landing.state == LandingState::Queued && entry.landing.needs_review());
    app.show(&view_landings(&waiting))
}

/// Shows work with its diff; without, where its commits are in another clone.
fn show_review(app: &App<'_>, toft: &Toft, id: &str) -> Done {
    let work = toft.work();
    let entry = find_landing(work, id, "toft review lists what waits")?;
    match work.diff_of_landing(&entry.landing)? {
        Some(LandingDiff::Text(diff)) => {
            // A diff has the bytes of its files, which need not be UTF-8.
            app.show(&view_review(&entry, &String::from_utf8_lossy(&diff)))
        }
        Some(LandingDiff::Missing(why)) => {
            toft.note(why);
            app.show(&view_landing(&entry))
        }
        None => app.show(&view_landing(&entry)),
    }
}

fn decide_review(app: &App<'_>, toft: &Toft, id: &str, decision: ReviewDecision, args: &ReviewArgs) -> Done {
    let work = toft.work();
    let comments = args.line_comments();
    let request = Review {
        id: work.whole_id(id)?,
        tip: args.commit.clone(),
        approve: decision == ReviewDecision::Approve,
        message: message_with_comments(args.message.as_deref().unwrap_or_default(), &comments),
        files: commented_files(&comments),
        // A confined agent acts for its user, and must not use the user's right to review.
        as_holder: confined::is(),
    };
    let landing = work.act(&toft.located().agent, app.op(), request)?;
    let decision = match decision {
        ReviewDecision::Approve => "approved",
        ReviewDecision::SendBack => "sent back",
    };
    app.show(&view_landing_decision(&landing, decision))
}

/// Adds comments at lines to a message, as an agent reads them.
fn message_with_comments(message: &str, comments: &[LineComment<'_>]) -> String {
    let mut message = message.to_owned();
    for LineComment { place, text } in comments {
        message.push_str(&format!("\n{place}: {text}"));
    }
    message.trim().to_owned()
}

/// Lists the files of comments, each once if its comments follow each other.
fn commented_files(comments: &[LineComment<'_>]) -> Vec<String> {
    let mut files: Vec<String> = comments.iter().map(|comment| comment.file().to_owned()).collect();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_follow_the_message_and_name_their_files_once() {
        let comments = [
            LineComment { place: "src/a.rs:12", text: "this panics" },
            LineComment { place: "src/a.rs:30", text: "so does this" },
            LineComment { place: "README.md", text: "say why" },
        ];
        assert_eq!(
            message_with_comments("Handle the empty list", &comments),
            "Handle the empty list\nsrc/a.rs:12: this panics\nsrc/a.rs:30: so does this\nREADME.md: say why"
        );
        assert_eq!(commented_files(&comments), ["src/a.rs", "README.md"]);
    }

    #[test]
    fn comments_alone_are_a_message() {
        assert_eq!(message_with_comments("", &[LineComment { place: "a.rs:1", text: "why?" }]), "a.rs:1: why?");
    }
}
