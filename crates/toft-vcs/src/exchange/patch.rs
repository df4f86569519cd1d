//! Extracts from patches the text that they would publish.

/// The added lines of patches, and the lines of their commit messages.
pub(super) fn added(patch: &str) -> Vec<String> {
    let (mut lines, mut hunk, mut header) = (Vec::new(), (0, 0), false);
    for line in patch.lines() {
        if hunk != (0, 0) {
            match line.as_bytes().first() {
                Some(b'+') => {
                    lines.push(line[1..].to_owned());
                    hunk.1 -= 1;
                }
                Some(b'-') => hunk.0 -= 1,
                Some(b'\\') => {}
                _ => hunk = (hunk.0 - 1, hunk.1 - 1),
            }
            hunk = (hunk.0.max(0), hunk.1.max(0));
        } else if let Some(lengths) = hunk_lengths(line) {
            (hunk, header) = (lengths, false);
        } else if line.starts_with("diff ") {
            header = true;
        } else if !header || line.is_empty() {
            header = false;
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The number of old and of new lines in a hunk, from its header.
fn hunk_lengths(line: &str) -> Option<(i64, i64)> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let mut length = |sign: char| -> Option<i64> {
        let range = words.next()?.strip_prefix(sign)?;
        range.split_once(',').map_or(Some(1), |(_, length)| length.parse().ok())
    };
    Some((length('-')?, length('+')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_added_lines_are_looked_at() {
        let patch = "Pin it\n\n- the token is AAA\n--- not a header\n\ndiff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n\
                     @@ -1,2 +1,2 @@ fn main\n-old\n+new\n kept\n@@ -9 +9 @@\n--- gone\n+++ came\nNext\n- BBB\n";
        let lines = added(patch);
        assert_eq!(
            lines,
            ["Pin it", "", "- the token is AAA", "--- not a header", "", "new", "++ came", "Next", "- BBB"]
        );
    }
}
