//! Something to do at a point of a thread's stream, once the work before it is under way.
//!
//! A marker is an operation of Burn's stream without results: it runs on the device's thread in the
//! program's order, whether Burn fuses the operations around it or not.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

use burn_cubecl::fusion::{CubeFusionHandle, FusionCubeRuntime};
use burn_fusion::{
    ExecutionError,
    stream::{Operation, StreamId},
};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};

use super::handle::FusionTensor;

const NAME: &str = "burnscope.marker";

/// What a device's thread does with the handles when it comes to a marker.
pub(super) type Action = Box<dyn FnOnce(&TensorIr, &mut HandleContainer<CubeFusionHandle>) + Send>;

/// Has `action` done when the tensor is there, before anything that this thread asks for later.
pub(super) fn register(tensor: FusionTensor, action: Action) {
    let client = tensor.client.clone();
    let tensor = tensor.into_ir();
    let ir = CustomOpIr::new(NAME, std::slice::from_ref(&tensor), &[]);
    let marker = Marker {
        tensor,
        action: Mutex::new(Some(action)),
    };
    client.register(StreamId::current(), OperationIr::Custom(ir), marker);
}

struct Marker {
    tensor: TensorIr,
    /// Taken when it is done.
    action: Mutex<Option<Action>>,
}

impl fmt::Debug for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marker")
            .field("tensor", &self.tensor)
            .finish_non_exhaustive()
    }
}

impl Operation<FusionCubeRuntime> for Marker {
    fn execute(
        &self,
        handles: &mut HandleContainer<CubeFusionHandle>,
    ) -> Result<(), ExecutionError> {
        let action = self.action.lock().ok().and_then(|mut action| action.take());
        if let Some(action) = action {
            // Nothing that a marker does may disturb the program's own operations; what could not
            // be done shows as a tensor without numbers.
            let _ = catch_unwind(AssertUnwindSafe(|| action(&self.tensor, handles)));
        }
        // The last owner's operation takes the handle with it.
        handles.free(&self.tensor);
        Ok(())
    }
}
