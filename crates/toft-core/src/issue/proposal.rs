//! Proposals: an issue of one ledger offered to another, under the same id. What is private stays where it was; what the
//! other side decides comes back.

use serde_json::Value;

use super::{
    CLOSED, Comment, Dep, Issue, OPEN, Origin, Put,
    edit::{By, delete, told},
};
use crate::refusal::{Refusal, Verdict};

/// Nobody else is meant to see it.
pub const LOCAL: &str = "local";
/// It is offered to another ledger, whose keepers have not decided.
pub const PROPOSED: &str = "proposed";

/// What an issue is to whoever sees it in a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// It is to be done here.
    #[default]
    Own,
    /// Somebody offers it; whoever keeps this ledger decides.
    Offered,
    /// It is another ledger's, and follows what that one says.
    Mirror,
}

impl Part {
    /// Taken from an issue.
    pub fn of(issue: &Issue) -> Self {
        let sent = issue.origin.as_ref().is_some_and(|origin| !origin.to.is_empty());
        match (issue.visibility.as_deref(), sent) {
            (Some(PROPOSED), false) => Self::Offered,
            (Some(_), _) | (None, false) => Self::Own,
            (None, true) => Self::Mirror,
        }
    }

    /// The word an index keeps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own => "",
            Self::Offered => "offered",
            Self::Mirror => "mirror",
        }
    }

    /// The same, read back.
    pub fn named(word: &str) -> Self {
        [Self::Offered, Self::Mirror].into_iter().find(|part| part.as_str() == word).unwrap_or_default()
    }
}

/// What everybody may see of an issue that is proposed. Notes, comments, who works on it and what other programs keep in
/// it stay private.
const PUBLIC: [&str; 9] = ["title", "type", "priority", "created", "body", "design", "acceptance", "due", "template"];
/// What a mirror takes over.
const MIRRORED: [&str; 9] =
    ["title", "type", "priority", "owner", "defer_until", "due", "body", "design", "acceptance"];
/// What it takes over only when the other side moved it: work may go on here meanwhile.
const MOVED: [&str; 3] = ["status", "assignee", "closed"];

fn wrong(issue: &Issue, state: &str, wanted: &str) -> Refusal {
    Refusal::WrongState { id: issue.id.clone(), state: state.into(), wanted: wanted.into() }
}

fn field(name: &'static str, value: Option<Value>) -> Put {
    Put::Field(name.into(), value)
}

