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
    burnscope.attach("Net", &net);
    for step in 0..3 {
        let x = Tensor::<2>::ones([2, 4], &device) * step as f32;
        net.forward(x).into_data();
    }
}

#[test]
fn a_program_that_only_installs_and_attaches_gets_a_module_tree() {
    let Some(device) = device() else { return };
    let kind = if format!("{device:?}").contains("Cpu") {
        "cpu"
    } else {
        "default"
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("trace");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["ambient::program", "--exact", "--ignored"])
        .env("BURNSCOPE", &out)
        .env("DEVICE_KIND", kind)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
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
