//! A bound on how deeply a Python file nests, found without parsing it.
//!
//! A recursive parser, and the destruction of its tree, need stack in proportion to the depth of
//! the tree. A hostile file of a few kilobytes (`-----…1`, `((((…`, `a.b.b.b…`) would overflow it,
//! so files are measured first. The measure is an upper bound on the depth of any expression plus
//! the depth of indentation; it is not a lexer and accepts text that is no Python at all.

/// The deepest estimated nesting that is parsed. Files written by people stay far below.
pub const MAX_NESTING: usize = 3_000;

/// How deeply strings may sit in the replacement fields of other strings.
const MAX_STRINGS_IN_STRINGS: usize = 16;

/// Whether `text` may nest deeper than `limit`.
pub fn nesting_exceeds(text: &str, limit: usize) -> bool {
    let bytes = text.as_bytes();
    // The operators seen in the element being read, at each level of open brackets.
    let mut levels: Vec<usize> = vec![0];
    let mut depth = 0usize;
    let mut indents: Vec<usize> = Vec::new();
    let mut at_line_start = true;
    let mut i = 0;
    while i < bytes.len() {
        if at_line_start {
            at_line_start = false;
            let start = i;
            while i < bytes.len() && matches!(bytes[i], b' ' | b'\t' | 0x0c) {
                i += 1;
            }
            let width = i - start;
            if i < bytes.len() && !matches!(bytes[i], b'\n' | b'\r' | b'#') {
                while indents.last().is_some_and(|&w| w > width) {
                    indents.pop();
                }
                if indents.last().copied().unwrap_or(0) < width {
                    indents.push(width);
                }
                if indents.len() + depth > limit {
                    return true;
                }
            }
            continue;
        }
        let byte = bytes[i];
        match byte {
            b'#' => {
                while i < bytes.len() && bytes[i] != b'\n' {
                    i += 1;
                }
                continue;
            }
            b'\'' | b'"' => {
                match skip_string(bytes, i, limit, 0) {
                    Some(end) => i = end,
                    None => return true,
                }
                continue;
            }
            b'\n' if levels.len() == 1 => {
                depth = 0;
                levels[0] = 0;
                at_line_start = true;
            }
            b',' | b';' => {
                let last = levels.len() - 1;
                depth -= levels[last];
                levels[last] = 0;
            }
            b'(' | b'[' | b'{' => {
                let last = levels.len() - 1;
                levels[last] += 1;
                depth += 1;
                levels.push(0);
            }
            b')' | b']' | b'}' if levels.len() > 1 => {
                depth -= levels.pop().unwrap_or(0);
            }
            b'-' | b'+' | b'~' | b'*' | b'/' | b'%' | b'@' | b'&' | b'|' | b'^' | b'<' | b'>'
            | b'=' | b'.' | b':' | b'!' => {
                let last = levels.len() - 1;
                levels[last] += 1;
                depth += 1;
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                let start = i;
                while i < bytes.len() && (bytes[i] == b'_' || bytes[i].is_ascii_alphanumeric()) {
                    i += 1;
                }
                if matches!(
                    &bytes[start..i],
                    b"not"
                        | b"lambda"
                        | b"if"
                        | b"else"
                        | b"await"
                        | b"async"
                        | b"and"
                        | b"or"
                        | b"in"
                        | b"is"
                        | b"for"
                        | b"yield"
                        | b"from"
                ) {
                    let last = levels.len() - 1;
                    levels[last] += 1;
                    depth += 1;
                }
                if depth + indents.len() > limit {
                    return true;
                }
                continue;
            }
            _ => {}
        }
        if depth + indents.len() > limit {
            return true;
        }
        i += 1;
    }
    false
}

/// Whether the quote at `quote` opens a string with replacement fields (`f"…"`, `rf"…"`, `t"…"`).
fn interpolated(bytes: &[u8], quote: usize) -> bool {
    bytes[..quote]
        .iter()
        .rev()
        .take(2)
        .take_while(|b| b.is_ascii_alphabetic())
        .any(|b| matches!(b.to_ascii_lowercase(), b'f' | b't'))
}

