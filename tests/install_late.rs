//! `install()` after a device was at work: an error, and a session that goes on without it.
//!
//! Runs on a software Vulkan device or on the machine's own; skipped without any adapter.

use burn::tensor::{Device, DeviceKind, Tensor};
use burnscope::{InstallError, Session};

struct Doubled;

#[burnscope::trace]
impl Doubled {
    fn forward(&self, x: Tensor<1>) -> Tensor<1> {
        x * 2.0
    }
}

/// One test alone: what a device did before holds for the whole process.
#[test]
fn installing_too_late_says_what_to_do_and_breaks_nothing() {
    if cubecl::Device::wgpu(cubecl::wgpu::WgpuDeviceKind::DefaultDevice).is_err() {
        eprintln!("skipped: this machine has no adapter (install mesa-vulkan-drivers for one)");
        return;
    }
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    let x = Tensor::<1>::ones([4], &device) + 1.0;
    assert_eq!(x.to_data().as_slice::<f32>().unwrap(), [2.0; 4]);

    // The second call has no more luck than the first.
    for _ in 0..2 {
        let Err(error) = burnscope::install() else {
            panic!("it is too late")
        };
        assert!(matches!(error, InstallError::TooLate), "{error:?}");
        let message = error.to_string();
        assert!(message.contains("too late"), "{message}");
        assert!(message.contains("at the top of main"), "{message}");
    }

    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    let output = session.run(|| Doubled.forward(x));
    let trace = session.finish().unwrap();
    assert_eq!(output.into_data().as_slice::<f32>().unwrap(), [4.0; 4]);
    let tensor = trace.roots[0].outputs.as_ref().unwrap().tensors()[0];
    assert_eq!(tensor.summary.as_ref().unwrap().mean, Some(4.0));
    assert_eq!(trace.ops, []);
    assert!(trace.notes[0].contains("burnscope::install()"));
}
