//! The Jaccard similarity of the original script, faults included, for comparison with its answers.
//!
//! It reproduces what the script measures: identifier sets of whole definitions after a replacement of
//! names that does not respect words, candidates with the query's own name left out, ties in the order
//! of the directory. [`super::rank`] is the method to use.

use std::path::Path;

use rayon::prelude::*;
use ruff_python_ast::token::TokenKind;
use ruff_text_size::Ranged;
use rustc_hash::{FxHashMap, FxHashSet};

use super::definitions::{Kind, definitions};
use super::naming::{file_model, normalised};
use super::source::{Fault, Layout, SyntaxFault, parse, read_source};

/// Names shorter than this are not replaced.
const SHORTEST_NAME: usize = 3;
/// Folders nested deeper than this below the models' folder are not searched.
const MAX_FOLDERS: usize = 32;

/// A definition as the script sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptDefinition {
    /// The name alone.
    pub name: String,
    /// Class or function; there are no methods.
    pub kind: Kind,
    /// Whether it stands under a condition, where the script does not look.
    pub conditional: bool,
    /// The source after the script's replacements: what it embeds.
    pub sanitized: String,
    /// The identifiers of the sanitized source.
    pub tokens: FxHashSet<String>,
}

/// A file as the script sees it.
#[derive(Clone, Debug)]
pub struct ScriptFile {
    /// Relative to the models' folder, with `/`.
    pub path: String,
    /// The definitions; of two with one name the last, in the place of the first.
    pub definitions: Vec<ScriptDefinition>,
}

/// One answer: the full name and the score.
pub type Scored = (String, f64);

/// Reads all modeling files below the models' folder, in the order of the directory.
pub fn read_all(layout: &Layout, done: &(dyn Fn() + Sync)) -> (Vec<ScriptFile>, Vec<Fault>) {
    let mut paths = Vec::new();
    let mut faults = Vec::new();
    directory_order(&layout.root, "", 0, layout, &mut paths, &mut faults);
    let read: Vec<Result<ScriptFile, Fault>> =
        paths
            .into_par_iter()
            .map(|path| {
                let model = path.split_once('/').map(|(folder, _)| folder);
                let definitions = read_file(&layout.root.join(&path), model.unwrap_or(&path))
                    .map_err(|fault| Fault {
                        path: path.clone(),
                        ..fault
                    });
                done();
                definitions.map(|definitions| ScriptFile { path, definitions })
            })
            .collect();
    let mut files = Vec::with_capacity(read.len());
    for result in read {
        match result {
            Ok(file) => files.push(file),
            Err(fault) => faults.push(fault),
        }
    }
    (files, faults)
}

/// Reads the definitions of one file for a model's name.
///
/// # Errors
///
/// A file that cannot be read or does not parse.
pub fn read_file(path: &Path, model: &str) -> Result<Vec<ScriptDefinition>, Fault> {
    let shown = || path.display().to_string();
    let source = read_source(path).map_err(|fault| fault.at(shown()))?;
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    script_definitions(&source, model).map_err(|fault| fault.at(shown()))
}

/// The definitions of a source text, those under a condition included, each with the script's text.
///
/// # Errors
///
/// A text that does not parse.
pub fn script_definitions(source: &str, model: &str) -> Result<Vec<ScriptDefinition>, SyntaxFault> {
    let parsed = parse(source)?;
    let mut found: Vec<ScriptDefinition> = Vec::new();
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    for definition in definitions(parsed.syntax(), source, false) {
        // The script loses decorators: its definitions begin at `class`, `def` or `async`, which comes
        // last before the name.
        let tokens = parsed.tokens();
        let named = tokens.partition_point(|token| token.start().to_u32() < definition.name_at);
        let begin = tokens[..named]
            .iter()
            .rev()
            .take_while(|token| {
                matches!(
                    token.kind(),
                    TokenKind::Class | TokenKind::Def | TokenKind::Async
                )
            })
            .last()
            .map_or(definition.start, |token| token.start().to_u32());
        let text = &source[begin as usize..definition.end as usize];
        let sanitized = sanitize(text, model, &definition.name);
        let read = ScriptDefinition {
            kind: definition.kind,
            conditional: definition.conditional,
            tokens: identifiers(&sanitized).map(str::to_owned).collect(),
            sanitized,
            name: definition.name,
        };
        match places.get(&read.name) {
            Some(_) if read.conditional => {}
            Some(&place) => found[place] = read,
            None => {
                places.insert(read.name.clone(), found.len());
                found.push(read);
            }
        }
    }
    Ok(found)
}

