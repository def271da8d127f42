//! What the lines of a record tell, put together to a trace; no line is trusted.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, de::DeserializeOwned};

use super::{
    Header,
    line::{
        EnterLine, ExitLine, FinishLine, LateLine, NoteLine, OpLine, OperandLine, OpsLine,
        TensorLine,
    },
    read::{Fault, wrong},
    value::{Encoded, EncodedInputs, Entries, known_tensor},
};
use crate::{
    format::{MAX_CALL_DEPTH, error::shorten},
    summary::DType,
    trace::{
        Attribution, Node, Op, Operand, Output, TensorRecord, TensorValue, Time, Trace, arrange,
    },
};

/// What the lines so far tell.
#[derive(Default)]
pub(super) struct Record {
    /// Not shared before the end: a later line may add to an earlier tensor.
    tensors: Vec<TensorRecord>,
    calls: Vec<Call>,
    ops: Vec<ReadOp>,
    notes: Vec<String>,
    finished: bool,
    complete: bool,
    /// Lines of unknown kinds, counted.
    unknown: BTreeMap<String, u64>,
}

struct Call {
    /// Its children, operations and tensors are put in at the end.
    node: Node,
    inputs: Option<EncodedInputs>,
    outputs: Option<Encoded>,
    parent: Option<usize>,
    /// In how many calls it lies: a trace has only those below [`MAX_CALL_DEPTH`].
    depth: usize,
    exited: bool,
}

struct ReadOp {
    /// Its outputs are put in at the end.
    op: Op,
    outputs: Vec<ReadOutput>,
    call: Option<usize>,
    /// Whether a later line than its own named the call.
    late: bool,
}

struct ReadOutput {
    label: String,
    /// Place among the tensors.
    tensor: usize,
    alias_of: Option<u64>,
}

