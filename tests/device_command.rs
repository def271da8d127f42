//! `burnscope trace` and `burnscope demo` on a GPU device, run as a user runs them.
//!
//! A software Vulkan device (Debian's `mesa-vulkan-drivers`) will do. Without any adapter each test
//! prints that it is skipped.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use burnscope::{
    format,
    summary::{DType, Number, Summary},
    trace::{Attribution, Inputs, Node, TensorRecord, TensorValue, Trace, Value},
};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces/llama_f32")
}

fn burnscope(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burnscope"));
    command.args(arguments).env("NO_COLOR", "1");
    command.env_remove("BURNSCOPE");
    // Without it Vulkan drivers complain on standard error.
    command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    command
}

/// `burnscope trace` of the small Llama into `out`.
fn trace_llama(out: &Path, arguments: &[&str]) -> Command {
    let mut command = burnscope(&["trace", "--checkpoint"]);
    command
        .arg(data().join("checkpoint"))
        .arg("--inputs")
        .arg(data().join("inputs.safetensors"))
        .arg("--out")
        .arg(out)
        .args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn succeed(mut command: Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    assert_eq!(status.code(), Some(0), "{}{}", text(&stdout), text(&stderr));
    assert_eq!(text(&stderr), "");
    text(&stdout)
}

fn has_adapter() -> bool {
    let found = cubecl::Device::wgpu(cubecl::wgpu::WgpuDeviceKind::DefaultDevice).is_ok();
    if !found {
        eprintln!("skipped: this machine has no adapter (install mesa-vulkan-drivers for one)");
    }
    found
}

fn paths(trace: &Trace) -> Vec<&str> {
    trace
        .calls()
        .iter()
        .map(|node| node.path.as_str())
        .collect()
}

fn tensors(node: &Node) -> Vec<&TensorRecord> {
    let inputs = node.inputs.iter().flat_map(Inputs::values);
    let values = inputs.chain(node.outputs.iter());
    values.flat_map(Value::tensors).collect()
}

fn op_count(trace: &Trace) -> usize {
    trace.ops.len()
        + trace
            .calls()
            .iter()
            .map(|node| node.ops.len())
            .sum::<usize>()
}

/// Files in a folder whose name ends so.
fn count(folder: &Path, suffix: &str) -> usize {
    std::fs::read_dir(folder)
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_str().unwrap().ends_with(suffix)
        })
        .count()
}

#[test]
fn the_demo_agrees_with_pytorch() {
    if !has_adapter() {
        return;
    }
    let printed = succeed(burnscope(&["demo", "--device", "wgpu"]));
    assert!(
        printed.contains("All 100 tensors agree with PyTorch"),
        "{printed}"
    );
}

#[test]
fn a_trace_has_its_three_files_and_every_operation() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let printed = succeed(trace_llama(folder.path(), &["--device", "wgpu", "--ops"]));
    assert!(printed.contains("SwapDims"), "{printed}");
    assert!(!printed.contains("note:"), "{printed}");
    assert_eq!(count(folder.path(), "_debug_tree_FULL_TENSORS.json"), 1);
    assert_eq!(count(folder.path(), "_debug_tree_SUMMARY.json"), 1);
    assert_eq!(count(folder.path(), ".burnscope.jsonl"), 1);
    assert_eq!(count(folder.path(), ".safetensors"), 0);
    let trace = format::read(folder.path()).unwrap();
    assert!(trace.complete);
    let matmuls = trace.calls();
    let matmuls = matmuls.iter().flat_map(|node| &node.ops);
    assert!(matmuls.filter(|op| op.name == "Matmul").count() > 10);
    for node in trace.calls() {
        for tensor in tensors(node) {
            let lines = matches!(tensor.value, Some(TensorValue::Lines(_)));
            assert!(lines, "{} has no printed elements", node.path);
        }
    }
}

#[test]
fn every_tensor_of_a_module_gets_a_file() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--device", "wgpu", "--dump", "safetensors", "--quiet"];
    let printed = succeed(trace_llama(folder.path(), &arguments));
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let trace = format::read(folder.path()).unwrap();
    let mut files = 0;
    for node in trace.calls() {
        for tensor in tensors(node) {
            let Some(TensorValue::File(file)) = &tensor.value else {
                panic!("{} has no file", node.path)
            };
            assert!(folder.path().join(file).is_file(), "{file}");
            files += 1;
        }
    }
    assert!(files > 50, "{files}");
}

fn number(number: &Option<Number>) -> Option<f64> {
    number.as_ref().map(|number| match number {
        Number::Int(value) => *value as f64,
        Number::UInt(value) => *value as f64,
        Number::Float(value) => *value,
    })
}

/// As far apart as two orders of summation make two devices' results.
fn assert_close(path: &str, ours: &Summary, theirs: &Summary) {
    let scale = theirs.abs_max.unwrap_or(0.0);
    let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-5 * scale.max(b.abs()),
        (a, b) => a == b,
    };
    let counts = |of: &Summary| (of.count, of.nan, of.pos_inf, of.neg_inf);
    assert_eq!(counts(ours), counts(theirs), "{path}");
    let agree = close(ours.mean, theirs.mean)
        && close(ours.std, theirs.std)
        && close(number(&ours.min), number(&theirs.min))
        && close(number(&ours.max), number(&theirs.max))
        && close(ours.abs_max, theirs.abs_max)
        && (ours.l2 - theirs.l2).abs() <= 1e-5 * theirs.l2;
    assert!(agree, "{path}: {ours:?} is not {theirs:?}");
}

