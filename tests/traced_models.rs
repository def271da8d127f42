//! A traced run of a built-in model has PyTorch's tree, shapes, values and printed statistics.

#![cfg(all(feature = "models", feature = "flex"))]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use burn::tensor::Device;
use burnscope::{
    Dump, Session,
    format::{self, dump::DumpReader, torch_repr},
    models::{self, LoadedModel, ModelInputs},
    summary::DType,
    trace::{Node, Printed, TensorRecord, TensorValue, Trace, Value},
};
use safetensors::SafeTensors;

fn data(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/traces")
        .join(case)
}

fn traced(model: &LoadedModel, inputs: &ModelInputs, dump: Dump, folder: &Path) -> Trace {
    let session = model.start(Session::builder(folder).dump(dump)).unwrap();
    session.run(|| model.forward(inputs)).unwrap();
    session.finish().unwrap()
}

struct Case {
    model: LoadedModel,
    inputs: ModelInputs,
    /// PyTorch's trace, with printed values.
    reference: Trace,
}

fn load(case: &str, checkpoint: &Path) -> Case {
    let model = models::load(checkpoint, &Device::flex()).unwrap();
    let inputs = ModelInputs::read(&data(case).join("inputs.safetensors")).unwrap();
    let reference = format::read(data(case).join("repr")).unwrap();
    Case {
        model,
        inputs,
        reference,
    }
}

/// Named so that the order in which two frameworks pass keyword arguments does not matter.
fn input_tensors(node: &Node) -> (Vec<&TensorRecord>, BTreeMap<String, Vec<&TensorRecord>>) {
    let inputs = node.inputs.as_ref().unwrap();
    let named = inputs
        .kwargs
        .iter()
        .map(|(name, value)| (name.clone(), value.tensors()));
    (
        inputs.args.iter().flat_map(Value::tensors).collect(),
        named.filter(|(_, tensors)| !tensors.is_empty()).collect(),
    )
}

/// The same tensors in one list, positional ones first.
fn flat<'t>(
    inputs: &(
        Vec<&'t TensorRecord>,
        BTreeMap<String, Vec<&'t TensorRecord>>,
    ),
) -> Vec<&'t TensorRecord> {
    inputs
        .0
        .iter()
        .chain(inputs.1.values().flatten())
        .copied()
        .collect()
}

/// `tensor(-8.9514e-01)` as (-89514, -1), so that one in the last digit is 1.
fn digits(text: &str) -> Option<(i64, i32)> {
    let number = text.strip_prefix("tensor(")?.split([')', ',']).next()?;
    let (mantissa, exponent) = number.split_once('e')?;
    Some((
        mantissa.replace('.', "").parse().ok()?,
        exponent.parse().ok()?,
    ))
}

fn same_or_last_digit(ours: &str, theirs: &str) -> bool {
    if ours == theirs {
        return true;
    }
    let (Some((a, a_exponent)), Some((b, b_exponent))) = (digits(ours), digits(theirs)) else {
        return false;
    };
    let suffix = |text: &str| text.split_once(',').map(|(_, rest)| rest.to_owned());
    a_exponent == b_exponent && (a - b).abs() <= 1 && suffix(ours) == suffix(theirs)
}

fn check_statistics(path: &str, ours: &TensorRecord, theirs: &TensorRecord) {
    assert_eq!(
        (&ours.shape, &ours.dtype),
        (&theirs.shape, &theirs.dtype),
        "{path}"
    );
    match (&ours.printed, &theirs.printed) {
        (Some(ours), Some(theirs)) => {
            let pairs = [
                (&ours.std, &theirs.std),
                (&ours.min, &theirs.min),
                (&ours.max, &theirs.max),
            ];
            for (ours, theirs) in pairs {
                assert!(
                    same_or_last_digit(ours, theirs),
                    "{path}: {ours} is not PyTorch's {theirs}"
                );
            }
            assert!(
                same_or_last_digit(&ours.mean, &theirs.mean) || cancels(theirs),
                "{path}: the mean {} is not PyTorch's {}",
                ours.mean,
                theirs.mean
            );
        }
        (None, None) => {}
        (ours, theirs) => panic!("{path}: {ours:?} against {theirs:?}"),
    }
}

