//! Proposals: an issue of one ledger is offered to another, under the same id. Private fields stay private; the
//! decision of the other side comes back.

use serde_json::Value;

use super::{
    CLOSED, Comment, Dep, Issue, OPEN, Origin, Put,
    edit::{By, delete, told},
};
use crate::refusal::{Refusal, VerbResult};

/// Visible to its author only.
pub const LOCAL: &str = "local";
/// Offered to another ledger whose maintainers have not decided.
pub const PROPOSED: &str = "proposed";

/// The relation of an issue to a ledger that contains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProposalSide {
    /// It is worked on in this ledger.
    #[default]
    Own,
    /// It is proposed; the maintainers of this ledger decide.
    Offered,
    /// It belongs to another ledger and follows its state there.
    Mirror,
}

impl ProposalSide {
    /// Taken from an issue.
    #[must_use]
    pub fn of(issue: &Issue) -> Self {
        let sent = issue.origin.as_ref().is_some_and(|origin| !origin.to.is_empty());
        match (issue.visibility.as_deref(), sent) {
            (Some(PROPOSED), false) => Self::Offered,
            (Some(_), _) | (None, false) => Self::Own,
            (None, true) => Self::Mirror,
        }
    }

    /// The word an index keeps.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own => "",
            Self::Offered => "offered",
            Self::Mirror => "mirror",
        }
    }

    /// The same, read back.
    #[must_use]
    pub fn named(word: &str) -> Self {
        [Self::Offered, Self::Mirror].into_iter().find(|part| part.as_str() == word).unwrap_or_default()
    }
}

/// Fields that a proposal publishes by default. Notes, comments, the assignee and data of other programs stay private.
const PUBLIC: [&str; 7] = ["title", "type", "priority", "body", "design", "acceptance", "due"];
/// Fields that it publishes on request.
const CHOSEN: [&str; 5] = ["template", "notes", "owner", "assignee", "defer_until"];
/// Another value that can be included or left out.
const CREATED: &str = "created";
const LABELS: &str = "labels";
const COMMENTS: &str = "comments";
const CLOSED_HOW: &str = "closed";
const DEPS: &str = "deps";
const PARENT: &str = "parent";

/// The fields of an issue that a proposal publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    with: Vec<String>,
    without: Vec<String>,
}

impl Fields {
    /// Adds fields to the default or removes some.
    pub fn choose(with: &[String], without: &[String]) -> Result<Self, Refusal> {
        let more = [CREATED, LABELS, COMMENTS, CLOSED_HOW, DEPS, PARENT];
        let known: Vec<&str> = PUBLIC.into_iter().chain(CHOSEN).chain(more).collect();
        let invalid = |problem: String| Refusal::Invalid { field: "fields".into(), problem };
        if let Some(field) = with.iter().chain(without).find(|field| !known.contains(&field.as_str())) {
            return Err(invalid(format!("`{field}` is no field of a proposal; use {}", known.join(", "))));
        }
        if without.iter().any(|field| field == "title") {
            return Err(invalid("a proposal has a title".into()));
        }
        if let Some(both) = with.iter().find(|field| without.contains(field)) {
            return Err(invalid(format!("`{both}` is both chosen and left out")));
        }
        Ok(Self { with: with.to_vec(), without: without.to_vec() })
    }

    fn chosen(&self, field: &str) -> bool {
        self.with.iter().any(|with| with == field)
    }

    fn left_out(&self, field: &str) -> bool {
        self.without.iter().any(|without| without == field)
    }
}

/// What a proposal writes, and what it omits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publication {
    /// The writes to the other ledger's copy.
    pub puts: Vec<Put>,
    /// Dependencies and parents that its readers cannot see.
    pub private: Vec<String>,
    /// Labels that its readers do not use.
    pub labels: Vec<String>,
}

