//! The sync loop against an exchange in memory: clones that race, and remotes that refuse, break off or hold other things.

use std::{cell::RefCell, collections::BTreeMap, fs, path::PathBuf, thread};

use toft_core::issue::edit::Edit;
use toft_session::{
    config::{Config, StoreLocation},
    session::Session,
};
use toft_vcs::exchange::{Fetched, Proposal};

use super::*;
use crate::IssueFilter;

/// A remote repository: every state it had, oldest first, with the message of the commit that made it.
#[derive(Default)]
struct FakeRemote(RefCell<Vec<(Files, String)>>);

impl FakeRemote {
    fn revision(&self) -> usize {
        self.0.borrow().len()
    }

    fn files(&self) -> Files {
        self.0.borrow().last().map(|(files, _)| files.clone()).unwrap_or_default()
    }

    fn text(&self) -> String {
        self.files().values().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    fn push(&self, files: Files, message: &str) {
        self.0.borrow_mut().push((files, message.to_owned()));
    }

    fn push_text(&self, text: &str) {
        self.push(Files::from([("issues.jsonl".to_owned(), text.as_bytes().to_vec())]), "by hand");
    }
}

/// Decides what happens instead of a call, or lets it happen; the number counts calls of that kind from 1.
type Fault<'f, T> = Box<dyn FnMut(usize) -> Option<Result<T, ExchangeError>> + 'f>;

/// One clone's way to a [`FakeRemote`].
struct FakeExchange<'f> {
    remote: Option<&'f FakeRemote>,
    dir: PathBuf,
    tip: Option<String>,
    fetched: usize,
    recorded: Option<(Files, String)>,
    on_fetch: Fault<'f, Fetched>,
    on_send: Fault<'f, Sent>,
    foreign: Vec<String>,
    unsent: Vec<String>,
    squashes: bool,
    calls: BTreeMap<&'static str, usize>,
}

impl<'f> FakeExchange<'f> {
    fn to(plan: &Plan<'_>, remote: Option<&'f FakeRemote>) -> Self {
        Self {
            remote,
            dir: plan.ledgers[0].dir.clone(),
            tip: None,
            fetched: 0,
            recorded: None,
            on_fetch: Box::new(|_| None),
            on_send: Box::new(|_| None),
            foreign: Vec::new(),
            unsent: Vec::new(),
            squashes: true,
            calls: BTreeMap::new(),
        }
    }

    fn count(&mut self, call: &'static str) -> usize {
        let count = self.calls.entry(call).or_default();
        *count += 1;
        *count
    }

    fn called(&self, call: &str) -> usize {
        self.calls.get(call).copied().unwrap_or_default()
    }
}

impl Exchange for FakeExchange<'_> {
    fn remote(&self) -> Option<&str> {
        self.remote.map(|_| "origin")
    }

    fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let count = self.count("fetch");
        self.fetched = self.remote.map_or(0, FakeRemote::revision);
        self.tip = (self.fetched > 0).then(|| self.fetched.to_string());
        let fetched = Fetched { tip: self.tip.clone(), rewritten: false };
        (self.on_fetch)(count).unwrap_or(Ok(fetched))
    }

    fn theirs(&mut self) -> Result<Files, ExchangeError> {
        Ok(self.remote.map(FakeRemote::files).unwrap_or_default())
    }

    fn record(&mut self, message: &str) -> Result<bool, ExchangeError> {
        self.count("record");
        self.recorded = Some((exchange::read_files(&self.dir)?, message.to_owned()));
        Ok(true)
    }

    fn send(&mut self) -> Result<Sent, ExchangeError> {
        let count = self.count("send");
        if let Some(answer) = (self.on_send)(count) {
            return answer;
        }
        let (Some(remote), Some((files, message))) = (self.remote, self.recorded.clone()) else {
            panic!("nothing was recorded, or there is nobody to send it to");
        };
        if remote.revision() != self.fetched {
            return Ok(Sent::LostRace("fetch first".into()));
        }
        if remote.files() == files {
            return Ok(Sent::Same);
        }
        remote.push(files, &message);
        self.tip = Some(remote.revision().to_string());
        Ok(Sent::Done)
    }

    fn seen(&self) -> Option<&str> {
        self.tip.as_deref()
    }

    fn foreign_commits(&mut self) -> Result<Vec<String>, ExchangeError> {
        Ok(self.foreign.clone())
    }

    fn squashes(&self) -> bool {
        self.squashes
    }

    fn unsent_lines(&mut self) -> Result<Vec<String>, ExchangeError> {
        Ok(self.unsent.clone())
    }

    fn purge(&mut self, _keep: &dyn Fn(&[u8]) -> bool) -> Result<usize, ExchangeError> {
        Ok(0)
    }

    fn also_in(&self, _text: &str) -> Result<Vec<String>, ExchangeError> {
        Ok(Vec::new())
    }

    fn before(&mut self) -> Result<Option<Files>, ExchangeError> {
        Ok(None)
    }

    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn tidy(&self) {}

    fn forget_unreachable(&self) -> Result<(), ExchangeError> {
        Ok(())
    }

    fn offered(&self) -> Result<Vec<Proposal>, ExchangeError> {
        Ok(Vec::new())
    }
}

