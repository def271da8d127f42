//! A record as a trace, from a file that is not trusted and may end anywhere.

use std::{collections::BTreeMap, io::BufRead, path::Path, sync::Arc};

use serde::{Deserialize, de::DeserializeOwned};

use super::{
    Header, SCHEMA_MAJOR,
    line::{EnterLine, ExitLine, FinishLine, NoteLine, TensorLine},
    value::{Encoded, EncodedInputs},
};
use crate::{
    format::{Limits, MAX_CALL_DEPTH, ReadError, error::shorten, open::read_file},
    summary::DType,
    trace::{Attribution, Node, Printed, TensorRecord, TensorValue, Time, Trace},
};

/// Reads a record.
///
/// A last line that is cut off is left out and the trace is marked incomplete; lines of kinds that
/// this version does not know are left out with a note.
///
/// # Errors
/// If the file cannot be read, exceeds the limits, has another major schema version, or a line
/// before the last is damaged.
pub fn read(path: &Path, limits: &Limits) -> Result<Trace, ReadError> {
    read_with_header(path, limits).map(|(_, trace)| trace)
}

/// As [`read`], with what the record says about its run.
///
/// # Errors
/// As [`read`].
pub fn read_with_header(path: &Path, limits: &Limits) -> Result<(Header, Trace), ReadError> {
    read_from(&mut read_file(path, limits)?.as_slice(), path)
}

/// Reads a record from any source; the path serves for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: &mut dyn BufRead, path: &Path) -> Result<(Header, Trace), ReadError> {
    let mut lines = Lines {
        source,
        path,
        number: 0,
        line: Vec::new(),
    };
    let header = match lines.next()? {
        Some(_) => header(&lines)?,
        None => {
            return Err(ReadError::NotATrace {
                path: path.to_owned(),
            });
        }
    };
    let mut record = Record::default();
    while let Some(last) = lines.next()? {
        match record.take(&lines.line) {
            Ok(()) => {}
            Err(Fault::Cut(_)) if last => {
                record.finished = false;
                record.notes.push(
                    "the last line is cut off: the run ended while it was written".to_owned(),
                );
            }
            Err(Fault::Cut(message) | Fault::Wrong(message)) => return Err(lines.wrong(&message)),
        }
    }
    let trace = record.into_trace(&header);
    Ok((header, trace))
}

/// The file's lines, one in memory at a time.
struct Lines<'a> {
    source: &'a mut dyn BufRead,
    path: &'a Path,
    number: u64,
    line: Vec<u8>,
}

impl Lines<'_> {
    /// Reads a line and says whether it is the last; `None` at the end.
    fn next(&mut self) -> Result<Option<bool>, ReadError> {
        self.line.clear();
        self.source
            .read_until(b'\n', &mut self.line)
            .map_err(ReadError::io(self.path))?;
        if self.line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let rest = self.source.fill_buf().map_err(ReadError::io(self.path))?;
        Ok(Some(rest.is_empty()))
    }

    fn wrong(&self, message: &str) -> ReadError {
        ReadError::Line {
            path: self.path.to_owned(),
            line: self.number,
            message: shorten(message),
        }
    }
}

fn header(lines: &Lines<'_>) -> Result<Header, ReadError> {
    #[derive(Deserialize)]
    struct Version {
        kind: String,
        schema: String,
    }
    let Ok(version) = serde_json::from_slice::<Version>(&lines.line) else {
        return Err(lines.wrong("no whole header: this is no burnscope record"));
    };
    if version.kind != "header" {
        return Err(lines.wrong("a record begins with its header"));
    }
    let major = version.schema.split('.').next().unwrap_or_default();
    if major.parse() != Ok(SCHEMA_MAJOR) {
        return Err(ReadError::Schema {
            path: lines.path.to_owned(),
            found: shorten(&version.schema),
            supported: SCHEMA_MAJOR,
        });
    }
    serde_json::from_slice(&lines.line).map_err(|error| lines.wrong(&error.to_string()))
}

/// Why a line was not taken.
enum Fault {
    /// It is no JSON object, as the last line after a crash.
    Cut(String),
    /// It does not fit what came before or its kind.
    Wrong(String),
}

fn wrong(message: impl ToString) -> Fault {
    Fault::Wrong(message.to_string())
}

/// What the lines so far tell.
#[derive(Default)]
struct Record {
    tensors: Vec<Arc<TensorRecord>>,
    calls: Vec<Call>,
    notes: Vec<String>,
    finished: bool,
    complete: bool,
    /// Lines of unknown kinds, counted.
    unknown: BTreeMap<String, u64>,
}

struct Call {
    /// Its children are put in at the end.
    node: Node,
    parent: Option<usize>,
    /// In how many calls it lies: a trace has only those below [`MAX_CALL_DEPTH`].
    depth: usize,
    exited: bool,
}

impl Record {
    fn take(&mut self, line: &[u8]) -> Result<(), Fault> {
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        let kind = serde_json::from_slice::<Kind>(line)
            .map_err(|error| match error.classify() {
                serde_json::error::Category::Data => wrong(error),
                _ => Fault::Cut(error.to_string()),
            })?
            .kind;
        if self.finished {
            return Err(wrong("a line after the finish line"));
        }
        match kind.as_str() {
            "tensor" => self.tensor(parse(line)?),
            "enter" => self.enter(parse(line)?),
            "exit" => self.exit(parse(line)?),
            "note" => {
                let NoteLine { text } = parse(line)?;
                self.notes.push(text.into_owned());
                Ok(())
            }
            "finish" => {
                let FinishLine { complete } = parse(line)?;
                self.finished = true;
                self.complete = complete;
                Ok(())
            }
            "header" => Err(wrong("a second header")),
            _ => {
                const KINDS: usize = 16;
                if self.unknown.len() < KINDS || self.unknown.contains_key(&kind) {
                    *self.unknown.entry(kind).or_default() += 1;
                }
                Ok(())
            }
        }
    }

