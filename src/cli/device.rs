//! The device that the user names, opened, or an error that says what is missing.

use std::error::Error;

use burn::tensor::Device;
use clap::ValueEnum;

/// A kind of device that Burn can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceName {
    /// The CPU, in pure Rust
    Flex,
    /// A GPU through Vulkan, Metal, DirectX or WebGPU, or a software Vulkan device
    Wgpu,
    /// An NVIDIA GPU
    Cuda,
}

/// What a device that fuses operations does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// It runs them one by one, and they can be seen.
    Seen,
    /// It fuses them as it does without burnscope.
    Fused,
}

impl DeviceName {
    /// Whether its operations can be seen one by one.
    pub fn has_operations(self) -> bool {
        match self {
            Self::Flex => false,
            Self::Wgpu | Self::Cuda => true,
        }
    }

    /// Opens the device. Before the first of a process: what happens to operations is settled then.
    ///
    /// # Errors
    /// If this program was built without it, or the machine has none.
    pub fn open(self, operations: Operations) -> Result<Device, Box<dyn Error>> {
        if operations == Operations::Seen && self.has_operations() {
            // Not `install()`: the session that BURNSCOPE asks for is that of the user's own program.
            burnscope::capture::see_operations()?;
        }
        match self {
            #[cfg(feature = "flex")]
            Self::Flex => Ok(Device::flex()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => {
                use burn::tensor::DeviceKind;
                use cubecl::device::WgpuDeviceKind;
                // Asks the system without starting the device.
                cubecl::Device::wgpu(WgpuDeviceKind::DefaultDevice).map_err(|_| {
                    "no adapter for the wgpu device: install a driver for the GPU (Vulkan, Metal or \
                     DirectX 12), or a software one (Debian and Ubuntu: mesa-vulkan-drivers)"
                })?;
                started(self, Device::wgpu(DeviceKind::DefaultDevice))
            }
            #[cfg(feature = "cuda")]
            Self::Cuda => started(self, Device::cuda(0)),
            #[allow(unreachable_patterns)]
            missing => {
                let name = missing.name();
                Err(format!(
                    "this burnscope was built without the {name} device; install one that has it with \
                     `cargo install --path . --features {name}`, or run it with \
                     `cargo run --features {name} --`"
                )
                .into())
            }
        }
    }

    #[allow(
        dead_code,
        reason = "not every set of features has a device that can be missing"
    )]
    fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
    }
}

/// The device after its first work: Burn has no other way to say that one cannot be used than to panic.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn started(name: DeviceName, device: Device) -> Result<Device, Box<dyn Error>> {
    use burn::tensor::Tensor;

    super::catch::catch(|| Tensor::<1>::zeros([1], &device).into_data())
        .map_err(|why| format!("the {} device does not start: {why}", name.name()))?;
    Ok(device)
}