/// A clone on this disk: a git directory that no git ever sees, and a store.
struct ClonedRepository {
    _dir: tempfile::TempDir,
    session: Session,
}

impl ClonedRepository {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("repo");
        for name in ["objects", "refs", "toft"] {
            fs::create_dir_all(repo.join(".git").join(name)).unwrap();
        }
        fs::write(repo.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        // The author's name would be asked of git.
        fs::write(repo.join(".git/toft/config.toml"), "sync.names = 'agent'\n").unwrap();
        let store = Some(StoreLocation::new_path(dir.path().join("store.db")));
        let config = Config { store, dir: Some(repo), agent: Some("ana".into()), ..Config::default() };
        Self { session: Session::with(config).unwrap(), _dir: dir }
    }

    fn plan(&self) -> Plan<'_> {
        Plan::open(&self.session).unwrap().unwrap()
    }
}

fn add(plan: &Plan<'_>, title: &str) -> String {
    let edit = Edit { title: Some(title.into()), ..Edit::default() };
    plan.add(&[edit], None, None).unwrap().remove(0).issue.id
}

fn titles(plan: &Plan<'_>) -> BTreeSet<String> {
    plan.list(&IssueFilter::default()).unwrap().into_iter().map(|found| found.issue.title).collect()
}

fn set(titles: &[&str]) -> BTreeSet<String> {
    titles.iter().map(|title| (*title).to_owned()).collect()
}

fn bytes(plan: &Plan<'_>) -> Files {
    exchange::read_files(&plan.ledgers[0].dir).unwrap()
}

/// Syncs the first ledger as `Plan::sync` does once it has opened the exchange.
fn sync_with(plan: &Plan<'_>, ledger: &Ledger, way: &mut FakeExchange<'_>, options: &SyncOptions) -> Synced {
    let mut synced = Synced::new(ledger);
    match plan.exchange(ledger, way, options, &mut synced, &mut |_| {}) {
        Ok(_) => {}
        Err(SyncTrouble::Exchange(error)) => synced.fails(&error),
        Err(SyncTrouble::Here(error)) => panic!("{error}"),
    }
    synced
}

fn sync(plan: &Plan<'_>, way: &mut FakeExchange<'_>) -> Synced {
    sync_with(plan, &plan.ledgers[0], way, &SyncOptions::default())
}

/// The same, without giving other clones their turn first.
fn at_once(plan: &Plan<'_>, way: &mut FakeExchange<'_>) -> Synced {
    let until = Some(Instant::now() + PATIENCE);
    sync_with(plan, &plan.ledgers[0], way, &SyncOptions { until, ..SyncOptions::default() })
}

fn plainly(plan: &Plan<'_>, remote: &FakeRemote) -> Synced {
    at_once(plan, &mut FakeExchange::to(plan, Some(remote)))
}

fn offline() -> ExchangeError {
    ExchangeError::Offline { remote: "origin".into(), said: "Connection reset".into() }
}

