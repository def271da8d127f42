//! `burnscope demo`: traces a tiny bundled Llama and lays every tensor beside PyTorch's.

use std::{collections::HashSet, error::Error, fmt::Write, fs, path::PathBuf, process::ExitCode};

use burnscope::{
    Dump, Session,
    format::dump::DumpReader,
    models::{self, ModelInputs},
    summary::DType,
    trace::{Inputs, Node, TensorRecord, TensorValue, Value},
};
use safetensors::SafeTensors;

use super::{
    Outcome,
    device::{DeviceName, Operations},
    output::{self, BAD, FAINT, GOOD, STRONG, styled},
};

const CONFIG: &[u8] = include_bytes!("demo/config.json");
const WEIGHTS: &[u8] = include_bytes!("demo/model.safetensors");
const INPUTS: &[u8] = include_bytes!("demo/inputs.safetensors");
/// Every tensor that transformers' debugger recorded of this model, by the name of its file.
const PYTORCH: &[u8] = include_bytes!("demo/pytorch.safetensors");

/// How far a tensor may be from PyTorch's, as the L2 norm of the difference over PyTorch's L2 norm.
const TOLERANCE: f64 = 1e-5;

/// Trace a tiny bundled Llama and compare every tensor with PyTorch's
///
/// Needs no network and no GPU. The model has three layers and random weights; the numbers on
/// PyTorch's side were recorded by transformers 5.24.0 with torch 2.15.0 on a CPU.
#[derive(clap::Args)]
pub struct DemoArguments {
    /// Where to run
    #[arg(long, value_enum, default_value = "flex")]
    device: DeviceName,
    /// Keep the model and the trace in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the demo; exit code 1 if a module disagrees.
pub fn run(arguments: &DemoArguments) -> Outcome {
    let device = arguments.device.open(Operations::Seen)?;
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .out
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    let checkpoint = folder.join("checkpoint");
    fs::create_dir_all(&checkpoint)
        .map_err(|error| format!("cannot make {}: {error}", checkpoint.display()))?;
    for (name, contents) in [
        ("config.json", CONFIG),
        ("model.safetensors", WEIGHTS),
        ("inputs.safetensors", INPUTS),
    ] {
        let path = checkpoint.join(name);
        fs::write(&path, contents)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }

    let model = models::load(&checkpoint, &device)?;
    let inputs = ModelInputs::read(&checkpoint.join("inputs.safetensors"))?;
    let trace_folder = folder.join("trace");
    let builder = Session::builder(&trace_folder)
        .name(model.class_name())
        .dump(Dump::Safetensors);
    let session = model.start(builder)?;
    session.run(|| model.forward(&inputs))?;
    let trace = session.finish()?;

    let mut comparison = Comparison {
        reference: SafeTensors::deserialize(PYTORCH)?,
        files: DumpReader::new(&trace_folder),
        seen: HashSet::new(),
        text: format!(
            "{}\n",
            styled(
                STRONG,
                format!(
                    "{:34} {:16} {}",
                    "module", "output", "tensors compared, largest difference"
                )
            )
        ),
        worst: 0.0,
        wrong: 0,
    };
    for root in &trace.roots {
        comparison.node(root, None, 0)?;
    }
    let Comparison {
        reference,
        seen,
        mut text,
        worst,
        wrong,
        ..
    } = comparison;
    let missing = reference.names().len() - seen.len();
    text.push('\n');
    let tensors = seen.len();
    if wrong == 0 && missing == 0 {
        let verdict = styled(GOOD, format!("All {tensors} tensors agree with PyTorch"));
        let _ = writeln!(
            text,
            "{verdict}: the largest relative difference is {worst:.1e}."
        );
    } else {
        let verdict =
            format!("{wrong} of {tensors} tensors differ from PyTorch's, {missing} were not seen");
        let _ = writeln!(text, "{}.", styled(BAD, verdict));
    }
    match &arguments.out {
        Some(folder) => {
            let _ = writeln!(
                text,
                "The model and its trace are in {}",
                styled(STRONG, folder.display())
            );
        }
        None => {
            let _ = writeln!(
                text,
                "{}",
                styled(
                    FAINT,
                    "Keep the files with --out DIR; trace your own checkpoint with `burnscope trace --help`."
                )
            );
        }
    }
    output::print(&text)?;
    Ok(if wrong == 0 && missing == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The trace on the left, PyTorch's tensors on the right.
struct Comparison {
    reference: SafeTensors<'static>,
    files: DumpReader,
    /// The names of PyTorch's tensors that were compared.
    seen: HashSet<String>,
    text: String,
    worst: f64,
    wrong: usize,
}

impl Comparison {
    fn node(
        &mut self,
        node: &Node,
        above: Option<&Node>,
        depth: usize,
    ) -> Result<(), Box<dyn Error>> {
        let inputs = node.inputs.iter().flat_map(Inputs::values);
        let mut tensors: Vec<&TensorRecord> = inputs.flat_map(Value::tensors).collect();
        let given = tensors.len();
        tensors.extend(node.outputs.iter().flat_map(Value::tensors));
        let mut differences = Vec::new();
        let mut output = String::new();
        for (index, tensor) in tensors.iter().enumerate() {
            if let Some(difference) = self.difference(tensor)? {
                differences.push(difference);
                self.worst = self.worst.max(difference);
                self.wrong += usize::from(difference > TOLERANCE);
            }
            if index == given {
                output = format!("{}{:?}", tensor.dtype, tensor.shape);
            }
        }
        let name = above.map_or(node.path.as_str(), |above| node.name_below(above));
        let name = format!("{}{name}", "  ".repeat(depth));
        let row = format!("{name:34} {output:16}");
        let verdict = match differences.iter().copied().reduce(f64::max) {
            None => styled(FAINT, "not in PyTorch's trace"),
            Some(worst) if worst <= TOLERANCE => {
                format!(
                    "{} {}",
                    styled(GOOD, "✓"),
                    styled(FAINT, format!("{:2}  {worst:.1e}", differences.len()))
                )
            }
            Some(worst) => format!("{} {:2}  {worst:.1e}", styled(BAD, "✗"), differences.len()),
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{row} {verdict}");
        node.children
            .iter()
            .try_for_each(|child| self.node(child, Some(node), depth + 1))
    }

    /// The relative difference of a tensor from PyTorch's of the same name; `None` where it has none.
    fn difference(&mut self, tensor: &TensorRecord) -> Result<Option<f64>, Box<dyn Error>> {
        let Some(TensorValue::File(file)) = &tensor.value else {
            return Ok(None);
        };
        let name = file.trim_end_matches(".safetensors");
        let Ok(theirs) = self.reference.tensor(name) else {
            return Ok(None);
        };
        self.seen.insert(name.to_owned());
        let ours = self.files.read(file)?;
        if ours.shape != theirs.shape() {
            return Ok(Some(f64::INFINITY));
        }
        // A device may have no integers of 64 bits.
        if theirs.dtype() == safetensors::Dtype::I64 && ours.dtype == DType::I32 {
            let ours = ours.bytes.as_chunks().0.iter();
            let theirs = theirs.data().as_chunks().0.iter();
            let same = ours
                .map(|bytes| i64::from(i32::from_le_bytes(*bytes)))
                .eq(theirs.map(|bytes| i64::from_le_bytes(*bytes)));
            return Ok(Some(if same { 0.0 } else { f64::INFINITY }));
        }
        if ours.bytes.len() != theirs.data().len() {
            return Ok(Some(f64::INFINITY));
        }
        if theirs.dtype() != safetensors::Dtype::F32 {
            return Ok(Some(if ours.bytes == theirs.data() {
                0.0
            } else {
                f64::INFINITY
            }));
        }
        let floats = |bytes: &[u8]| -> Vec<f64> {
            bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
                .collect()
        };
        let (ours, theirs) = (floats(&ours.bytes), floats(theirs.data()));
        let norm =
            |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let apart = norm(&mut ours.iter().zip(&theirs).map(|(a, b)| a - b));
        let scale = norm(&mut theirs.iter().copied());
        // Two tensors of zeros agree; a NaN agrees with nothing.
        Ok(Some(if apart == 0.0 {
            0.0
        } else if apart.is_nan() {
            f64::INFINITY
        } else {
            apart / scale
        }))
    }
}