/// The script's top answers by Jaccard similarity for each definition of a file.
pub fn jaccard(
    query: &Path,
    model: &str,
    files: &[ScriptFile],
    top: usize,
) -> Result<Vec<(String, Vec<Scored>)>, Fault> {
    let mut definitions = read_file(query, model)?;
    definitions.retain(|definition| !definition.conditional);
    let own_model = normalised(model);
    Ok(definitions
        .par_iter()
        .map(|definition| {
            let mut scores: Vec<Scored> = Vec::new();
            for file in files {
                let other = file.path.split('/').next().unwrap_or_default();
                if !own_model.is_empty() && normalised(other) == own_model {
                    continue;
                }
                for candidate in file
                    .definitions
                    .iter()
                    .filter(|c| !c.conditional && c.name != definition.name)
                {
                    let both = definition.tokens.intersection(&candidate.tokens).count();
                    let either = definition.tokens.len() + candidate.tokens.len() - both;
                    if both > 0 {
                        scores.push((
                            format!("{}:{}", file.path, candidate.name),
                            both as f64 / either as f64,
                        ));
                    }
                }
            }
            scores.sort_by(|a, b| b.1.total_cmp(&a.1));
            scores.truncate(top);
            (definition.name.clone(), scores)
        })
        .collect())
}

/// The model that the script takes a query file to belong to.
pub fn query_model(query: &Path, layout: &Layout) -> String {
    let inside = query
        .canonicalize()
        .ok()
        .zip(layout.root.canonicalize().ok())
        .and_then(|(query, root)| query.strip_prefix(root).ok().map(Path::to_path_buf));
    match inside
        .as_deref()
        .and_then(|path| path.iter().next())
        .and_then(|part| part.to_str())
    {
        Some(folder) => folder.to_owned(),
        None => file_model(
            query
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default(),
        )
        .to_owned(),
    }
}

/// Files of a folder before its folders, each in the order in which the directory gives them.
fn directory_order(
    root: &Path,
    below: &str,
    depth: usize,
    layout: &Layout,
    paths: &mut Vec<String>,
    faults: &mut Vec<Fault>,
) {
    let folder = root.join(below);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) => {
            faults.push(Fault {
                path: folder.display().to_string(),
                line: None,
                message: format!("cannot be read: {error}"),
            });
            return;
        }
    };
    let mut folders = Vec::new();
    for entry in entries.flatten() {
        let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
            continue;
        };
        let path = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}/{name}")
        };
        if kind.is_file() && layout.takes(&name) {
            paths.push(path);
        } else if kind.is_dir() {
            folders.push(path);
        }
    }
    if depth < MAX_FOLDERS {
        for path in folders {
            directory_order(root, &path, depth + 1, layout, paths, faults);
        }
    }
}

/// Replaces the model's names wherever their letters occur, without docstrings, comments and imports.
fn sanitize(code: &str, model: &str, symbol: &str) -> String {
    let mut code = without_imports(&without_comments(&without_triple_quoted(code)));
    let mut variants: Vec<String> = Vec::new();
    for name in [model, leading_word(symbol)] {
        let without_digits = name.chars().filter(|c| !c.is_numeric()).collect();
        for spelling in [name.to_owned(), name.replace('_', ""), without_digits] {
            variants.push(spelling.to_lowercase());
            variants.push(spelling);
        }
    }
    variants.retain(|variant| variant.chars().count() >= SHORTEST_NAME);
    variants.sort_by(|a, b| {
        b.chars()
            .count()
            .cmp(&a.chars().count())
            .then_with(|| a.cmp(b))
    });
    // Both `elm` and `Elm` stay: the script replaces twice, and the second time finds `elM` in what
    // `ElmMLP` has become.
    variants.dedup();
    for variant in &variants {
        code = replace_ignoring_case(&code, variant, "Model");
    }
    code
}

