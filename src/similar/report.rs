//! An [`Analysis`] as JSON and as text.
//!
//! The text has the original script's form, one block for each definition, and after it what the
//! script does not say. Colours are the caller's business: the text marks what it is, not how it looks.

use std::fmt::{self, Write};

use serde_json::{Map, Value, json};

use super::analysis::{Analysis, Finding, Match, Scored};
use super::dates::{Day, ModelDates};
use super::definitions::Kind;

/// The most lines of a difference that are shown.
const SHOWN_DIFFERENCE: usize = 6;
/// The most characters of one of these lines.
const SHOWN_LINE: usize = 110;

/// What a piece of the text is, for those who show it in colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A definition's or a section's heading.
    Heading,
    /// The name of a list.
    Label,
    /// The best answer.
    Best,
    /// A line that only the parent has.
    Removed,
    /// A line that only the child has.
    Added,
    /// Anything else.
    Plain,
}

/// The text, line by line, each with its style.
pub fn lines(analysis: &Analysis, skeleton: bool) -> Vec<(Style, String)> {
    let mut lines = Vec::new();
    for finding in &analysis.findings {
        definition(&mut lines, &analysis.file, finding);
    }
    lines.push((
        Style::Heading,
        format!("{} ({})", analysis.file, date_text(analysis.dates)),
    ));
    match &analysis.parent {
        Some(parent) => lines.push((
            Style::Best,
            format!(
                "    inherit from {} ({}), {}: expected parent of {:.1} of {} definitions",
                parent.model,
                parent.file,
                date_text(parent.dates),
                parent.expected,
                analysis.findings.len()
            ),
        )),
        None => lines.push((
            Style::Plain,
            "    nothing to inherit from was found".to_owned(),
        )),
    }
    if skeleton {
        lines.push((Style::Plain, String::new()));
        lines.push((Style::Heading, format!("# modular_{}.py", analysis.model)));
        lines.extend(
            analysis
                .skeleton
                .lines()
                .map(|line| (Style::Plain, line.to_owned())),
        );
    }
    lines
}

fn definition(lines: &mut Vec<(Style, String)>, file: &str, finding: &Finding) {
    lines.push((Style::Heading, format!("{file}::{}:", finding.name)));
    if let Some(embedding) = &finding.embedding {
        lines.push((Style::Label, "embedding:".to_owned()));
        lines.extend(
            embedding
                .iter()
                .map(|scored| (Style::Plain, scored_line(scored))),
        );
    }
    lines.push((Style::Label, "jaccard:".to_owned()));
    lines.extend(
        finding
            .jaccard
            .iter()
            .map(|scored| (Style::Plain, scored_line(scored))),
    );
    lines.push((Style::Label, "intersection:".to_owned()));
    lines.extend(
        finding
            .intersection()
            .iter()
            .map(|name| (Style::Plain, format!("    {}", short_name(name)))),
    );
    lines.push((Style::Label, "best:".to_owned()));
    for (at, found) in finding.best.iter().enumerate() {
        lines.push((
            if at == 0 { Style::Best } else { Style::Plain },
            match_line(found),
        ));
    }
    if let (Some(found), Some(difference)) = (finding.best.first(), &finding.difference) {
        lines.push((Style::Label, format!("why {}:", short_name(&found.name))));
        if difference.lines.is_empty() {
            lines.push((Style::Plain, "    the same code after renaming".to_owned()));
        }
        for line in difference.lines.iter().take(SHOWN_DIFFERENCE) {
            let style = if line.starts_with('-') {
                Style::Removed
            } else {
                Style::Added
            };
            lines.push((style, format!("    {}", cut(line, SHOWN_LINE))));
        }
        let more = difference.lines.len().saturating_sub(SHOWN_DIFFERENCE);
        if more > 0 {
            lines.push((
                Style::Plain,
                format!("    ... and {more} more lines that differ"),
            ));
        }
    }
    lines.push((Style::Plain, String::new()));
}

