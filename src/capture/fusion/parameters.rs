//! The walk through a model's parameters on CubeCL devices.

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Bool, Device, Int, Tensor},
};

use super::handle::{FusionTensor, fusion_tensor};

/// Calls `each` with every parameter on a CubeCL device and its path, initialising lazy ones there;
/// returns how many those were.
pub(crate) fn parameters<M: Module>(model: &M, each: impl FnMut(&str, &FusionTensor)) -> usize {
    let mut walk = Walk {
        path: Vec::new(),
        initialised: 0,
        each,
    };
    model.visit(&mut walk);
    walk.initialised
}

struct Walk<F> {
    path: Vec<String>,
    initialised: usize,
    each: F,
}

/// Whether operations on that device go through Burn's `Fusion`.
fn is_cube(device: &Device) -> bool {
    format!("{:?}", device.as_dispatch()).contains("Cube(")
}

macro_rules! visit_parameters {
    ($($visit:ident $kind:ty),*) => {$(
        fn $visit<const D: usize>(&mut self, param: &Param<Tensor<D, $kind>>) {
            let cube = is_cube(&param.lazy_device());
            self.initialised += usize::from(cube && !param.is_initialized());
            if cube
                && let Some(tensor) = fusion_tensor(&param.val())
            {
                (self.each)(&self.path.join("."), &tensor);
            }
        }
    )*};
}

impl<F: FnMut(&str, &FusionTensor)> ModuleVisitor for Walk<F> {
    visit_parameters!(visit_float burn::tensor::Float, visit_int Int, visit_bool Bool);

    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}
