//! User settings of ledgers: which are used, which is the default, and the routes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use toft_core::{
    issue::route::{Mode, OWN, Route},
    refusal::Refusal,
};
use toft_session::{
    error::{Error, io},
    locate::Located,
    session::Session,
};
use toft_store::private;
use toft_vcs::exchange;

use super::{
    Ledger, LedgerKind,
    known::{Also, Carried, check_name, copy_of, is_url, know, unknown},
    place::{ISSUES, is_initialised, ledgers, refuse_inside},
};
use crate::Ledgers;

/// Adds a ledger to a checkout: that of a repository, of a remote, or any directory.
fn add(session: &Session, name: &str, place: &str, read_only: bool) -> Result<(), Error> {
    let invalid = |field: &str, problem: String| Error::from(Refusal::Invalid { field: field.into(), problem });
    check_name(name).map_err(|problem| invalid("name", problem))?;
    let home = Ledgers::of(session).ledger_home()?;
    let seen = ledgers(session, home)?.ledgers;
    if seen.iter().any(|ledger| ledger.name == name) {
        return Err(Refusal::Exists { what: "ledger".into(), name: name.into() }.into());
    }
    let url = Some(place.to_owned()).filter(|place| is_url(place));
    let dir = match &url {
        Some(url) => make_copy(url)?,
        None => fs::canonicalize(place).map_err(io("find", Path::new(place)))?,
    };
    refuse_inside(home, &dir)?;
    let cloned = || match toft_vcs::find(&dir)? {
        Some(checkout) if checkout.root == dir => Ok::<_, Error>(exchange::ledger_seen(&checkout)?),
        _ => Ok(false),
    };
    let plain = dir.join(ISSUES).exists();
    let repository = url.is_some() || !plain && (is_initialised(&dir) || cloned()?);
    let also = Also { name: name.into(), place: LedgerKind::Shared, dir, read_only, repository, url };
    let ledger = Ledger::also(also.clone());
    if let Some(known) = seen.iter().find(|known| known.dir == ledger.dir) {
        return Err(invalid("ledger", format!("{place} is seen already, as `{}`", known.name)));
    }
    know(&home.state_dir(), |known| {
        known.also.push(also);
        Ok(())
    })
}

/// Creates the local copy of a remote's ledger: a bare repository of toft. Nothing is fetched yet.
fn make_copy(url: &str) -> Result<PathBuf, Error> {
    let dir = copy_of(url);
    private::create_dir_all(&dir).map_err(io("make", &dir))?;
    exchange::make_copy(&dir, url)?;
    fs::canonicalize(&dir).map_err(io("find", &dir))
}

/// Removes a ledger from a checkout; the ledger itself is not changed. Its routes are removed.
fn remove(session: &Session, name: &str) -> Result<(), Error> {
    know(&Ledgers::of(session).ledger_home()?.state_dir(), |known| {
        let before = known.also.len();
        known.also.retain(|also| also.name != name);
        if known.also.len() == before {
            return Err(unknown(name));
        }
        known.routes.retain(|route| route.ledger != name);
        known.default = known.default.take().filter(|default| default != name);
        Ok(())
    })
}

impl Ledgers<'_> {
    /// Adds a ledger to this clone: that of the repository or the remote at `place`, or any directory.
    pub fn add_ledger(&self, name: &str, place: &str, read_only: bool) -> Result<(), Error> {
        add(self.session, name, place, read_only)
    }

    /// Removes a ledger from this clone; the ledger itself is not changed.
    pub fn remove_ledger(&self, name: &str) -> Result<(), Error> {
        remove(self.session, name)
    }

    /// A ledger of this checkout by its name.
    fn ledger_named(&self, name: &str) -> Result<Ledger, Error> {
        let seen = ledgers(self.session, self.ledger_home()?)?.ledgers;
        let own = |ledger: &Ledger| matches!(ledger.place, LedgerKind::Branch | LedgerKind::Tree);
        seen.into_iter().find(|one| one.name == name || name == OWN && own(one)).ok_or_else(|| unknown(name))
    }

    /// Makes this ledger the default for new issues that match no route.
    pub fn set_default_ledger(&self, name: &str) -> Result<(), Error> {
        refuse_read_only(&self.ledger_named(name)?)?;
        know(&self.ledger_home()?.state_dir(), |known| {
            known.default = Some(name.to_owned());
            Ok(())
        })
    }

    /// Sets whether routes by role apply.
    pub fn set_routing_mode(&self, mode: Mode) -> Result<(), Error> {
        know(&self.ledger_home()?.state_dir(), |known| {
            known.mode = Some(mode);
            Ok(())
        })
    }

    /// Adds a route for new issues; it replaces an earlier route with the same conditions.
    pub fn add_route(&self, route: Route) -> Result<(), Error> {
        route.check()?;
        refuse_read_only(&self.ledger_named(&route.ledger)?)?;
        know(&self.ledger_home()?.state_dir(), |known| {
            match known.routes.iter_mut().find(|known| known.same_conditions(&route)) {
                Some(known) => *known = route,
                None => known.routes.push(route),
            }
            Ok(())
        })
    }

    /// Removes a route.
    pub fn remove_route(&self, route: &Route) -> Result<(), Error> {
        know(&self.ledger_home()?.state_dir(), |known| {
            let before = known.routes.len();
            known.routes.retain(|known| !(known.same_conditions(route) && known.ledger == route.ledger));
            match known.routes.len() == before {
                true => Err(Refusal::NotFound { what: "route".into(), text: route.ledger.clone() }.into()),
                false => Ok(()),
            }
        })
    }

    /// The list of ledgers in this repository's tree.
    pub fn carried_ledgers(located: &Located) -> Result<Option<Carried>, Error> {
        located.checkout.as_ref().map_or(Ok(None), |checkout| Carried::in_tree(&checkout.root))
    }

    /// Creates local copies of the remotes in a trusted list.
    pub fn prepare_carried_ledgers(located: &Located, list: &Carried) -> Result<(), Error> {
        let Some(checkout) = &located.checkout else { return Ok(()) };
        for url in list.parse(&checkout.main_root())?.also.into_iter().filter_map(|also| also.url) {
            make_copy(&url)?;
        }
        Ok(())
    }

    pub(super) fn repository_id(&self) -> String {
        self.located().repository.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

fn refuse_read_only(ledger: &Ledger) -> Result<(), Error> {
    match ledger.read_only {
        true => {
            let problem = format!("`{}` is read and never written here; name another", ledger.name);
            Err(Refusal::Invalid { field: "ledger".into(), problem }.into())
        }
        false => Ok(()),
    }
}