/// The end of the string that opens at `start`; nothing when its replacement fields may nest too
/// deeply.
fn skip_string(bytes: &[u8], start: usize, limit: usize, outer: usize) -> Option<usize> {
    if outer > MAX_STRINGS_IN_STRINGS {
        return None;
    }
    let quote = bytes[start];
    let triple = bytes.get(start + 1) == Some(&quote) && bytes.get(start + 2) == Some(&quote);
    let fields = interpolated(bytes, start);
    let mut i = start + if triple { 3 } else { 1 };
    // Inside a replacement field: open brackets, the field's own brace included.
    let mut open = 0usize;
    let mut in_format = false;
    let mut nested = 0usize;
    while i < bytes.len() {
        let byte = bytes[i];
        if open > 0 && !in_format {
            match byte {
                b'\'' | b'"' => {
                    i = skip_string(bytes, i, limit, outer + 1)?;
                    continue;
                }
                b'{' | b'(' | b'[' => open += 1,
                b'}' | b')' | b']' => open -= 1,
                b':' if open == 1 => in_format = true,
                _ => {}
            }
            if !byte.is_ascii_digit() {
                nested += 1;
            }
            if nested > limit {
                return None;
            }
            i += 1;
            continue;
        }
        match byte {
            b'\\' => {
                i += 2;
                continue;
            }
            b'\n' if !triple => return Some(i),
            b'{' if fields => {
                if !in_format && bytes.get(i + 1) == Some(&b'{') {
                    i += 2;
                    continue;
                }
                if in_format {
                    nested += 1;
                } else {
                    nested = 0;
                }
                open = 1;
                in_format = false;
            }
            b'}' if in_format => {
                in_format = false;
                open = 0;
            }
            b if b == quote => {
                if !triple {
                    return Some(i + 1);
                }
                if bytes.get(i + 1) == Some(&quote) && bytes.get(i + 2) == Some(&quote) {
                    return Some(i + 3);
                }
            }
            _ => {}
        }
        i += 1;
    }
    Some(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_nest_is_counted() {
        let many = MAX_NESTING + 10;
        for text in [
            "(".repeat(many),
            format!("x = {}1", "-".repeat(many)),
            format!("x = {}1", "not ".repeat(many)),
            format!("x = {}1", "lambda: ".repeat(many)),
            format!("x = a{}", ".b".repeat(many)),
            format!("x = a{}", "()".repeat(many)),
            format!("x = a{}", "[0]".repeat(many)),
            format!("x = 1{}", " + 1".repeat(many)),
            format!("x = 1{}", " if a else 1".repeat(many)),
            format!("x = f\"{{{}1}}\"", "-".repeat(many)),
            format!("x = f\"{{'\\\"'}}\" + {}1", "-".repeat(many)),
            format!("x = f\"{{'{{\"'}}\" + {}1", "-".repeat(many)),
            (0..many)
                .map(|n| format!("{}if x:\n", " ".repeat(n)))
                .collect(),
        ] {
            assert!(nesting_exceeds(&text, MAX_NESTING), "{}", &text[..40]);
        }
    }

    #[test]
    fn long_but_flat_text_passes() {
        for text in [
            format!("x = [{}]", "-1.5, ".repeat(50_000)),
            "x = a.b(c)[0] + 1\n".repeat(50_000),
            format!("x = \"\"\"{}\"\"\"", "(((( -- ".repeat(10_000)),
            format!("x = {{{}}}", "'a': (1, [2]), ".repeat(50_000)),
            "# ((((((\n".repeat(50_000),
            format!("x = f\"\"\"{}{{a}}\"\"\"", "((-- {{ {b.c} ".repeat(10_000)),
        ] {
            assert!(!nesting_exceeds(&text, MAX_NESTING), "{}", &text[..40]);
        }
    }
}
