//! What can be learnt of an expression whose type only the compiler knows, by method resolution.
//!
//! The macro writes `(&&&ModuleProbe(&x)).identify()`. Method lookup tries the type with all its
//! borrows first and removes one at a time, so that the most telling implementation that exists for
//! `x`'s type wins: a module, a pointer to a module, a pointer to anything, anything.

use std::{fmt::Debug, rc::Rc, sync::Arc};

use burn::module::Module;

use super::{
    names::FirstParam,
    scope,
    value::{Captured, Recorder, Traced},
};

/// Wraps a borrowed receiver of a method call.
pub struct ModuleProbe<'a, T: ?Sized>(pub &'a T);

impl<T: ?Sized> Clone for ModuleProbe<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for ModuleProbe<'_, T> {}

/// Wraps a borrowed argument or result.
pub struct ValueProbe<'a, T: ?Sized>(pub &'a T);

impl<T: ?Sized> Clone for ValueProbe<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for ValueProbe<'_, T> {}

/// What identifies the receiver of a call.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Where it is while the call runs; compared only during that time.
    pub(crate) address: usize,
    /// In bytes. Tells a struct from its first field, which has the same address.
    pub(crate) size: usize,
    pub(crate) type_name: &'static str,
    /// Absent for a parameterless module and for anything that is no module.
    pub(crate) first_param: Option<FirstParam>,
    /// Whether it is known to be a module: a trait object and a pointer to a pointer are not.
    pub(crate) is_module: bool,
}

impl Receiver {
    fn new<T: ?Sized>(value: &T, first_param: Option<FirstParam>, is_module: bool) -> Self {
        Self {
            address: std::ptr::from_ref(value).cast::<()>().addr(),
            size: std::mem::size_of_val(value),
            type_name: std::any::type_name::<T>(),
            first_param,
            is_module,
        }
    }

    /// The type's name without its path and generics: `LlamaAttention`.
    pub(crate) fn kind(&self) -> &'static str {
        let plain = self.type_name.split('<').next().unwrap_or(self.type_name);
        plain.rsplit("::").next().unwrap_or(plain)
    }
}

/// A Burn module.
pub trait KnownModule<T> {
    /// What identifies it.
    fn identify(&self) -> Receiver;
    /// Its gradient-free copy, where the session about to record it asks for one.
    fn without_gradients(&self) -> Option<T>;
}

impl<T: Module> KnownModule<T> for &&ModuleProbe<'_, T> {
    fn identify(&self) -> Receiver {
        Receiver::new(self.0, FirstParam::of(self.0), true)
    }

    fn without_gradients(&self) -> Option<T> {
        scope::gradients_unwanted(|| {
            self.0
                .devices()
                .iter()
                .any(burn::tensor::Device::is_autodiff)
        })
        .then(|| self.0.valid())
    }
}

/// A pointer to a Burn module.
pub trait ModulePointer {
    /// What identifies the module.
    fn identify(&self) -> Receiver;
}

/// A pointer to anything.
pub trait AnyPointer {
    /// What identifies its target.
    fn identify(&self) -> Receiver;
}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<T: Module> ModulePointer for &ModuleProbe<'_, $pointer> {
            fn identify(&self) -> Receiver {
                Receiver::new::<T>(self.0, FirstParam::of::<T>(self.0), true)
            }
        }

        impl<T: ?Sized> AnyPointer for ModuleProbe<'_, $pointer> {
            fn identify(&self) -> Receiver {
                Receiver::new::<T>(self.0, None, false)
            }
        }
    )*};
}
pointers!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

/// Anything at all.
pub trait AnyModule<T>: Sized {
    /// What identifies it.
    fn identify(self) -> Receiver;
    /// Nothing: what is no module has no gradient-free copy.
    fn without_gradients(self) -> Option<T> {
        None
    }
}

impl<T> AnyModule<T> for ModuleProbe<'_, T> {
    fn identify(self) -> Receiver {
        Receiver::new(self.0, None, false)
    }
}

/// A value that knows how to be recorded.
pub trait TracedValue {
    /// Records it.
    fn capture(&self, recorder: &mut Recorder<'_>) -> Captured;
}

impl<T: Traced + ?Sized> TracedValue for &ValueProbe<'_, T> {
    fn capture(&self, recorder: &mut Recorder<'_>) -> Captured {
        self.0.traced(recorder)
    }
}

/// A value that can be printed.
pub trait DebugValue {
    /// Records its text.
    fn capture(&self, recorder: &mut Recorder<'_>) -> Captured;
}

impl<T: Debug> DebugValue for ValueProbe<'_, T> {
    fn capture(&self, recorder: &mut Recorder<'_>) -> Captured {
        recorder.debug(self.0)
    }
}

/// Any other value.
pub trait AnyValue: Sized {
    /// Records its type.
    fn capture(self, recorder: &mut Recorder<'_>) -> Captured;
}

impl<T> AnyValue for ValueProbe<'_, T> {
    fn capture(self, _: &mut Recorder<'_>) -> Captured {
        Captured::Text(format!("<{}>", std::any::type_name::<T>()))
    }
}
