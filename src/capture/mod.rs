//! The stage where tensors are seen: sessions, module scopes, and the reading of Burn's tensors.
//!
//! It decides what is recorded and when; it computes no statistics and formats no files itself.

mod dump;
mod finish;
#[cfg(feature = "fusion")]
mod fusion;
#[cfg(any(feature = "fusion", test))]
mod infer;
mod install;
mod judge;
#[cfg(feature = "fusion")]
mod late;
mod names;
mod place;
pub(crate) mod probe;
mod record;
mod scope;
mod session;
mod settings;
mod tensor;
mod value;
mod verify;
mod watch;

pub use dump::Dump;
pub use install::{InstallError, Installed, install, see_operations};
pub use scope::backward;
pub use session::{Session, SessionGuard};
pub use settings::SessionBuilder;
pub use value::{Captured, Recorder, Traced};
pub use verify::{Comparison, Difference, Differs, Verification};
pub use watch::{NonFinite, Watch};

/// Whether Burn's own fusers are off, so that operations run one by one.
fn fusion_off() -> bool {
    #[cfg(feature = "fusion")]
    return fusion::installed();
    #[cfg(not(feature = "fusion"))]
    false
}

/// What the code written by `#[burnscope::trace]` calls. Not for use by hand: it changes freely.
#[doc(hidden)]
pub mod private {
    pub use super::probe::{ModuleProbe, ValueProbe};
    pub use super::scope::{Scope, active, enter, enter_call, enter_scope, in_scope, once};
    pub use super::value::Literally;
    /// The traits whose methods choose between kinds of module and kinds of value.
    pub mod probes {
        pub use crate::capture::probe::{
            AnyModule as _, AnyPointer as _, AnyValue as _, DebugValue as _, KnownModule as _,
            ModulePointer as _, TracedValue as _,
        };
    }
}
