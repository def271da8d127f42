//! The session of a whole process, asked for by the environment.

use std::process::Command;

use burn::{
    module::Module,
    nn,
    tensor::{Device, DeviceKind, Tensor},
};
use burnscope::{format, trace::Attribution};

use super::support::device;

#[derive(Module, Debug)]
struct Net {
    fc: nn::Linear,
    norm: nn::RmsNorm,
}

impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.norm.forward(self.fc.forward(x))
    }
}

/// A program as its author wrote it, but for two lines.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn program() {
    let burnscope = burnscope::install().unwrap();
    let device = match std::env::var("DEVICE_KIND").as_deref() {
        Ok("cpu") => Device::wgpu(DeviceKind::Cpu),
        _ => Device::wgpu(DeviceKind::DefaultDevice),
    };
    let net = Net {
        fc: nn::LinearConfig::new(4, 4).init(&device),
        norm: nn::RmsNormConfig::new(4).init(&device),
    };
    // As in loading a checkpoint.
    let mut loaded = Tensor::<1>::zeros([8], &device);
    for _ in 0..1500 {
        loaded = loaded + 1.0;
    }
    loaded.into_data();
    burnscope.attach("Net", &net);
    for step in 0..3 {
        let x = Tensor::<2>::ones([2, 4], &device) * step as f32;
        net.forward(x).into_data();
    }
}

#[test]
fn a_program_that_only_installs_and_attaches_gets_a_module_tree() {
    let Some(folder) = in_a_process_of_its_own("ambient::program", true) else {
        return;
    };
    let out = folder.path();
    let trace = format::read(out.join("Net.burnscope.jsonl")).unwrap();
    assert!(trace.complete);
    let steps: Vec<(u64, &str)> = trace
        .roots
        .iter()
        .map(|root| (root.step, root.path.as_str()))
        .collect();
    assert_eq!(
        steps,
        [(0, "Net"), (1, "Net"), (2, "Net")],
        "{:?}",
        trace.notes
    );
    for root in &trace.roots {
        assert_eq!(root.attribution, Attribution::Inferred);
        let children: Vec<&str> = root
            .children
            .iter()
            .map(|child| child.path.as_str())
            .collect();
        assert_eq!(children, ["Net.fc", "Net.norm"]);
    }
    // The parameters' initialisation is no part of the program's run.
    assert!(trace.ops.iter().all(|op| op.name != "Random"));
    // What was done between the calls belongs to none of them.
    assert!(trace.ops.iter().any(|op| op.name == "MulScalar"));
    assert!(out.join("Net_debug_tree_SUMMARY.json").exists());
}

/// A program that dies without a word once the record tells of its operations.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn dying() {
    let burnscope = burnscope::install().unwrap();
    let device = match std::env::var("DEVICE_KIND").as_deref() {
        Ok("cpu") => Device::wgpu(DeviceKind::Cpu),
        _ => Device::wgpu(DeviceKind::DefaultDevice),
    };
    let record =
        std::path::Path::new(&std::env::var_os("BURNSCOPE").unwrap()).join("Net.burnscope.jsonl");
    let session = burnscope.session().unwrap();
    let net = Net {
        fc: nn::LinearConfig::new(4, 4).init(&device),
        norm: nn::RmsNormConfig::new(4).init(&device),
    };
    burnscope.attach("Net", &net);
    loop {
        session.run(|| net.forward(Tensor::<2>::ones([2, 4], &device)));
        let told = std::fs::read_to_string(&record).unwrap_or_default();
        if told.contains("\"kind\":\"op\"") {
            std::process::abort();
        }
    }
}

#[test]
fn a_crash_leaves_the_operations_that_were_told_of() {
    let Some(folder) = in_a_process_of_its_own("ambient::dying", false) else {
        return;
    };
    let trace = format::read(folder.path().join("Net.burnscope.jsonl")).unwrap();
    assert!(!trace.complete);
    assert!(trace.roots.is_empty());
    assert_eq!(trace.ops[0].name, "Ones");
    assert_eq!(trace.ops[1].name, "Matmul");
    assert_eq!(
        trace.ops[1].inputs[1].parameter.as_deref(),
        Some("Net.fc.weight")
    );
    let summary = trace.ops[1].outputs[0].tensor.summary.as_ref().unwrap();
    assert_eq!(summary.count, 8);
    assert!(trace.ops.iter().all(|op| op.backward.eq(&false)));
}

/// Runs an ignored test of this file; its trace is in the folder.
fn in_a_process_of_its_own(test: &str, succeeds: bool) -> Option<tempfile::TempDir> {
    let device = device()?;
    let kind = if format!("{device:?}").contains("Cpu") {
        "cpu"
    } else {
        "default"
    };
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored"])
        .env("BURNSCOPE", folder.path())
        .env("DEVICE_KIND", kind)
        .output()
        .unwrap();
    assert_eq!(output.status.success(), succeeds, "{output:?}");
    Some(folder)
}