/// `Llama` of `LlamaAttention`, `rotate` of `rotate_half`.
fn leading_word(symbol: &str) -> &str {
    let bytes = symbol.as_bytes();
    let run = |from: usize, accept: fn(&u8) -> bool| {
        from + bytes[from..].iter().take_while(|b| accept(b)).count()
    };
    if bytes.first().is_some_and(u8::is_ascii_uppercase) {
        let end = run(1, |b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if end > 1 {
            return &symbol[..end];
        }
    }
    &symbol[..run(0, u8::is_ascii_alphanumeric)]
}

fn replace_ignoring_case(text: &str, name: &str, replacement: &str) -> String {
    let (bytes, name) = (text.as_bytes(), name.as_bytes());
    let mut replaced = String::with_capacity(text.len());
    let (mut at, mut copied) = (0, 0);
    while at + name.len() <= bytes.len() {
        if bytes[at..at + name.len()].eq_ignore_ascii_case(name) {
            replaced.push_str(&text[copied..at]);
            replaced.push_str(replacement);
            at += name.len();
            copied = at;
        } else {
            at += 1;
        }
    }
    replaced.push_str(&text[copied..]);
    replaced
}

fn without_triple_quoted(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    loop {
        let next = match (rest.find("\"\"\""), rest.find("'''")) {
            (Some(double), Some(single)) => Some(if double < single {
                (double, "\"\"\"")
            } else {
                (single, "'''")
            }),
            (Some(double), None) => Some((double, "\"\"\"")),
            (None, Some(single)) => Some((single, "'''")),
            (None, None) => None,
        };
        let Some((open, quotes)) = next else { break };
        match rest[open + 3..].find(quotes) {
            Some(length) => {
                kept.push_str(&rest[..open]);
                rest = &rest[open + 3 + length + 3..];
            }
            None => {
                kept.push_str(&rest[..=open]);
                rest = &rest[open + 1..];
            }
        }
    }
    kept.push_str(rest);
    kept
}

fn without_comments(code: &str) -> String {
    let lines: Vec<&str> = code
        .split('\n')
        .map(|line| line.split('#').next().unwrap_or_default())
        .collect();
    lines.join("\n")
}

fn without_imports(code: &str) -> String {
    let is_import = |line: &str| {
        let line = line.trim_start();
        let rest = line
            .strip_prefix("from")
            .or_else(|| line.strip_prefix("import"));
        rest.is_some_and(|rest| rest.starts_with(char::is_whitespace))
    };
    let lines: Vec<&str> = python_lines(code)
        .into_iter()
        .filter(|line| !is_import(line))
        .collect();
    lines.join("\n")
}

/// Python's `str.splitlines`, which knows more ends of a line than `\n`.
fn python_lines(text: &str) -> Vec<&str> {
    const ENDS: [char; 10] = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
        '\u{2029}',
    ];
    let mut lines: Vec<&str> = text.split(ENDS).collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

/// Words of letters, digits and underscores that are all ASCII and begin with no digit.
fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| {
            word.is_ascii() && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_in_mid_word_as_the_script_does() {
        let sanitized = sanitize(
            "x = downsample(SamMask) # sam\nimport sam\n'''sam'''\n",
            "sam",
            "SamModel",
        );
        assert_eq!(sanitized, "x = downModelple(ModelMask) \n");
    }

    #[test]
    fn a_replacement_is_replaced_again_as_the_script_does() {
        assert_eq!(sanitize("ElmMLP", "elm", "ElmMLP"), "ModModelLP");
    }

    #[test]
    fn the_leading_word_is_the_scripts() {
        assert_eq!(leading_word("LlamaAttention"), "Llama");
        assert_eq!(leading_word("CLIPModel"), "CLIPModel");
        assert_eq!(leading_word("rotate_half"), "rotate");
        assert_eq!(leading_word("_init_weight"), "");
        assert_eq!(leading_word("Qwen3MLP"), "Qwen3");
    }

    #[test]
    fn an_unclosed_quote_stays() {
        assert_eq!(
            without_triple_quoted("a '''b''' c \"\"\" d"),
            "a  c \"\"\" d"
        );
        assert_eq!(without_triple_quoted("a ''''"), "a ''''");
    }
}