/// What the readers of the other ledger know.
pub trait Readers {
    /// Whether they see, or will see, an issue.
    fn see(&mut self, id: &str) -> VerbResult<bool>;
    /// Whether they use a label.
    fn use_label(&mut self, label: &str) -> VerbResult<bool>;
}

/// Fields that a mirror copies.
const MIRRORED: [&str; 9] =
    ["title", "type", "priority", "owner", "defer_until", "due", "body", "design", "acceptance"];
/// Fields that it copies only if the other side changed them, because work may continue here in the meantime.
const MOVED: [&str; 3] = ["status", "assignee", "closed"];

fn wrong(issue: &Issue, state: &str, wanted: &str) -> Refusal {
    Refusal::WrongState { id: issue.id.clone(), state: state.into(), wanted: wanted.into() }
}

fn field(name: &'static str, value: Option<Value>) -> Put {
    Put::Field(name.into(), value)
}

/// Copies fields of one issue to another where they differ.
fn fields_from(from: &Issue, over: Option<&Issue>, names: &[&'static str]) -> VerbResult<Vec<Put>> {
    let from = told(from)?;
    let over = over.map(told).transpose()?.unwrap_or_default();
    let differs = |name: &&&'static str| from.get(**name) != over.get(**name);
    Ok(names.iter().filter(differs).map(|name| field(name, from.get(*name).cloned())).collect())
}

/// The writes to the proposer's own copy.
pub fn propose(issue: &Issue, to: &str, remote: Option<&str>) -> VerbResult<Vec<Put>> {
    if issue.deleted.is_some() {
        return Err(wrong(issue, "deleted", "reopen it first (toft reopen)").into());
    }
    if ProposalSide::of(issue) == ProposalSide::Mirror {
        return Err(wrong(issue, "accepted already", "it follows the other ledger; change it there").into());
    }
    let origin = Origin { to: to.into(), remote: remote.unwrap_or_default().into(), ..Origin::default() };
    Ok(vec![field("visibility", Some(PROPOSED.into())), field("origin", Some(told(&origin)?))])
}

/// The writes to the other ledger's copy: the selected fields, labels that its readers use, and dependencies that they
/// can see.
pub fn publish(
    issue: &Issue,
    there: Option<&Issue>,
    fields: &Fields,
    readers: &mut impl Readers,
    by: &By<'_>,
) -> VerbResult<Publication> {
    if let Some(there) = there {
        match ProposalSide::of(there) {
            _ if there.deleted.is_some() => {
                return Err(wrong(there, "rejected or deleted there", "its keepers reopen it (toft reopen)").into());
            }
            ProposalSide::Offered => {}
            _ => return Err(wrong(there, "in that ledger already", "change it there").into()),
        }
    }
    let public = PUBLIC.into_iter().filter(|name| !fields.left_out(name));
    let names: Vec<&'static str> = public.chain(CHOSEN.into_iter().filter(|name| fields.chosen(name))).collect();
    let mut puts = fields_from(issue, there, &names)?;
    let left_out: Vec<&'static str> = PUBLIC.into_iter().chain(CHOSEN).filter(|name| fields.left_out(name)).collect();
    let published = there.map(told).transpose()?.unwrap_or_default();
    puts.extend(left_out.into_iter().filter(|name| published.get(*name).is_some()).map(|name| field(name, None)));
    let status = if issue.status == CLOSED { CLOSED } else { OPEN };
    // How it ended is told if chosen; that it did, and when, always is.
    let closed = match &issue.closed {
        Some(closed) if fields.chosen(CLOSED_HOW) => Some(told(closed)?),
        Some(closed) => Some(serde_json::json!({ "at": closed.at })),
        None => None,
    };
    if there.is_none_or(|there| there.status != status) {
        puts.push(field("status", Some(status.into())));
        puts.push(field("closed", closed));
    } else if fields.chosen(CLOSED_HOW) && published.get("closed") != closed.as_ref() {
        puts.push(field("closed", closed));
    }
    if let Some(created) = issue.created.as_ref().filter(|_| !fields.left_out(CREATED)) {
        match there {
            _ if fields.chosen(CREATED) => puts.push(field(CREATED, Some(told(created)?))),
            // Readers know who proposes it; which agent wrote it down stays private.
            None => puts.push(field(CREATED, Some(serde_json::json!({ "at": created.at, "by": by.actor })))),
            Some(_) => {}
        }
    }
    if there.is_none() {
        let origin = Origin { by: by.actor.to_owned(), ..Origin::default() };
        puts.extend([field("visibility", Some(PROPOSED.into())), field("origin", Some(told(&origin)?))]);
    }
    let mut publication = Publication { puts, ..Publication::default() };
    publish_labels(issue, there, fields, readers, &mut publication)?;
    publish_ties(issue, there, fields, readers, &mut publication)?;
    if fields.chosen(COMMENTS) {
        let known =
            |said: &&Comment| !there.is_some_and(|there| there.comments.iter().any(|other| other.id == said.id));
        publication.puts.extend(issue.comments.iter().filter(known).map(|said| Put::Comment(said.clone())));
    }
    Ok(publication)
}

fn publish_labels(
    issue: &Issue,
    there: Option<&Issue>,
    fields: &Fields,
    readers: &mut impl Readers,
    publication: &mut Publication,
) -> VerbResult<()> {
    let published = there.map_or(&[][..], |there| &there.labels);
    for label in issue.labels.iter().filter(|_| !fields.left_out(LABELS)) {
        match fields.chosen(LABELS) || published.contains(label) || readers.use_label(label)? {
            true if !published.contains(label) => publication.puts.push(Put::Label(label.clone(), true)),
            true => {}
            false => publication.labels.push(label.clone()),
        }
    }
    let gone = |label: &&String| fields.left_out(LABELS) || !issue.labels.contains(label);
    publication.puts.extend(published.iter().filter(gone).map(|label| Put::Label(label.clone(), false)));
    Ok(())
}

fn publish_ties(
    issue: &Issue,
    there: Option<&Issue>,
    fields: &Fields,
    readers: &mut impl Readers,
    publication: &mut Publication,
) -> VerbResult<()> {
    let published = there.map_or(&[][..], |there| &there.deps);
    let gone = |dep: &&Dep| fields.left_out(DEPS) || !issue.deps.contains(dep);
    publication.puts.extend(published.iter().filter(gone).map(|dep| Put::Dep(dep.clone(), false)));
    for dep in issue.deps.iter().filter(|_| !fields.left_out(DEPS)) {
        match readers.see(&dep.on)? {
            true if !published.contains(dep) => publication.puts.push(Put::Dep(dep.clone(), true)),
            true => {}
            false => publication.private.push(dep.on.clone()),
        }
    }
    let known = there.and_then(|there| there.parent.as_ref());
    if let Some(parent) = issue.parent.as_ref().filter(|parent| !fields.left_out(PARENT) && known != Some(parent)) {
        match readers.see(parent)? {
            true => publication.puts.push(field("parent", Some(parent.as_str().into()))),
            false => publication.private.push(parent.clone()),
        }
    }
    publication.private.sort();
    publication.private.dedup();
    Ok(())
}

/// The writes that withdraw a proposal.
pub fn withdraw(issue: &Issue) -> VerbResult<Vec<Put>> {
    match (issue.visibility.as_deref(), &issue.origin) {
        (Some(PROPOSED), Some(origin)) if !origin.to.is_empty() => {
            Ok(vec![field("visibility", Some(LOCAL.into())), field("origin", None)])
        }
        _ if ProposalSide::of(issue) == ProposalSide::Mirror => {
            Err(wrong(issue, "accepted already", "whoever keeps that ledger decides now").into())
        }
        _ => Err(wrong(issue, "not proposed by you", "only what you proposed can be withdrawn").into()),
    }
}

/// Whether a branch that proposes an issue is believed: it offers that issue, and whoever keeps the ledger either does not
/// know it or has not decided. What waits may be said better.
#[must_use]
pub fn believed(offered: &Issue, known: Option<&Issue>) -> bool {
    let waits = |issue: &Issue| issue.deleted.is_none() && ProposalSide::of(issue) == ProposalSide::Offered;
    waits(offered) && known.is_none_or(waits)
}

/// Refuses to move an issue with notes or comments out of a private ledger without confirmation.
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

fn refuse_unless_offered(issue: &Issue) -> VerbResult<()> {
    match ProposalSide::of(issue) {
        ProposalSide::Offered if issue.deleted.is_none() => Ok(()),
        _ => Err(wrong(issue, "not a proposal", "only what somebody proposed can be decided on").into()),
    }
}

/// The writes with which a maintainer accepts a proposal: it becomes an ordinary issue.
pub fn accept(issue: &Issue) -> VerbResult<Vec<Put>> {
    refuse_unless_offered(issue)?;
    Ok(vec![field("visibility", None)])
}

/// The writes with which a maintainer rejects a proposal; the reason is sent back to the proposer.
pub fn reject(issue: &Issue, reason: &str, by: &By<'_>) -> VerbResult<Vec<Put>> {
    refuse_unless_offered(issue)?;
    if reason.trim().is_empty() {
        return Err(Refusal::Invalid {
            field: "reason".into(),
            problem: "a proposal is rejected with a reason".into(),
        }
        .into());
    }
    delete(issue, reason, by)
}

/// The result of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposalNews {
    /// It is in the other ledger, and its maintainers have not decided.
    Landed,
    /// It was accepted; our copy follows it.
    Accepted,
    /// It was rejected, and our copy is an ordinary issue again.
    Rejected(String),
    /// The issue that it follows has changed.
    Changed,
}