impl Record {
    pub(super) fn take(&mut self, line: &[u8]) -> Result<(), Fault> {
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
            "summary" => self.summary(parse(line)?),
            "enter" => self.enter(parse(line)?),
            "exit" => self.exit(parse(line)?),
            "op" => self.op(parse(line)?),
            "ops" => self.ops(&parse(line)?),
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

    /// The last line was none.
    pub(super) fn cut_off(&mut self) {
        self.finished = false;
        self.notes
            .push("the last line is cut off: the run ended while it was written".to_owned());
    }

    fn tensor(&mut self, line: TensorLine<'static>) -> Result<(), Fault> {
        if line.tensor != self.tensors.len() as u64 {
            return Err(wrong(format_args!(
                "tensor {} where {} is next",
                line.tensor,
                self.tensors.len()
            )));
        }
        self.tensors.push(TensorRecord {
            shape: countable(line.shape.into_owned())?,
            dtype: dtype(&line.dtype),
            device: line.device.map(Into::into),
            id: line.id,
            summary: line.summary.map(Into::into),
            not_summarised: line.not_summarised.map(Into::into),
            printed: line.printed.map(Into::into),
            value: elements(line.lines.map(Into::into), line.file.map(Into::into))?,
        });
        Ok(())
    }

    fn summary(&mut self, line: LateLine<'static>) -> Result<(), Fault> {
        let place = known_tensor(line.tensor, self.tensors.len()).map_err(wrong)?;
        let value = elements(line.lines.map(Into::into), line.file.map(Into::into))?;
        let tensor = &mut self.tensors[place];
        if line.summary.is_some() || line.not_summarised.is_some() {
            tensor.summary = line.summary.map(Into::into);
            tensor.not_summarised = line.not_summarised.map(Into::into);
        }
        if let Some(printed) = line.printed {
            tensor.printed = Some(printed.into());
        }
        if value.is_some() {
            tensor.value = value;
        }
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
        if let Some(inputs) = &line.inputs {
            inputs.check(self.tensors.len()).map_err(wrong)?;
        }
        let node = Node {
            path: line.path.into_owned(),
            kind: line.module_type.map(Into::into),
            method: line.method.map(Into::into),
            step: line.step,
            call: line.call,
            order: line.order.unwrap_or(line.node),
            time: line.start_ns.map(|start_ns| Time {
                start_ns,
                elapsed_ns: None,
            }),
            attribution: attribution(line.inferred),
            ..Node::default()
        };
        self.calls.push(Call {
            node,
            inputs: line.inputs,
            outputs: None,
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
        if let Some(outputs) = &line.outputs {
            outputs.check(self.tensors.len()).map_err(wrong)?;
        }
        call.exited = true;
        call.outputs = line.outputs;
        call.node.complete = line.complete;
        call.node.pruned = line.pruned.into_owned();
        if let Some(time) = &mut call.node.time {
            time.elapsed_ns = line.elapsed_ns;
        }
        Ok(())
    }

    fn op(&mut self, line: OpLine<'static, Entries<String>>) -> Result<(), Fault> {
        if line.op != self.ops.len() as u64 {
            return Err(wrong(format_args!(
                "operation {} where {} is next",
                line.op,
                self.ops.len()
            )));
        }
        let call = line.node.map(|node| self.known(node)).transpose()?;
        let inputs = line.inputs.into_iter().map(operand);
        let inputs = inputs.collect::<Result<_, _>>()?;
        let outputs = line.outputs.into_iter().map(|output| {
            Ok(ReadOutput {
                label: output.label.into_owned(),
                tensor: known_tensor(output.tensor, self.tensors.len()).map_err(wrong)?,
                alias_of: output.alias_of,
            })
        });
        let outputs = outputs.collect::<Result<_, _>>()?;
        let op = Op {
            name: line.name.into_owned(),
            order: line.order.unwrap_or(line.op),
            inputs,
            outputs: Vec::new(),
            scalars: line.scalars.0,
            stream: line.stream,
            device: line.device.into_owned(),
            backward: line.backward,
            attribution: attribution(line.inferred),
        };
        self.ops.push(ReadOp {
            op,
            outputs,
            call,
            late: false,
        });
        Ok(())
    }

    /// Takes no more steps than there are operations, over all lines: none may be named twice.
    fn ops(&mut self, line: &OpsLine) -> Result<(), Fault> {
        let call = self.known(line.node)?;
        for &[first, count] in &line.ops {
            let end = first
                .checked_add(count)
                .ok_or_else(|| wrong("a range of operations has no end"))?;
            for number in first..end {
                let known = usize::try_from(number).ok();
                let place = known.filter(|&place| place < self.ops.len());
                let place = place.ok_or_else(|| {
                    wrong(format_args!(
                        "operation {number} has no line before this one"
                    ))
                })?;
                let ReadOp {
                    call: before, late, ..
                } = self.ops[place];
                if late && before == Some(call) {
                    return Err(wrong(format_args!("operation {number} is named twice")));
                }
                if late || !before.is_none_or(|outer| self.lies_in(call, outer)) {
                    return Err(wrong(format_args!(
                        "operation {number} belongs to two calls, {} and {}",
                        before.unwrap_or_default(),
                        line.node
                    )));
                }
                let op = &mut self.ops[place];
                op.call = Some(call);
                op.late = true;
                if line.inferred {
                    op.op.attribution = Attribution::Inferred;
                }
            }
        }
        Ok(())
    }

    /// Whether a call is the other or was made inside it. Calls that nest too deep for a trace pass,
    /// so that the way up is short.
    fn lies_in(&self, mut call: usize, outer: usize) -> bool {
        if self.calls[call].depth >= MAX_CALL_DEPTH {
            return true;
        }
        while call > outer {
            match self.calls[call].parent {
                Some(parent) => call = parent,
                None => return false,
            }
        }
        call == outer
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

    pub(super) fn into_trace(mut self, header: &Header) -> Trace {
        let tensors: Vec<_> = self.tensors.into_iter().map(Arc::new).collect();
        let mut free_ops = Vec::new();
        for mut read in self.ops {
            let outputs = read.outputs.into_iter().map(|output| Output {
                label: output.label,
                tensor: Arc::clone(&tensors[output.tensor]),
                alias_of: output.alias_of,
            });
            read.op.outputs = outputs.collect();
            match read.call {
                Some(call) => self.calls[call].node.ops.push(read.op),
                None => free_ops.push(read.op),
            }
        }
        free_ops.sort_by_key(|op| op.order);
        let mut roots = Vec::new();
        let mut too_deep = 0;
        // A call's children come after it, so from the end each call is whole when it is moved.
        while let Some(mut call) = self.calls.pop() {
            if call.depth >= MAX_CALL_DEPTH {
                too_deep += 1;
                continue;
            }
            call.node.inputs = call.inputs.map(|inputs| inputs.resolve(&tensors));
            call.node.outputs = call.outputs.map(|value| value.resolve(&tensors));
            call.node.ops.sort_by_key(|op| op.order);
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
        let mut trace = Trace {
            name: header.name.clone(),
            source: header.program.clone(),
            roots,
            ops: free_ops,
            complete: self.finished && self.complete,
            notes: self.notes,
        };
        arrange(&mut trace);
        trace
    }
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(line).map_err(wrong)
}

fn operand(line: OperandLine<'static>) -> Result<Operand, Fault> {
    Ok(Operand {
        label: line.label.into_owned(),
        id: line.id,
        shape: countable(line.shape.into_owned())?,
        dtype: dtype(&line.dtype),
        parameter: line.parameter.map(Into::into),
    })
}

/// Eight bytes are the largest element, and no caller should have to fear the product.
fn countable(shape: Vec<usize>) -> Result<Vec<usize>, Fault> {
    shape
        .iter()
        .try_fold(8usize, |bytes, &dim| bytes.checked_mul(dim.max(1)))
        .ok_or_else(|| wrong("the shape has more elements than can be counted"))?;
    Ok(shape)
}

fn dtype(name: &str) -> DType {
    let known = name.parse();
    known.unwrap_or_else(|_| DType::Other(name.to_owned()))
}

fn elements(
    lines: Option<Vec<String>>,
    file: Option<String>,
) -> Result<Option<TensorValue>, Fault> {
    match (lines, file) {
        (None, None) => Ok(None),
        (Some(lines), None) => Ok(Some(TensorValue::Lines(lines))),
        (None, Some(file)) => Ok(Some(TensorValue::File(file))),
        (Some(_), Some(_)) => Err(wrong("both `lines` and `file`")),
    }
}

fn attribution(inferred: bool) -> Attribution {
    match inferred {
        true => Attribution::Inferred,
        false => Attribution::Exact,
    }
}
