//! Switching on, for a whole process, that operations are seen; and the session that the environment asks for.

use std::{
    cell::RefCell,
    env,
    ffi::OsString,
    fmt,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use burn::module::Module;

use super::{Dump, Session, session::Stay};
use crate::{format::WriteError, trace::Trace};

/// The variable that names the folder of the process's own session.
const FOLDER: &str = "BURNSCOPE";

/// The variable that says what it keeps of the elements.
const DUMP: &str = "BURNSCOPE_DUMP";

/// Why operations cannot be seen, or why the session could not start.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// A device has run something already.
    #[error(
        "burnscope::install() came too late: a device has made its plans already. Call it at the top of \
         main, before the first tensor is made"
    )]
    TooLate,
    /// `BURNSCOPE_DUMP` has a value that it cannot have.
    #[error("BURNSCOPE_DUMP is `{0}`: it can be `none`, `repr` or `safetensors`")]
    Dump(String),
    /// The folder that `BURNSCOPE` names cannot be used.
    #[error("the session that the environment variable BURNSCOPE asks for cannot start: {0}")]
    Folder(#[from] WriteError),
}

/// As it is displayed: `main` prints an error that it returns in this form.
impl fmt::Debug for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Sees to it that every operation of every CubeCL device (CUDA, ROCm, Metal, Vulkan, WebGPU) is seen
/// while a [`Session`] runs. Call it at the top of `main`.
///
/// Burn's own fusers are taken off for the life of the process, so that operations run one by one, each
/// by its ordinary kernel. Devices behind no `Fusion`, as Flex, are not concerned. A second call does
/// nothing.
///
/// If the environment variable `BURNSCOPE` names a folder, there is a session of the whole process, too:
/// it records on this thread from the first [`Installed::attach`] until the value that the first call
/// returned is dropped, and writes into that folder. `BURNSCOPE_DUMP=repr` or `=safetensors` keeps
/// elements as [`Dump`] says.
///
/// # Errors
/// If a device was at work before, `BURNSCOPE_DUMP` is none of these, or the session cannot start.
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
    let folder = env::var_os(FOLDER).filter(|folder| !folder.is_empty());
    let session = match folder {
        // One process, one session: a second one would write over the first one's files.
        Some(folder) if !AMBIENT.swap(true, Ordering::Relaxed) => Some(ambient(folder)?),
        _ => None,
    };
    Ok(Installed {
        entered: RefCell::new(None),
        session,
    })
}

/// Whether the process's session was started.
static AMBIENT: AtomicBool = AtomicBool::new(false);

fn ambient(folder: OsString) -> Result<Session, InstallError> {
    let dump = match env::var_os(DUMP) {
        None => Dump::None,
        Some(dump) => match dump.to_str() {
            Some("" | "none") => Dump::None,
            Some("repr") => Dump::Repr,
            Some("safetensors") => Dump::Safetensors,
            _ => return Err(InstallError::Dump(dump.to_string_lossy().into_owned())),
        },
    };
    // The program's own use of gradients must go on.
    let session = Session::builder(PathBuf::from(folder))
        .dump(dump)
        .gradients(true);
    Ok(session.start()?)
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
    entered: RefCell<Option<Stay>>,
    session: Option<Session>,
}

impl Installed {
    /// Learns the names of a model's modules and parameters for the process's session, if there is
    /// one, and has it record from now on: what loads the model is not of interest.
    pub fn attach<M: Module>(&self, name: &str, model: &M) {
        if let Some(session) = &self.session {
            session.attach(name, model);
            let mut entered = self.entered.borrow_mut();
            entered.get_or_insert_with(|| session.stay());
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
        self.leave();
        self.session.take().map(Session::finish).transpose()
    }

    fn leave(&self) {
        let entered = self.entered.borrow_mut().take();
        if let (None, Some(session)) = (&entered, &self.session) {
            session.note("no model was attached, so nothing was recorded: call attach on what install returns");
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.leave();
        }
    }
}