#[test]
fn a_push_that_is_overtaken_is_merged_and_sent_again() {
    let (one, two, remote) = (ClonedRepository::new(), ClonedRepository::new(), FakeRemote::default());
    let (a, b) = (one.plan(), two.plan());
    add(&a, "of a");
    add(&b, "of b");
    let mut way = FakeExchange::to(&a, Some(&remote));
    way.on_send = Box::new(|count| {
        if count == 1 {
            assert_eq!(plainly(&b, &remote).how, SyncStatus::Synced);
        }
        None
    });
    let synced = sync(&a, &mut way);
    assert_eq!((synced.how, synced.races, synced.received, synced.sent), (SyncStatus::Synced, 1, 1, 1), "{synced:?}");
    assert_eq!((way.called("fetch"), way.called("record"), way.called("send")), (2, 2, 2));
    drop(way);
    assert_eq!(titles(&a), set(&["of a", "of b"]));
    assert_eq!(plainly(&b, &remote).received, 1);
    assert_eq!(titles(&b), titles(&a));
    assert_eq!((bytes(&a), bytes(&b)), (remote.files(), remote.files()), "everybody has the same bytes");
    assert_eq!(remote.revision(), 2, "no commit without news");
}

#[test]
fn clones_that_race_in_any_order_lose_nothing() {
    for seed in 1..=3_u64 {
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |most: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % most
        };
        let (clones, remote) = ([(); 3].map(|()| ClonedRepository::new()), FakeRemote::default());
        let plans: Vec<Plan<'_>> = clones.iter().map(ClonedRepository::plan).collect();
        let mut added = BTreeSet::new();
        for round in 0..4 {
            let (first, faster) = (below(3) as usize, below(3) as usize);
            for n in [first, faster] {
                let title = format!("{round} of {n}");
                added.insert(title.clone());
                add(&plans[n], &title);
            }
            // One whose push breaks off cannot know whether it arrived.
            let breaks = below(3) == 0;
            let mut way = FakeExchange::to(&plans[first], Some(&remote));
            way.on_send = Box::new(|count| {
                if count == 1 && first != faster {
                    plainly(&plans[faster], &remote);
                }
                (breaks && count == 2).then(|| Err(offline()))
            });
            at_once(&plans[first], &mut way);
        }
        for plan in plans.iter().chain(&plans) {
            assert_eq!(plainly(plan, &remote).how, SyncStatus::Synced);
        }
        for plan in &plans {
            assert_eq!((titles(plan), bytes(plan)), (added.clone(), remote.files()), "seed {seed}");
        }
    }
}

#[test]
fn a_remote_that_rejects_the_push_is_asked_once_and_what_was_written_waits() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    add(&plan, "waits");
    let mut way = FakeExchange::to(&plan, Some(&remote));
    way.on_send = Box::new(|_| {
        Some(Err(ExchangeError::Protected { remote: "origin".into(), said: "protected branch hook declined".into() }))
    });
    let synced = sync(&plan, &mut way);
    assert_eq!((synced.how, way.called("send")), (SyncStatus::Protected, 1));
    assert_eq!(synced.said, ["origin rejected the push: protected branch hook declined"]);
    assert!(synced.how.failed() && remote.revision() == 0);
    assert_eq!(titles(&plan), set(&["waits"]));
    assert_eq!(plainly(&plan, &remote).sent, 1, "the next sync sends it");
    assert!(remote.text().contains("waits"));
}

#[test]
fn pushes_that_lose_against_a_remote_that_never_moves_are_bounded() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    add(&plan, "first");
    plainly(&plan, &remote);
    add(&plan, "second");
    let mut way = FakeExchange::to(&plan, Some(&remote));
    way.on_send = Box::new(|count| Some(Ok(Sent::LostRace(format!("cannot lock ref, time {count}")))));
    let synced = sync(&plan, &mut way);
    let sends = way.called("send");
    assert_eq!(synced.how, SyncStatus::Protected, "{synced:?}");
    assert_eq!(sends, STILL as usize + 3, "the first comparison is with nothing");
    assert_eq!(synced.said, [format!("cannot lock ref, time {sends}")], "what the remote said last");
    assert_eq!(plainly(&plan, &remote).how, SyncStatus::Synced);
    assert!(remote.text().contains("second"));
}