/// Writes fields of one issue over those of another, where they differ.
fn fields_from(from: &Issue, over: Option<&Issue>, names: &[&'static str]) -> Verdict<Vec<Put>> {
    let from = told(from)?;
    let over = over.map(told).transpose()?.unwrap_or_default();
    let differs = |name: &&&'static str| from.get(**name) != over.get(**name);
    Ok(names.iter().filter(differs).map(|name| field(name, from.get(*name).cloned())).collect())
}

/// What the proposer's own copy says from now on.
pub fn propose(issue: &Issue, to: &str, remote: Option<&str>) -> Verdict<Vec<Put>> {
    if issue.deleted.is_some() {
        return Err(wrong(issue, "deleted", "restore it first (toft restore)").into());
    }
    if Part::of(issue) == Part::Mirror {
        return Err(wrong(issue, "accepted already", "it follows the other ledger; change it there").into());
    }
    let origin = Origin { to: to.into(), remote: remote.unwrap_or_default().into(), ..Origin::default() };
    Ok(vec![field("visibility", Some(PROPOSED.into())), field("origin", Some(told(&origin)?))])
}

/// What the other ledger's copy says: what is public, and needs that its readers can follow. Also gives the needs that
/// stay private.
pub fn publish(
    issue: &Issue,
    there: Option<&Issue>,
    mut seen: impl FnMut(&str) -> Verdict<bool>,
    by: &By<'_>,
) -> Verdict<(Vec<Put>, Vec<String>)> {
    if let Some(there) = there {
        match Part::of(there) {
            _ if there.deleted.is_some() => {
                return Err(wrong(there, "rejected or deleted there", "its keepers restore it (toft restore)").into());
            }
            Part::Offered => {}
            _ => return Err(wrong(there, "in that ledger already", "change it there").into()),
        }
    }
    let mut puts = fields_from(issue, there, &PUBLIC)?;
    let status = if issue.status == CLOSED { CLOSED } else { OPEN };
    if there.is_none_or(|there| there.status != status) {
        puts.push(field("status", Some(status.into())));
        puts.push(field("closed", issue.closed.as_ref().map(told).transpose()?));
    }
    if there.is_none() {
        let origin = Origin { by: by.actor.to_owned(), ..Origin::default() };
        puts.extend([field("visibility", Some(PROPOSED.into())), field("origin", Some(told(&origin)?))]);
    }
    for label in issue.labels.iter().filter(|label| there.is_none_or(|there| !there.labels.contains(label))) {
        puts.push(Put::Label(label.clone(), true));
    }
    for label in there.iter().flat_map(|there| &there.labels).filter(|label| !issue.labels.contains(label)) {
        puts.push(Put::Label(label.clone(), false));
    }
    for dep in there.iter().flat_map(|there| &there.deps).filter(|dep| !issue.deps.contains(dep)) {
        puts.push(Put::Dep(dep.clone(), false));
    }
    let mut private = Vec::new();
    for dep in &issue.deps {
        match seen(&dep.on)? {
            true if there.is_none_or(|there| !there.deps.contains(dep)) => puts.push(Put::Dep(dep.clone(), true)),
            true => {}
            false => private.push(dep.on.clone()),
        }
    }
    if let Some(parent) =
        issue.parent.as_ref().filter(|parent| there.is_none_or(|there| there.parent.as_ref() != Some(parent)))
    {
        match seen(parent)? {
            true => puts.push(field("parent", Some(parent.as_str().into()))),
            false => private.push(parent.clone()),
        }
    }
    Ok((puts, private))
}

/// The proposer takes it back.
pub fn withdraw(issue: &Issue) -> Verdict<Vec<Put>> {
    match (issue.visibility.as_deref(), &issue.origin) {
        (Some(PROPOSED), Some(origin)) if !origin.to.is_empty() => {
            Ok(vec![field("visibility", Some(LOCAL.into())), field("origin", None)])
        }
        _ if Part::of(issue) == Part::Mirror => {
            Err(wrong(issue, "accepted already", "whoever keeps that ledger decides now").into())
        }
        _ => Err(wrong(issue, "not proposed by you", "only what you proposed can be withdrawn").into()),
    }
}

/// Whether a branch that proposes an issue is believed: it offers that issue, and whoever keeps the ledger either does not
/// know it or has not decided. What waits may be said better.
pub fn believed(offered: &Issue, known: Option<&Issue>) -> bool {
    let waits = |issue: &Issue| issue.deleted.is_none() && Part::of(issue) == Part::Offered;
    waits(offered) && known.is_none_or(waits)
}

/// Moving an issue out of a private ledger takes its notes and comments along; that is asked about.
pub fn refuse_telling(issue: &Issue) -> Result<(), Refusal> {
    if issue.notes.is_none() && issue.comments.is_empty() {
        return Ok(());
    }
    let id = &issue.id;
    let problem = format!(
        "others would read the notes and comments of {id}; toft propose offers it without them, --yes moves them too"
    );
    Err(Refusal::Invalid { field: "move".into(), problem })
}

fn refuse_unless_offered(issue: &Issue) -> Verdict<()> {
    match Part::of(issue) {
        Part::Offered if issue.deleted.is_none() => Ok(()),
        _ => Err(wrong(issue, "not a proposal", "only what somebody proposed can be decided on").into()),
    }
}

/// Whoever keeps the ledger takes it: it is to be done like any other.
pub fn accept(issue: &Issue) -> Verdict<Vec<Put>> {
    refuse_unless_offered(issue)?;
    Ok(vec![field("visibility", None)])
}

/// Whoever keeps the ledger does not want it; the reason goes back to who proposed it.
pub fn reject(issue: &Issue, reason: &str, by: &By<'_>) -> Verdict<Vec<Put>> {
    refuse_unless_offered(issue)?;
    delete(issue, reason, by)
}

/// What came of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It is in the other ledger, and waits for its keepers.
    Landed,
    /// It was accepted; our copy follows.
    Accepted,
    /// It was not, and is ours again.
    Rejected(String),
    /// What it follows has changed.
    Changed,
}