/// The writes to our copy of a proposed issue, from its state in the other ledger. `gone` means that the proposal
/// branch no longer exists.
pub fn follow(
    mine: &Issue,
    theirs: Option<&Issue>,
    gone: bool,
    by: &By<'_>,
) -> VerbResult<Option<(Vec<Put>, ProposalNews)>> {
    let Some(origin) = mine.origin.as_ref().filter(|origin| !origin.to.is_empty()) else { return Ok(None) };
    let proposed = mine.visibility.as_deref() == Some(PROPOSED);
    if !proposed && ProposalSide::of(mine) != ProposalSide::Mirror {
        return Ok(None);
    }
    let back = |why: String, who: &str| {
        let said = Comment { id: by.word.to_owned(), at: by.now, by: who.to_owned(), text: why.clone() };
        let puts = vec![field("visibility", Some(LOCAL.into())), field("origin", None), Put::Comment(said)];
        Ok(Some((puts, ProposalNews::Rejected(why))))
    };
    match theirs {
        Some(theirs) if theirs.deleted.is_some() => {
            let deleted = theirs.deleted.as_ref();
            let reason = deleted.map(|deleted| deleted.reason.as_str()).filter(|reason| !reason.is_empty());
            let who = deleted.map_or("", |deleted| deleted.by.as_str());
            back(format!("Rejected: {}", reason.unwrap_or("no reason was given")), who)
        }
        Some(theirs) if ProposalSide::of(theirs) == ProposalSide::Offered => {
            if !proposed || origin.landed {
                return Ok(None);
            }
            let origin = Origin { landed: true, ..origin.clone() };
            Ok(Some((vec![field("origin", Some(told(&origin)?))], ProposalNews::Landed)))
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
                return Ok(Some((puts, ProposalNews::Accepted)));
            }
            Ok((!puts.is_empty()).then_some((puts, ProposalNews::Changed)))
        }
        None if proposed && (origin.landed || gone) => {
            back("Rejected: it is no longer in that ledger".into(), by.actor)
        }
        None => Ok(None),
    }
}