#[test]
fn a_clone_that_is_always_overtaken_gives_up_in_time_and_keeps_everything() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    add(&plan, "mine");
    let mut way = FakeExchange::to(&plan, Some(&remote));
    way.on_send = Box::new(|count| {
        remote.push_text(&format!("{{\"id\":\"tf-of{count}\",\"title\":\"theirs {count}\",\"status\":\"open\"}}\n"));
        None
    });
    let patience = Duration::from_millis(300);
    let begun = Instant::now();
    let options = SyncOptions { until: Some(begun + patience), ..SyncOptions::default() };
    let synced = sync_with(&plan, &plan.ledgers[0], &mut way, &options);
    assert_eq!(synced.how, SyncStatus::Outrun, "{synced:?}");
    let sends = way.called("send");
    assert!(sends > STILL as usize + 3, "a remote that moves is a race, however often it is lost: {sends}");
    assert_eq!(synced.races as usize, sends - 1);
    assert!(begun.elapsed() < 10 * patience, "{:?}", begun.elapsed());
    drop(way);
    let known = titles(&plan);
    assert!(known.contains("mine") && known.contains("theirs 1"), "{known:?}");
    assert_eq!(plainly(&plan, &remote).how, SyncStatus::Synced);
    assert!(remote.text().contains("\"mine\""));
}

#[test]
fn what_was_recorded_when_the_push_broke_off_is_sent_the_next_time() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    add(&plan, "first");
    plainly(&plan, &remote);
    add(&plan, "second");
    let mut way = FakeExchange::to(&plan, Some(&remote));
    way.on_send = Box::new(|_| Some(Err(offline())));
    let synced = sync(&plan, &mut way);
    assert_eq!((synced.how, way.called("record")), (SyncStatus::Offline, 1));
    assert_eq!(synced.said, ["origin cannot be reached: Connection reset"]);
    assert!(!synced.how.failed(), "offline is no error");
    // Old enough that a wrongly written memo would be believed.
    thread::sleep(Duration::from_millis(40));
    let synced = plainly(&plan, &remote);
    assert_eq!((synced.how, synced.sent), (SyncStatus::Synced, 1));
    assert!(remote.text().contains("second"));
}

#[test]
fn a_sync_without_news_only_fetches() {
    let (one, two, remote) = (ClonedRepository::new(), ClonedRepository::new(), FakeRemote::default());
    let (a, b) = (one.plan(), two.plan());
    add(&a, "first");
    plainly(&a, &remote);
    // What was written within a tick of the last look is looked at again.
    thread::sleep(Duration::from_millis(40));
    plainly(&a, &remote);
    let mut way = FakeExchange::to(&a, Some(&remote));
    assert_eq!(sync(&a, &mut way).how, SyncStatus::Synced);
    assert_eq!(way.calls, BTreeMap::from([("fetch", 1)]));
    // News on either side ends that.
    add(&b, "theirs");
    plainly(&b, &remote);
    assert_eq!(plainly(&a, &remote).received, 1);
    add(&a, "ours");
    assert_eq!(plainly(&a, &remote).sent, 1);
    assert!(remote.text().contains("ours"));
}

#[test]
fn commits_that_are_not_tofts_stop_the_sync_before_anything_is_recorded() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    add(&plan, "mine");
    let mut way = FakeExchange::to(&plan, Some(&remote));
    way.foreign = vec!["c0ffee read me".into(), "deadbee more".into()];
    let synced = sync(&plan, &mut way);
    assert_eq!(synced.how, SyncStatus::Conflict);
    assert_eq!(
        synced.said,
        ["2 commits there are not toft's and not sent yet (`c0ffee read me`); push them yourself, then sync again"]
    );
    assert_eq!((way.called("record"), way.called("send"), remote.revision()), (0, 0, 0));
}