/// Whether the printed mean's last digits are the rounding of PyTorch's f32 sum: its terms are a
/// thousand times larger than what remains of them. One such tensor is in the data, Qwen3's
/// `layers.1.self_attn.k_norm`; `check_values` compares the exact means of all.
fn cancels(printed: &Printed) -> bool {
    let number = |text: &str| -> f64 {
        let inner = text
            .strip_prefix("tensor(")
            .unwrap()
            .split([')', ','])
            .next();
        inner.unwrap().parse().unwrap()
    };
    number(&printed.mean).abs() < 1e-3 * number(&printed.std)
}

/// Paths, order, shapes, dtypes and printed statistics.
fn check_tree(ours: &Trace, theirs: &Trace, statistics: bool) {
    let (ours, theirs) = (ours.calls(), theirs.calls());
    let paths =
        |nodes: &[&Node]| -> Vec<String> { nodes.iter().map(|node| node.path.clone()).collect() };
    assert_eq!(paths(&ours), paths(&theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let (our_inputs, their_inputs) = (input_tensors(ours), input_tensors(theirs));
        let (our_flat, their_flat) = (flat(&our_inputs), flat(&their_inputs));
        // A module of one of our libraries is called by position where Python names an argument.
        assert_eq!(our_flat.len(), their_flat.len(), "inputs of {}", ours.path);
        for (ours_tensor, theirs_tensor) in our_flat.iter().zip(&their_flat) {
            assert_eq!(ours_tensor.shape, theirs_tensor.shape, "{}", ours.path);
            if statistics {
                check_statistics(&ours.path, ours_tensor, theirs_tensor);
            }
        }
        if !theirs.children.is_empty() {
            let names = |inputs: &BTreeMap<String, Vec<&TensorRecord>>| {
                inputs.keys().cloned().collect::<Vec<_>>()
            };
            assert_eq!(
                names(&our_inputs.1),
                names(&their_inputs.1),
                "named inputs of {}",
                ours.path
            );
            assert_eq!(
                our_inputs.0.len(),
                their_inputs.0.len(),
                "positional inputs of {}",
                ours.path
            );
            continue;
        }
        let ours_out = ours.outputs.as_ref().unwrap().tensors();
        let theirs_out = theirs.outputs.as_ref().unwrap().tensors();
        assert_eq!(ours_out.len(), theirs_out.len(), "outputs of {}", ours.path);
        for (ours_tensor, theirs_tensor) in ours_out.iter().zip(&theirs_out) {
            assert_eq!(
                (&ours_tensor.shape, &ours_tensor.dtype),
                (&theirs_tensor.shape, &theirs_tensor.dtype)
            );
            if statistics {
                check_statistics(&ours.path, ours_tensor, theirs_tensor);
            }
        }
    }
}

fn numbers(dtype: &DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F32 => bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f64::from(f32::from_le_bytes(*b)))
            .collect(),
        DType::BF16 => bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| half::bf16::from_le_bytes(*b).to_f64())
            .collect(),
        DType::I64 => bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| i64::from_le_bytes(*b) as f64)
            .collect(),
        DType::Bool => bytes.iter().map(|b| f64::from(*b)).collect(),
        dtype => panic!("no reference tensor is {dtype}"),
    }
}

fn relative_l2(ours: &[f64], theirs: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut ours.iter().zip(theirs).map(|(a, b)| a - b));
    if apart == 0.0 {
        0.0
    } else {
        apart / norm(&mut theirs.iter().copied())
    }
}

