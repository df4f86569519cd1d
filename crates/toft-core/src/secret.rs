//! What looks like a secret: tokens of well-known services, and what is assigned to a name that says so.

/// What stands in the place of one.
pub const MASKED: &str = "[masked]";
/// How tokens of well-known services begin, and how many letters follow at least.
const BEGINNINGS: [(&str, usize); 15] = [
    ("sk-", 20),
    ("sk_live_", 10),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("AKIA", 16),
    ("AIza", 30),
    ("npm_", 30),
    ("Bearer ", 16),
    ("eyJhbGciOi", 20),
];

/// The text without them.
pub fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    for (beginning, least) in BEGINNINGS {
        text = mask_tokens(&text, beginning, least);
    }
    mask_assigned(&text)
}

/// Is there one in the text?
pub fn in_text(text: &str) -> bool {
    masked(text) != text
}

/// What is assigned to a name that says it is secret: `password=…`, `"token": "…"`.
fn mask_assigned(text: &str) -> String {
    const SIGNS: [&str; 6] = ["password", "passwd", "secret", "token", "api_key", "apikey"];
    let lower = text.to_ascii_lowercase();
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for sign in SIGNS {
        for (at, _) in lower.match_indices(sign) {
            let after = &text[at + sign.len()..];
            let gap = after.len() - after.trim_start_matches(['"', '\'', ' ']).len();
            let Some(value) = after[gap..].strip_prefix(['=', ':']).filter(|_| gap <= 2) else { continue };
            let start = value.len() - value.trim_start_matches(['"', '\'', ' ']).len();
            let end =
                value[start..].find([' ', '"', '\'', ',', ';', '&', ')', '}']).map_or(value.len(), |end| start + end);
            if end - start >= 4 && start <= 3 {
                let from = text.len() - value.len() + start;
                cuts.push((from, from + end - start));
            }
        }
    }
    cuts.sort_unstable();
    let (mut out, mut done) = (String::new(), 0);
    for (from, to) in cuts.into_iter().filter(|(from, to)| !text[*from..*to].contains(MASKED)) {
        if from >= done {
            out.push_str(&text[done..from]);
            out.push_str(MASKED);
            done = to;
        }
    }
    out.push_str(&text[done..]);
    out
}

fn mask_tokens(text: &str, beginning: &str, least: usize) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(beginning) {
        let start = at + beginning.len();
        let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | '=');
        let length = rest[start..].find(|c| !inside(c)).unwrap_or(rest.len() - start);
        let own_word = !rest[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        if length >= least && own_word {
            out.push_str(&rest[..start]);
            out.push_str(MASKED);
        } else {
            out.push_str(&rest[..start + length]);
        }
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
}
