//! The time of a write, in an order on which all replicas agree: wall time if clocks agree, never backwards if they do
//! not.

use std::{fmt, str::FromStr};

/// A hybrid logical clock: milliseconds, a counter within them, and the replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clock {
    /// Milliseconds since 1970, or later if something later was seen.
    pub ms: u64,
    /// Distinguishes writes in one millisecond.
    pub count: u32,
    /// The replica that wrote.
    pub replica: Replica,
}

impl Clock {
    /// Earlier than every other clock.
    pub const ZERO: Self = Self { ms: 0, count: 0, replica: Replica([0; 8]) };

    /// The latest valid time: nine digits of base 36, the year 5188.
    pub const LAST_MS: u64 = 36u64.pow(9) - 1;

    /// The next clock after everything seen so far.
    pub fn after(seen: Self, wall_ms: u64, replica: Replica) -> Self {
        match wall_ms > seen.ms {
            true => Self { ms: wall_ms, count: 0, replica },
            false => match seen.count.checked_add(1) {
                Some(count) => Self { ms: seen.ms, count, replica },
                None => Self { ms: seen.ms.saturating_add(1), count: 0, replica },
            },
        }
    }

    /// The first clock after this one at which `replica` can write.
    #[must_use]
    pub fn next(self, replica: Replica) -> Self {
        Self::after(self, 0, replica)
    }

    /// Text that sorts like clocks: later clocks are greater.
    pub(crate) fn sortable(self) -> String {
        let (mut ms, mut count) = (String::new(), String::new());
        // Writing to a string cannot fail.
        let _ = base36(self.ms, &mut ms);
        let _ = base36(u64::from(self.count), &mut count);
        match self.count {
            0 => format!("{ms:0>9}-{}", self.replica),
            _ => format!("{ms:0>9}.{count:0>7}-{}", self.replica),
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        base36(self.ms, f)?;
        if self.count > 0 {
            f.write_str(".")?;
            base36(u64::from(self.count), f)?;
        }
        write!(f, "-{}", self.replica)
    }
}

impl FromStr for Clock {
    type Err = Unclear;

    fn from_str(text: &str) -> Result<Self, Unclear> {
        let (time, replica) = text.split_once('-').ok_or(Unclear)?;
        let (ms, count) = time.split_once('.').unwrap_or((time, "0"));
        let count = u32::try_from(number(count)?).map_err(|_| Unclear)?;
        let ms = Some(number(ms)?).filter(|ms| *ms <= Self::LAST_MS).ok_or(Unclear)?;
        Ok(Self { ms, count, replica: replica.parse()? })
    }
}

/// The text is not a valid clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a clock")]
pub struct Unclear;

fn number(text: &str) -> Result<u64, Unclear> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    if plain { u64::from_str_radix(text, 36).map_err(|_| Unclear) } else { Err(Unclear) }
}

fn base36(mut value: u64, f: &mut dyn fmt::Write) -> fmt::Result {
    let (mut digits, mut at) = ([0u8; 13], 13);
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(value % 36) as usize];
        value /= 36;
        if value == 0 {
            break;
        }
    }
    f.write_str(std::str::from_utf8(&digits[at..]).unwrap_or_default())
}

/// A replica: one clone on one machine. Up to eight of `0-9a-z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica([u8; 8]);

impl Replica {
    /// The replica of a person or a program that edited a line but not its clocks.
    pub const HAND: Self = Self(*b"hand\0\0\0\0");
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(8);
        f.write_str(std::str::from_utf8(&self.0[..end]).unwrap_or_default())
    }
}

impl FromStr for Replica {
    type Err = Unclear;

    fn from_str(text: &str) -> Result<Self, Unclear> {
        let mut name = [0; 8];
        let fits = text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
        if !fits {
            return Err(Unclear);
        }
        name[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_clock_are_one() {
        for clock in [
            Clock::ZERO,
            Clock { ms: 1_794_730_846_061, count: 0, replica: "k7x2q9".parse().unwrap() },
            Clock { ms: Clock::LAST_MS, count: u32::MAX, replica: "zzzzzzzz".parse().unwrap() },
        ] {
            assert_eq!(clock.to_string().parse(), Ok(clock), "{clock}");
        }
        for wrong in ["", "-", "1", "A-b", "1.-b", "1-toolongname", "1-B", "1.zzzzzzzzz-b", "+1-b", "1000000000-b"] {
            assert_eq!(wrong.parse::<Clock>(), Err(Unclear), "{wrong}");
        }
    }

    #[test]
    fn time_never_goes_back() {
        let me: Replica = "me".parse().unwrap();
        let seen = Clock { ms: 100, count: 7, replica: "other".parse().unwrap() };
        assert_eq!(Clock::after(seen, 101, me), Clock { ms: 101, count: 0, replica: me });
        assert_eq!(Clock::after(seen, 50, me), Clock { ms: 100, count: 8, replica: me });
        assert!(Clock::after(Clock { count: u32::MAX, ..seen }, 0, me) > Clock { count: u32::MAX, ..seen });
    }
}