/// Every tensor file of the run beside PyTorch's file of the same name.
fn check_values(case: &str, folder: &Path, trace: &Trace, tolerance: f64) {
    let bytes = std::fs::read(data(case).join("tensors.safetensors")).unwrap();
    let reference = SafeTensors::deserialize(&bytes).unwrap();
    let reader = DumpReader::new(folder);
    let mut compared = 0;
    for node in trace.calls() {
        let inputs = input_tensors(node);
        let all = flat(&inputs)
            .into_iter()
            .chain(node.outputs.iter().flat_map(Value::tensors));
        for tensor in all {
            let Some(TensorValue::File(file)) = &tensor.value else {
                panic!("{} has no file", node.path)
            };
            // Positional against named: the rotary embedding of Llama, compared by its statistics.
            let Ok(theirs) = reference.tensor(file.trim_end_matches(".safetensors")) else {
                continue;
            };
            let ours = reader.read(file).unwrap();
            assert_eq!(ours.shape, theirs.shape(), "{file}");
            let apart = relative_l2(
                &numbers(&ours.dtype, &ours.bytes),
                &numbers(&ours.dtype, theirs.data()),
            );
            if ours.dtype == DType::F32 {
                let mean = |bytes: &[u8]| {
                    let values = numbers(&DType::F32, bytes);
                    let mean = values.iter().sum::<f64>() / values.len() as f64;
                    format!("tensor({})", torch_repr::scientific(mean))
                };
                let (ours, theirs) = (mean(&ours.bytes), mean(theirs.data()));
                assert!(
                    same_or_last_digit(&ours, &theirs),
                    "{file}: the exact mean {ours} is not PyTorch's {theirs}"
                );
            }
            assert!(apart <= tolerance, "{file} is {apart:e} from PyTorch's");
            compared += 1;
        }
    }
    let expected = reference.names().len();
    assert!(
        compared + 2 >= expected,
        "{compared} of PyTorch's {expected} tensors were seen"
    );
}

fn check(case: &str, tolerance: f64, statistics: bool) {
    let Case {
        model,
        inputs,
        reference,
    } = load(case, &data(case).join("checkpoint"));
    let folder = tempfile::tempdir().unwrap();
    let printed = folder.path().join("printed");
    let trace = traced(&model, &inputs, Dump::Repr, &printed);
    check_tree(&trace, &reference, statistics);
    // What was written reads back as the same tree.
    let json = printed.join(format!("{}_debug_tree_FULL_TENSORS.json", trace.name));
    check_tree(&format::read(&json).unwrap(), &reference, statistics);
    assert_eq!(format::read(&printed).unwrap(), trace);

    let files = folder.path().join("files");
    let trace = traced(&model, &inputs, Dump::Safetensors, &files);
    check_values(case, &files, &trace, tolerance);

    let bits = |outputs: models::ModelOutputs| -> Vec<Vec<u8>> {
        outputs
            .to_named_data()
            .unwrap()
            .into_iter()
            .map(|(_, data)| data.as_bytes().to_vec())
            .collect()
    };
    let untraced = bits(model.forward(&inputs).unwrap());
    let builder = Session::builder(folder.path().join("again")).dump(Dump::Safetensors);
    let session = model.start(builder).unwrap();
    let traced = bits(session.run(|| model.forward(&inputs)).unwrap());
    assert!(!untraced.is_empty());
    assert_eq!(untraced, traced, "tracing changed the result");
}

#[test]
fn llama_in_f32_is_pytorchs() {
    check("llama_f32", 1e-5, true);
}

#[test]
fn bert_in_f32_is_pytorchs() {
    check("bert_f32", 1e-5, true);
}

#[test]
fn qwen3_in_f32_is_pytorchs() {
    check("qwen3_embed_f32", 1e-5, true);
}

#[test]
fn llama_in_bf16_is_pytorchs() {
    check("llama_bf16", 1e-2, true);
}

/// The real all-MiniLM-L6-v2; `scripts/fetch-minilm.sh` brings its weights.
#[test]
fn minilm_is_pytorchs() {
    let checkpoint = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/downloads/minilm");
    if !checkpoint.join("model.safetensors").is_file() {
        eprintln!("skipped: run scripts/fetch-minilm.sh to bring the model");
        return;
    }
    let Case {
        model,
        inputs,
        reference,
    } = load("minilm", &checkpoint);
    let folder = tempfile::tempdir().unwrap();
    let trace = traced(&model, &inputs, Dump::Repr, folder.path());
    check_tree(&trace, &reference, true);
}

#[test]
fn one_in_the_last_digit_is_told_from_more() {
    assert!(same_or_last_digit(
        "tensor(1.0000e+00)",
        "tensor(1.0001e+00)"
    ));
    assert!(!same_or_last_digit(
        "tensor(1.0000e+00)",
        "tensor(1.0002e+00)"
    ));
    assert!(!same_or_last_digit(
        "tensor(1.0000e+00)",
        "tensor(1.0000e+01)"
    ));
    assert!(!same_or_last_digit(
        "tensor(1.0000e+00)",
        "tensor(1.0000e+00, dtype=torch.bfloat16)"
    ));
}
