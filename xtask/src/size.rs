//! The size of the binary that is shipped, and what it is made of.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};

/// The largest stripped binary that may be shipped, with all features.
const MAX_BINARY_BYTES: u64 = 22_000_000;
/// How many groups of functions are printed.
const PRINTED_GROUPS: usize = 30;

/// Fails if the shipped binary is larger than it may be.
pub(crate) fn check(shipped: &Path) -> Result<()> {
    let bytes = fs::metadata(shipped).with_context(|| shipped.display().to_string())?.len();
    eprintln!("== the shipped binary has {:.1} MB, of {:.1}", megabytes(bytes), megabytes(MAX_BINARY_BYTES));
    if bytes > MAX_BINARY_BYTES {
        bail!("{} is too large: `cargo xtask size` prints what it is made of", shipped.display());
    }
    Ok(())
}

/// Prints the largest groups of functions of a binary that has its symbols: all copies of one generic function are a group.
#[expect(clippy::print_stdout, reason = "the table is what was asked for")]
pub(crate) fn print_groups(binary: &Path) -> Result<()> {
    let output = Command::new("nm").args(["--print-size", "--demangle"]).arg(binary).output().context("nm")?;
    if !output.status.success() {
        bail!("nm: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut groups: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // ADDRESS SIZE KIND NAME
        let mut words = line.splitn(4, ' ').skip(1);
        let (Some(size), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        let Ok(size) = u64::from_str_radix(size, 16) else { continue };
        if ["t", "T", "w", "W"].contains(&kind) {
            let group = groups.entry(without_parameters(name)).or_default();
            *group = (group.0 + size, group.1 + 1);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (size, _))| std::cmp::Reverse(*size));
    for (name, (size, copies)) in groups.into_iter().take(PRINTED_GROUPS) {
        println!("{:>6} KB  {copies:>5} x  {name}", size / 1000);
    }
    Ok(())
}

/// Drops what stands between angle brackets, and the hash of a symbol.
fn without_parameters(name: &str) -> String {
    let (mut kept, mut depth) = (String::new(), 0_u32);
    let mut before = ' ';
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
        before = c;
    }
    match kept.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 => path.to_owned(),
        _ => kept,
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_generic_function_have_one_name() {
        let copies = ["a::sort::<u8, fn(u8) -> u8>::h0123456789abcdef", "a::sort::<(T, V<K>)>::hfedcba9876543210"];
        assert_eq!(copies.map(without_parameters), ["a::sort::", "a::sort::"]);
    }
}