fn match_line(found: &Match) -> String {
    let mut line = format!(
        "    {} ({:.4})  {:.0}% likely, {}",
        short_name(&found.name),
        found.score,
        100.0 * found.probability,
        date_text(found.dates)
    );
    if found.clones > 0 {
        let _ = write!(line, ", {} identical elsewhere", found.clones);
    }
    line
}

fn scored_line(scored: &Scored) -> String {
    format!("    {} ({:.4})", short_name(&scored.name), scored.score)
}

/// `llama::LlamaRMSNorm` for `llama/modeling_llama.py:LlamaRMSNorm`, as the script prints it.
pub fn short_name(name: &str) -> String {
    match name.split_once(':') {
        Some((path, definition)) => {
            let model = path
                .split('/')
                .next()
                .unwrap_or(path)
                .trim_end_matches(".py");
            format!("{model}::{definition}")
        }
        None => name.to_owned(),
    }
}

fn date_text(dates: ModelDates) -> impl fmt::Display {
    match (dates.released, dates.contributed) {
        (Some(released), Some(contributed)) => format!("released {released}, added {contributed}"),
        (Some(released), None) => format!("released {released}"),
        (None, Some(contributed)) => format!("added {contributed}"),
        (None, None) => "unknown release date".to_owned(),
    }
}

fn cut(line: &str, most: usize) -> String {
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line.to_owned(),
    }
}

/// The JSON object: `definitions`, `parent` and what belongs to them.
pub fn to_json(analysis: &Analysis) -> Value {
    let mut definitions = Map::new();
    for finding in &analysis.findings {
        // Of two definitions with one name, as in the branches of an `if`, the first has the name.
        let name = match definitions.contains_key(&finding.name) {
            true => format!("{}@{}", finding.name, finding.line),
            false => finding.name.clone(),
        };
        definitions.insert(name, finding_json(finding));
    }
    let parent = analysis.parent.as_ref();
    json!({
        "file": analysis.file,
        "model": analysis.model,
        "released": day(analysis.dates.released),
        "contributed": day(analysis.dates.contributed),
        "definitions": definitions,
        "parent": parent.map(|parent| parent.model.as_str()),
        "parent_file": parent.map(|parent| parent.file.as_str()),
        "skeleton": analysis.skeleton,
    })
}

fn finding_json(finding: &Finding) -> Value {
    let kind = match finding.kind {
        Kind::Class => "class",
        Kind::Function => "function",
        Kind::Method => "method",
    };
    let scored = |list: &[Scored]| -> Value {
        list.iter()
            .map(|scored| json!({"name": scored.name, "score": scored.score}))
            .collect()
    };
    let best: Value = finding
        .best
        .iter()
        .map(|found| {
            json!({
                "name": found.name,
                "score": number(found.score),
                "similarity": number(found.similarity),
                "probability": number(found.probability),
                "identical": found.identical,
                "clones": found.clones,
                "line": found.line,
                "released": day(found.dates.released),
                "contributed": day(found.dates.contributed),
            })
        })
        .collect();
    let mut object = Map::new();
    object.insert("kind".to_owned(), json!(kind));
    object.insert("line".to_owned(), json!(finding.line));
    object.insert("best".to_owned(), best);
    object.insert("jaccard".to_owned(), scored(&finding.jaccard));
    if let Some(embedding) = &finding.embedding {
        object.insert("embedding".to_owned(), scored(embedding));
    }
    object.insert("intersection".to_owned(), json!(finding.intersection()));
    object.insert(
        "difference".to_owned(),
        json!(finding.difference.as_ref().map(|d| &d.lines)),
    );
    Value::Object(object)
}

/// A score as the shortest decimal number that is the same in single precision.
fn number(score: f32) -> Value {
    score
        .to_string()
        .parse::<f64>()
        .ok()
        .and_then(serde_json::Number::from_f64)
        .map_or(Value::Null, Value::Number)
}

fn day(day: Option<Day>) -> Option<String> {
    day.map(|day| day.to_string())
}
