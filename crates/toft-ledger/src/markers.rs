//! Conflict markers that a merge left. All sides are kept: their clocks show which is newer.

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Possibly a record.
    Content(&'a str),
    /// A conflict marker; it has no content.
    Marker,
    /// An empty line.
    Blank,
}

/// Classifies a line. git and hg mark conflicts by seven of `<`, `|`, `=` and `>`; jj also by `%`, `+`, `-` and `\`,
/// and shows one side as a diff whose lines begin with a blank, `-` or `+`.
pub fn piece(line: &str) -> Piece<'_> {
    let line = line.trim_end_matches('\r');
    match line.as_bytes() {
        [] => Piece::Blank,
        [b'{', ..] => Piece::Content(line),
        [b' ' | b'+' | b'-', b'{', ..] => Piece::Content(&line[1..]),
        [first @ (b'<' | b'|' | b'=' | b'>' | b'%' | b'+' | b'-' | b'\\'), ..] if is_marker(line, *first) => {
            Piece::Marker
        }
        _ if line.trim().is_empty() => Piece::Blank,
        _ => Piece::Content(line),
    }
}

/// Whether the line is seven or more of one sign (jj uses more if the text itself has seven), then nothing or a blank.
fn is_marker(line: &str, sign: u8) -> bool {
    let run = line.bytes().take_while(|byte| *byte == sign).count();
    run >= 7 && line.as_bytes().get(run).is_none_or(|next| *next == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_told_from_what_they_separate() {
        for marker in [
            "<<<<<<< HEAD",
            "||||||| 1a2b3c",
            "=======",
            ">>>>>>> theirs\r",
            "<<<<<<< local",
            "%%%%%%% Changes from base",
            "+++++++ Contents of side #2",
            "------- base",
            "\\\\\\\\\\\\\\        to: x",
            "<<<<<<<<<<< conflict 1 of 1",
        ] {
            assert_eq!(piece(marker), Piece::Marker, "{marker}");
        }
        assert_eq!(piece("+{\"id\":1}"), Piece::Content("{\"id\":1}"));
        assert_eq!(piece("-{\"id\":1}"), Piece::Content("{\"id\":1}"));
        assert_eq!(piece(" {\"id\":1}"), Piece::Content("{\"id\":1}"));
        assert_eq!(piece("======="), Piece::Marker);
        assert_eq!(piece("=======x"), Piece::Content("=======x"));
        assert_eq!(piece("hello"), Piece::Content("hello"));
        assert_eq!(piece(" \t"), Piece::Blank);
    }
}