    fn tensor(&mut self, line: TensorLine<'static>) -> Result<(), Fault> {
        if line.tensor != self.tensors.len() as u64 {
            return Err(wrong(format_args!(
                "tensor {} where {} is next",
                line.tensor,
                self.tensors.len()
            )));
        }
        let shape = line.shape.into_owned();
        // Eight bytes are the largest element, and no caller should have to fear the product.
        shape
            .iter()
            .try_fold(8usize, |bytes, &dim| bytes.checked_mul(dim.max(1)))
            .ok_or_else(|| wrong("the shape has more elements than can be counted"))?;
        let dtype: DType = line
            .dtype
            .parse()
            .unwrap_or_else(|_| DType::Other(line.dtype.clone().into_owned()));
        let value = match (line.lines, line.file) {
            (None, None) => None,
            (Some(lines), None) => Some(TensorValue::Lines(lines.into_owned())),
            (None, Some(file)) => Some(TensorValue::File(file.into_owned())),
            (Some(_), Some(_)) => return Err(wrong("both `lines` and `file`")),
        };
        self.tensors.push(Arc::new(TensorRecord {
            shape,
            dtype,
            device: line.device.map(Into::into),
            id: line.id,
            summary: line.summary.map(Into::into),
            not_summarised: line.not_summarised.map(Into::into),
            printed: line.printed.map(|printed| Printed {
                mean: printed.mean.into_owned(),
                std: printed.std.into_owned(),
                min: printed.min.into_owned(),
                max: printed.max.into_owned(),
            }),
            value,
        }));
        Ok(())
    }

    fn enter(&mut self, line: EnterLine<'static, EncodedInputs>) -> Result<(), Fault> {
        if line.node != self.calls.len() as u64 {
            return Err(wrong(format_args!(
                "call {} where {} is next",
                line.node,
                self.calls.len()
            )));
        }
        let parent = line.parent.map(|parent| self.known(parent)).transpose()?;
        let depth = parent.map_or(0, |parent| self.calls[parent].depth + 1);
        let inputs = line.inputs.map(|inputs| inputs.resolve(&self.tensors));
        let node = Node {
            path: line.path.into_owned(),
            kind: line.module_type.map(Into::into),
            method: line.method.map(Into::into),
            step: line.step,
            call: line.call,
            order: line.order.unwrap_or(line.node),
            inputs: inputs.transpose().map_err(wrong)?,
            time: line.start_ns.map(|start_ns| Time {
                start_ns,
                elapsed_ns: None,
            }),
            attribution: if line.inferred {
                Attribution::Inferred
            } else {
                Attribution::Exact
            },
            ..Node::default()
        };
        self.calls.push(Call {
            node,
            parent,
            depth,
            exited: false,
        });
        Ok(())
    }

    fn exit(&mut self, line: ExitLine<'static, Encoded>) -> Result<(), Fault> {
        let call = self.known(line.node)?;
        let call = &mut self.calls[call];
        if call.exited {
            return Err(wrong(format_args!("call {} ends twice", line.node)));
        }
        call.exited = true;
        let outputs = line.outputs.map(|value| value.resolve(&self.tensors));
        call.node.outputs = outputs.transpose().map_err(wrong)?;
        call.node.complete = line.complete;
        call.node.pruned = line.pruned.into_owned();
        if let Some(time) = &mut call.node.time {
            time.elapsed_ns = line.elapsed_ns;
        }
        Ok(())
    }

    fn known(&self, call: u64) -> Result<usize, Fault> {
        usize::try_from(call)
            .ok()
            .filter(|&call| call < self.calls.len())
            .ok_or_else(|| {
                wrong(format_args!(
                    "call {call} has no enter line before this one"
                ))
            })
    }

    fn into_trace(mut self, header: &Header) -> Trace {
        let mut roots = Vec::new();
        let mut too_deep = 0;
        // A call's children come after it, so from the end each call is whole when it is moved.
        while let Some(mut call) = self.calls.pop() {
            if call.depth >= MAX_CALL_DEPTH {
                too_deep += 1;
                continue;
            }
            call.node.children.reverse();
            match call.parent {
                // A parent is an earlier call: `enter` checked it.
                Some(parent) => self.calls[parent].node.children.push(call.node),
                None => roots.push(call.node),
            }
        }
        roots.reverse();
        if too_deep > 0 {
            self.notes.push(format!(
                "left out {too_deep} calls that nest deeper than {MAX_CALL_DEPTH}"
            ));
        }
        for (kind, count) in self.unknown {
            let kind = shorten(&kind);
            self.notes.push(format!(
                "skipped {count} lines of the unknown kind `{kind}`"
            ));
        }
        Trace {
            name: header.name.clone(),
            source: header.program.clone(),
            roots,
            ops: Vec::new(),
            complete: self.finished && self.complete,
            notes: self.notes,
        }
    }
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(line).map_err(wrong)
}