/// What our copy of a proposed issue says, after a look at the other ledger. `gone` means that the branch it was proposed
/// on is no longer there.
pub fn follow(mine: &Issue, theirs: Option<&Issue>, gone: bool, by: &By<'_>) -> Verdict<Option<(Vec<Put>, News)>> {
    let Some(origin) = mine.origin.as_ref().filter(|origin| !origin.to.is_empty()) else { return Ok(None) };
    let proposed = mine.visibility.as_deref() == Some(PROPOSED);
    if !proposed && Part::of(mine) != Part::Mirror {
        return Ok(None);
    }
    let back = |why: String, who: &str| {
        let said = Comment { id: by.word.to_owned(), at: by.now, by: who.to_owned(), text: why.clone() };
        let puts = vec![field("visibility", Some(LOCAL.into())), field("origin", None), Put::Comment(said)];
        Ok(Some((puts, News::Rejected(why))))
    };
    match theirs {
        Some(theirs) if theirs.deleted.is_some() => {
            let deleted = theirs.deleted.as_ref();
            let reason = deleted.map(|deleted| deleted.reason.as_str()).filter(|reason| !reason.is_empty());
            let who = deleted.map_or("", |deleted| deleted.by.as_str());
            back(format!("Not taken: {}", reason.unwrap_or("no reason was given")), who)
        }
        Some(theirs) if Part::of(theirs) == Part::Offered => {
            if !proposed || origin.landed {
                return Ok(None);
            }
            let origin = Origin { landed: true, ..origin.clone() };
            Ok(Some((vec![field("origin", Some(told(&origin)?))], News::Landed)))
        }
        Some(theirs) => {
            let mut puts = fields_from(theirs, Some(mine), &MIRRORED)?;
            // What it is part of here may be private.
            if theirs.parent.is_some() && theirs.parent != mine.parent {
                puts.push(field("parent", theirs.parent.as_deref().map(Into::into)));
            }
            if origin.status != theirs.status {
                puts.extend(fields_from(theirs, Some(mine), &MOVED)?);
                let origin = Origin { status: theirs.status.clone(), landed: true, ..origin.clone() };
                puts.push(field("origin", Some(told(&origin)?)));
            }
            let had = |label: &String| mine.labels.contains(label);
            puts.extend(theirs.labels.iter().filter(|label| !had(label)).map(|label| Put::Label(label.clone(), true)));
            let gone = mine.labels.iter().filter(|label| !theirs.labels.contains(label));
            puts.extend(gone.map(|label| Put::Label(label.clone(), false)));
            let new = |dep: &&Dep| !mine.deps.contains(dep);
            puts.extend(theirs.deps.iter().filter(new).map(|dep| Put::Dep(dep.clone(), true)));
            let said = |comment: &&Comment| !mine.comments.iter().any(|known| known.id == comment.id);
            puts.extend(theirs.comments.iter().filter(said).map(|comment| Put::Comment(comment.clone())));
            if proposed {
                puts.push(field("visibility", None));
                return Ok(Some((puts, News::Accepted)));
            }
            Ok((!puts.is_empty()).then_some((puts, News::Changed)))
        }
        None if proposed && (origin.landed || gone) => back("Not taken: it is gone from there".into(), by.actor),
        None => Ok(None),
    }
}