#[test]
fn an_unreachable_remote_is_recorded_for_only_where_commits_are_squashed() {
    let failures: [(fn() -> ExchangeError, SyncStatus); 3] = [
        (offline, SyncStatus::Offline),
        (|| ExchangeError::NotFound { remote: "origin".into(), said: "404".into() }, SyncStatus::NotFound),
        (|| ExchangeError::Denied { remote: "origin".into(), said: "403".into() }, SyncStatus::Denied),
    ];
    for (failure, how) in failures {
        for squashes in [true, false] {
            let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
            let plan = clone.plan();
            add(&plan, "mine");
            let mut way = FakeExchange::to(&plan, Some(&remote));
            way.squashes = squashes;
            way.on_fetch = Box::new(move |_| Some(Err(failure())));
            let synced = sync(&plan, &mut way);
            assert_eq!((synced.how, synced.said.len()), (how, 1), "{synced:?}");
            assert_eq!((way.called("record"), way.called("send")), (usize::from(squashes), 0), "{how:?}");
            assert_eq!(titles(&plan), set(&["mine"]));
        }
    }
}

#[test]
fn a_fetch_that_fails_for_another_reason_ends_the_sync() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    add(&plan, "mine");
    let mut way = FakeExchange::to(&plan, Some(&remote));
    way.on_fetch = Box::new(|_| Some(Err(ExchangeError::Conflict("`toft` of origin holds other files".into()))));
    let synced = sync(&plan, &mut way);
    assert_eq!((synced.how, way.calls.len()), (SyncStatus::Conflict, 1));
    assert_eq!(synced.said, ["`toft` of origin holds other files"]);
}

#[test]
fn what_looks_like_a_secret_is_neither_recorded_nor_sent() {
    let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    let id = add(&plan, &format!("use {token}"));
    let mut way = FakeExchange::to(&plan, Some(&remote));
    let synced = sync(&plan, &mut way);
    assert_eq!((synced.how, synced.sent, synced.findings.len()), (SyncStatus::Held, 0, 1), "{synced:?}");
    assert!(synced.said[0].contains(&id) && !synced.said[0].contains(&token), "{synced:?}");
    assert_eq!((way.called("record"), way.called("send")), (0, 0));
    // One that only a commit has that was recorded earlier is found, too.
    let clone = ClonedRepository::new();
    let plan = clone.plan();
    add(&plan, "harmless");
    let mut way = FakeExchange::to(&plan, Some(&remote));
    way.unsent = vec![format!("{{\"id\":\"tf-old\",\"title\":\"use {token}\"}}")];
    let synced = sync(&plan, &mut way);
    assert_eq!((synced.how, way.called("send")), (SyncStatus::Held, 0), "{synced:?}");
    assert!(synced.said[0].contains("a recorded commit"), "{synced:?}");
}

#[test]
fn a_rehearsal_counts_and_changes_nothing() {
    let (one, two, remote) = (ClonedRepository::new(), ClonedRepository::new(), FakeRemote::default());
    let (a, b) = (one.plan(), two.plan());
    add(&b, "theirs");
    plainly(&b, &remote);
    add(&a, "ours");
    let before = bytes(&a);
    let mut way = FakeExchange::to(&a, Some(&remote));
    let options = SyncOptions { try_only: true, ..SyncOptions::default() };
    let synced = sync_with(&a, &a.ledgers[0], &mut way, &options);
    assert_eq!((synced.how, synced.received, synced.sent), (SyncStatus::Received, 1, 1), "{synced:?}");
    assert_eq!((way.called("record"), way.called("send")), (0, 0));
    assert_eq!((bytes(&a), titles(&a)), (before, set(&["ours"])));
}

#[test]
fn a_ledger_that_others_keep_is_received_and_never_sent() {
    let (one, two, remote) = (ClonedRepository::new(), ClonedRepository::new(), FakeRemote::default());
    let (a, b) = (one.plan(), two.plan());
    add(&b, "theirs");
    plainly(&b, &remote);
    add(&a, "private");
    let read_only = Ledger { read_only: true, ..a.ledgers[0].clone() };
    let kept_by_others = Ledger { kept_by_others: true, ..a.ledgers[0].clone() };
    for ledger in [&kept_by_others, &read_only, &kept_by_others] {
        let mut way = FakeExchange::to(&a, Some(&remote));
        way.foreign = vec!["is nobody's business".into()];
        let synced = sync_with(&a, ledger, &mut way, &SyncOptions::default());
        assert_eq!((synced.how, synced.sent, way.called("send")), (SyncStatus::Received, 0, 0), "{synced:?}");
        // The last of them finds nothing new, and says the same.
        thread::sleep(Duration::from_millis(40));
    }
    assert_eq!(titles(&a), set(&["theirs", "private"]));
    assert!(!remote.text().contains("private"));
}