#[test]
fn a_gpu_device_shows_what_the_cpu_shows() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [flex, wgpu, fused] = ["flex", "wgpu", "fused"].map(|name| folder.path().join(name));
    succeed(trace_llama(&flex, &[]));
    succeed(trace_llama(&wgpu, &["--device", "wgpu"]));
    let printed = succeed(trace_llama(&fused, &["--device", "wgpu", "--fusion"]));
    assert!(
        printed.contains("note: Burn's own fusion was on"),
        "{printed}"
    );
    let [flex, wgpu, fused] = [flex, wgpu, fused].map(|folder| format::read(folder).unwrap());
    assert!(op_count(&wgpu) > 100);
    assert_eq!(op_count(&fused), 0);
    assert_eq!(fused.notes.len(), 1);
    for trace in [&wgpu, &fused] {
        assert_eq!(paths(trace), paths(&flex));
        for (ours, theirs) in trace.calls().into_iter().zip(flex.calls()) {
            let (ours, theirs) = (tensors(ours), (theirs.path.as_str(), tensors(theirs)));
            let (path, theirs) = theirs;
            assert_eq!(ours.len(), theirs.len(), "{path}");
            for (ours, theirs) in ours.into_iter().zip(theirs) {
                assert_eq!(ours.shape, theirs.shape, "{path}");
                // A device may have no integers of 64 bits.
                let integers = matches!(theirs.dtype, DType::I64);
                assert!(integers || ours.dtype == theirs.dtype, "{path}");
                let summary = ours.summary.as_ref();
                let summary = summary.unwrap_or_else(|| panic!("{path}: {ours:?}"));
                assert_close(path, summary, theirs.summary.as_ref().unwrap());
            }
        }
    }
}

#[test]
fn modules_are_concluded_where_annotations_are_ignored() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [exact, concluded] = ["exact", "concluded"].map(|name| folder.path().join(name));
    succeed(trace_llama(&exact, &["--device", "wgpu"]));
    let arguments = ["--device", "wgpu", "--ignore-annotations"];
    succeed(trace_llama(&concluded, &arguments));
    let [exact, concluded] = [exact, concluded].map(|folder| format::read(folder).unwrap());
    assert_eq!(paths(&concluded), paths(&exact));
    let inferred = |node: &&Node| node.attribution == Attribution::Inferred;
    assert!(concluded.calls().iter().all(inferred));
    assert!(!exact.calls().iter().any(inferred));
}

/// `BURNSCOPE` asks for a session of the user's own program.
#[test]
fn the_environment_of_another_program_changes_nothing() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [plain, asked, other] = ["plain", "asked", "other"].map(|name| folder.path().join(name));
    succeed(trace_llama(&plain, &["--device", "wgpu"]));
    let mut command = trace_llama(&asked, &["--device", "wgpu"]);
    command.env("BURNSCOPE", &other);
    succeed(command);
    assert!(!other.exists());
    let [plain, asked] = [plain, asked].map(|folder| format::read(folder).unwrap());
    assert_eq!(op_count(&asked), op_count(&plain));
    assert_eq!(paths(&asked), paths(&plain));
}

fn fail(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
    let message = text(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn a_machine_without_an_adapter_is_told_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    for mut command in [
        burnscope(&["demo", "--device", "wgpu"]),
        trace_llama(folder.path(), &["--device", "wgpu"]),
        trace_llama(folder.path(), &["--device", "wgpu", "--fusion"]),
    ] {
        // Vulkan's loader looks for drivers here alone then.
        let nothing = folder.path().join("no_driver.json");
        command.env("VK_DRIVER_FILES", &nothing);
        command.env("VK_ICD_FILENAMES", &nothing);
        command.env("__EGL_VENDOR_LIBRARY_FILENAMES", &nothing);
        if cfg!(not(target_os = "linux")) {
            eprintln!("skipped: only Vulkan's drivers can be hidden");
            return;
        }
        let message = fail(command);
        assert!(message.contains("mesa-vulkan-drivers"), "{message}");
    }
}

#[test]
fn a_device_that_does_not_start_is_an_error() {
    if !has_adapter() {
        return;
    }
    let mut command = burnscope(&["demo", "--device", "wgpu"]);
    command.env("CUBECL_WGPU_DEFAULT_DEVICE", "NoSuchKind(0)");
    let message = fail(command);
    assert!(
        message.contains("the wgpu device does not start"),
        "{message}"
    );
}

#[test]
fn what_only_a_gpu_has_is_refused_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["--fusion", "--ignore-annotations"] {
        let message = fail(trace_llama(folder.path(), &[flag]));
        assert!(message.contains(flag), "{message}");
        assert!(message.contains("--device wgpu"), "{message}");
    }
    #[cfg(not(feature = "cuda"))]
    {
        let message = fail(trace_llama(folder.path(), &["--device", "cuda"]));
        assert!(message.contains("--features cuda"), "{message}");
    }
}

/// Two processes, one with Burn's own fusion on, compared for real.
#[test]
fn verify_says_what_tracing_and_what_burns_fusion_changes() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let printed = succeed(trace_llama(
        &folder.path().join("trace"),
        &["--device", "wgpu", "--verify"],
    ));
    let said = |what: &str| {
        let line = printed.lines().find(|line| line.contains(what));
        line.unwrap_or_else(|| panic!("{what}: {printed}"))
    };
    said("verified: ");
    let fusion = said("Burn's fusion");
    assert!(!fusion.contains("could not be compared"), "{fusion}");
}
