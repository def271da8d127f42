//! Switching on, for a whole process, that operations are seen; and the session that the environment asks for.

use std::{env, path::PathBuf};

use burn::module::Module;

use super::{Dump, Session};
use crate::{format::WriteError, trace::Trace};

/// The variable that names the folder of the process's own session.
const FOLDER: &str = "BURNSCOPE";

/// Why operations cannot be seen, or why the session could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// A device has run something already.
    #[error(
        "burnscope::install() came too late: a device has made its plans already. Call it at the top of \
         main, before the first tensor is made"
    )]
    TooLate,
    /// The folder that `BURNSCOPE` names cannot be used.
    #[error("the session that the environment variable BURNSCOPE asks for cannot start: {0}")]
    Folder(#[from] WriteError),
}

/// Sees to it that every operation of every CubeCL device (CUDA, ROCm, Metal, Vulkan, WebGPU) is seen
/// while a [`Session`] runs. Call it at the top of `main`.
///
/// Burn's own fusers are taken off for the life of the process, so that operations run one by one, each
/// by its ordinary kernel. Devices behind no `Fusion`, as Flex, are not concerned. A second call does
/// nothing but return its own session.
///
/// If the environment variable `BURNSCOPE` names a folder, a session of the whole process begins, too:
/// it records on this thread until the returned value is dropped, and writes into that folder.
/// `BURNSCOPE_DUMP=repr` or `=safetensors` keeps elements as [`Dump`] says.
///
/// # Errors
/// If a device was at work before, or the session cannot start.
///
/// ```no_run
/// # use burn::{module::Module, nn, tensor::{Device, Tensor}};
/// # #[derive(Module, Debug)] struct Net { fc: nn::Linear }
/// # impl Net { fn forward(&self, x: Tensor<2>) -> Tensor<2> { self.fc.forward(x) } }
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let burnscope = burnscope::install()?;
/// #   let device = Device::default();
/// #   let model = Net { fc: nn::LinearConfig::new(2, 2).init(&device) };
/// #   let x = Tensor::<2>::zeros([1, 2], &device);
///     // … load the model, then:
///     burnscope.attach("Net", &model);
///     let output = model.forward(x);
///     Ok(())
/// }
/// ```
pub fn install() -> Result<Installed, InstallError> {
    see_operations()?;
    let session = match env::var_os(FOLDER).filter(|folder| !folder.is_empty()) {
        Some(folder) => {
            let dump = match env::var("BURNSCOPE_DUMP").as_deref() {
                Ok("repr") => Dump::Repr,
                Ok("safetensors") => Dump::Safetensors,
                _ => Dump::None,
            };
            let session = Session::builder(PathBuf::from(folder)).dump(dump).start()?;
            Some(session)
        }
        None => None,
    };
    let entered = session.as_ref().map(Session::stay);
    Ok(Installed {
        _entered: entered,
        session,
    })
}

/// What [`install`] does to the devices, without a look at the environment: for a program whose own
/// sessions are all that is wanted, whatever `BURNSCOPE` says.
///
/// # Errors
/// If a device was at work before.
pub fn see_operations() -> Result<(), InstallError> {
    #[cfg(feature = "fusion")]
    super::fusion::register().map_err(|_| InstallError::TooLate)?;
    Ok(())
}

/// What [`install`] returns: keep it until the end of `main`.
#[must_use = "the session that BURNSCOPE asks for ends when this is dropped"]
pub struct Installed {
    // Dropped before the session.
    _entered: Option<super::session::Stay>,
    session: Option<Session>,
}

impl Installed {
    /// Learns the names of a model's modules and parameters for the process's session, if there is one.
    pub fn attach<M: Module>(&self, name: &str, model: &M) {
        if let Some(session) = &self.session {
            session.attach(name, model);
        }
    }

    /// The session that the environment asked for.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Ends the process's session and returns what it recorded; `None` if the environment asked for
    /// none.
    ///
    /// # Errors
    /// As [`Session::finish`].
    pub fn finish(mut self) -> Result<Option<Trace>, WriteError> {
        self._entered = None;
        self.session.take().map(Session::finish).transpose()
    }
}
