//! The fuser that takes one operation at a time in place of Burn's own, and lets it be seen.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

use burn_cubecl::{
    CubeDevice,
    fusion::{
        self, CubeFuser, CubeFusionHandle, CubeOptimization, FallbackOperation, FusedOperation,
        OptimizationProvider, RegistryError,
    },
};
use burn_fusion::{ExecutionError, FuserProperties, FuserStatus, OperationFuser, stream::Context};
use burn_ir::{OperationIr, TensorError};

use super::{clock, observer, registry};

static INSTALLED: Mutex<bool> = Mutex::new(false);

/// Whether operations are seen one by one in this process.
pub(crate) fn installed() -> bool {
    *INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes Burn's own fusers off and puts ours in; again it does nothing.
///
/// # Errors
/// If a device is at work already: its plans are made.
pub(crate) fn register() -> Result<(), RegistryError> {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // First, since it fails where the others would and changes nothing then.
    fusion::register(OneByOne)?;
    for name in fusion::BUILTIN_NAMES {
        fusion::remove(name)?;
    }
    *installed = true;
    Ok(())
}

struct OneByOne;

impl OptimizationProvider for OneByOne {
    type Operation = SeenOperation;

    fn fuser(&self, device: &CubeDevice) -> CubeFuser {
        clock::device_seen(device);
        CubeFuser::new(OneOperation::default())
    }
}

/// Accepts a single operation of any kind.
#[derive(Clone, Default)]
struct OneOperation {
    taken: bool,
}

impl OperationFuser<CubeOptimization> for OneOperation {
    fn fuse(&mut self, _: &OperationIr) {
        self.taken = true;
    }

    fn finish(&mut self) -> CubeOptimization {
        CubeOptimization::new(SeenOperation)
    }

    fn reset(&mut self) {
        self.taken = false;
    }

    fn status(&self) -> FuserStatus {
        if self.taken {
            FuserStatus::Closed
        } else {
            FuserStatus::Open
        }
    }

    fn properties(&self) -> FuserProperties {
        FuserProperties {
            score: u64::MAX / 2,
            ready: self.taken,
        }
    }

    fn len(&self) -> usize {
        usize::from(self.taken)
    }

    fn clone_dyn(&self) -> Box<dyn OperationFuser<CubeOptimization>> {
        Box::new(self.clone())
    }
}

/// One operation, run by its ordinary kernel.
struct SeenOperation;

impl FusedOperation for SeenOperation {
    const NAME: &'static str = "burnscope";
    type State = ();

    fn num_ops_fused(&self) -> usize {
        1
    }

    fn run(
        &mut self,
        context: &mut Context<CubeFusionHandle>,
        fallback: &dyn Fn(usize) -> Box<dyn FallbackOperation>,
    ) {
        let upcoming = if registry::any() {
            observer::take()
        } else {
            None
        };
        let Some(upcoming) = upcoming else {
            fallback(0).run(context);
            return;
        };
        if let Some(why) = upcoming.recorders.iter().find_map(|(log, _)| log.refusal()) {
            // Burn delivers it where one of the results is read, and runs nothing that needs one.
            let error = TensorError::new(ExecutionError::with_context(why));
            for (_, out) in &upcoming.description.outputs {
                context.handles.set_error(out.id, error.clone());
            }
            return;
        }
        // A fault of ours must not become the operation's: Burn would pass it on to its results.
        let mut noted = Vec::with_capacity(upcoming.recorders.len());
        for (log, place) in &upcoming.recorders {
            let before = catch_unwind(AssertUnwindSafe(|| {
                log.before(&upcoming.description, &context.handles)
            }));
            match before {
                Ok(before) => noted.push((log, *place, before)),
                Err(_) => log.fault(&upcoming.description.name),
            }
        }
        fallback(0).run(context);
        for (log, place, before) in noted {
            let after = catch_unwind(AssertUnwindSafe(|| {
                log.after(&upcoming, place, before, &mut context.handles);
            }));
            if after.is_err() {
                log.fault(&upcoming.description.name);
            }
        }
    }

    fn to_state(&self) {}

    fn from_state(_: &CubeDevice, (): ()) -> Self {
        Self
    }
}