#[test]
fn a_history_that_was_replaced_is_told_and_gets_back_what_it_lost() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    add(&plan, "mine");
    plainly(&plan, &remote);
    remote.push_text("");
    let mut way = FakeExchange::to(&plan, Some(&remote));
    way.on_fetch = Box::new(|_| Some(Ok(Fetched { tip: Some("2".into()), rewritten: true })));
    let synced = sync(&plan, &mut way);
    assert_eq!((synced.how, synced.rewritten, synced.sent), (SyncStatus::Synced, true, 1), "{synced:?}");
    assert!(remote.text().contains("mine"));
}

#[test]
fn lines_that_nobody_understands_are_kept_and_told() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    add(&plan, "mine");
    remote.push_text("{\"id\":7} of a newer toft?\n{\"id\":\"tf-their1\",\"title\":\"theirs\",\"status\":\"open\"}\n");
    let synced = plainly(&plan, &remote);
    assert_eq!(synced.how, SyncStatus::Synced, "{synced:?}");
    assert_eq!(synced.said, ["kept 1 broken lines of theirs as they are; `toft doctor` lists them"]);
    assert_eq!(titles(&plan), set(&["mine", "theirs"]));
    assert!(remote.text().contains("{\"id\":7} of a newer toft?\n"), "{}", remote.text());
}

#[test]
fn what_was_deleted_before_anybody_else_had_it_leaves_no_text() {
    let (clone, remote) = (ClonedRepository::new(), FakeRemote::default());
    let plan = clone.plan();
    let shared = add(&plan, "shared");
    plainly(&plan, &remote);
    let secret = add(&plan, "a thought");
    plan.delete(&secret, "on second thought").unwrap();
    plan.delete(&shared, "done with").unwrap();
    assert_eq!(plainly(&plan, &remote).how, SyncStatus::Synced);
    let text = remote.text();
    assert!(!text.contains(&secret) && !text.contains("thought"), "{text}");
    assert!(text.contains(&shared) && text.contains("done with"), "others must hear of a deletion: {text}");
    plan.recall(&secret).unwrap();
    assert_eq!(plan.reopen(&secret, None, None).unwrap().issue.title, "a thought");
}

#[test]
fn without_a_remote_a_ledger_is_recorded() {
    let clone = ClonedRepository::new();
    let plan = clone.plan();
    let id = add(&plan, "alone");
    let mut way = FakeExchange::to(&plan, None);
    let synced = sync(&plan, &mut way);
    assert_eq!((synced.how, synced.remote), (SyncStatus::Recorded, None));
    assert_eq!((way.called("fetch"), way.called("record"), way.called("send")), (0, 1, 0));
    let message = way.recorded.unwrap().1;
    assert!(message.starts_with(&format!("toft: {id} alone")), "{message}");
}

#[test]
fn the_memo_of_the_last_sync_holds_only_if_nothing_can_have_changed_since() {
    let file = |written| ("issues.jsonl".to_owned(), (1, 2), 3, written);
    let memo = SyncMemo { tip: Some("tip".into()), looks: vec![file(0)], looked: TICK + 1 };
    let (tip, other) = ("tip".to_owned(), "other".to_owned());
    assert!(memo.holds(Some(&tip), &vec![file(0)]));
    assert!(!memo.holds(Some(&other), &vec![file(0)]), "the remote moved");
    assert!(!memo.holds(None, &vec![file(0)]), "the remote is empty");
    assert!(!memo.holds(Some(&tip), &vec![file(1)]), "the file was written");
    assert!(!memo.holds(Some(&tip), &Vec::new()), "the file is gone");
    let hasty = SyncMemo { looked: TICK, ..memo };
    assert!(!hasty.holds(Some(&tip), &vec![file(0)]), "it may have been written again within the tick");
    assert!(!SyncMemo::default().holds(None, &Vec::new()), "there was no sync yet");
}
