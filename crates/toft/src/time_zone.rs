//! The time zone of whoever reads.

use std::{
    env, fs,
    path::{Component, Path},
    sync::OnceLock,
};

use jiff::tz::TimeZone;

/// Where the system keeps its own zone.
const LOCAL_ZONE_FILE: &str = "/etc/localtime";
/// Where zones are kept by name.
const ZONES_DIR: &str = "/usr/share/zoneinfo";

/// Returns the local time zone, read once for a process.
///
/// One file is read where the system says which. jiff would first list all directories of its database of zones, to know
/// the name of the local one: a third of the system calls of a claim.
pub fn local_time_zone() -> TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    ZONE.get_or_init(|| named_zone(env::var("TZ").ok().as_deref()).unwrap_or_else(TimeZone::system)).clone()
}

/// Returns the zone that the variable `TZ` names, or the system's without it. `None` for what only jiff understands.
fn named_zone(name: Option<&str>) -> Option<TimeZone> {
    let path = match name {
        None => Path::new(LOCAL_ZONE_FILE).to_owned(),
        Some("" | "UTC") => return Some(TimeZone::UTC),
        Some(name) => {
            let name = Path::new(name.strip_prefix(':').unwrap_or(name));
            let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
            Path::new(ZONES_DIR).join(is_plain.then_some(name)?)
        }
    };
    TimeZone::tzif("Local", &fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_of_a_name_is_its_file() {
        if !Path::new(ZONES_DIR).join("Europe/Zurich").exists() {
            return;
        }
        let at = jiff::Timestamp::from_second(1_783_000_000).unwrap();
        let hour = |name| at.to_zoned(named_zone(Some(name)).unwrap()).hour();
        assert_eq!(hour("Europe/Zurich"), hour("UTC") + 2);
        assert_eq!(hour(":Europe/Zurich"), hour("Europe/Zurich"));
    }

    #[test]
    fn what_is_no_name_is_left_to_jiff() {
        for name in ["/etc/passwd", "../../../etc/passwd", "CET-1CEST", "Nowhere/Land"] {
            assert!(named_zone(Some(name)).is_none(), "{name}");
        }
    }
}
