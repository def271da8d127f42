//! Arguments and results of any Rust type as captured values: tensors, collections of them, text.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Debug, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
};

use burn::tensor::{Tensor, kind::Basic};

use super::{record::CapturedInputs, session::Shared, tensor::Seen};
use crate::trace::TensorRecord;

/// The longest text kept of a value that is no tensor, in bytes.
const TEXT_LIMIT: usize = 1024;

/// An argument or result at the moment it was seen, not yet given to a module's record.
#[derive(Debug)]
pub enum Captured {
    /// A tensor; made by [`Recorder::tensor`].
    Tensor(CapturedTensor),
    /// A tuple, list or array.
    List(Vec<Captured>),
    /// A struct or dictionary, in order.
    Map(Vec<(String, Captured)>),
    /// Anything else, as text.
    Text(String),
}

/// A tensor's record and, where it is to be dumped, a copy of its elements.
#[derive(Debug)]
pub struct CapturedTensor {
    pub(crate) record: Arc<TensorRecord>,
    pub(crate) elements: Elements,
}

/// Text that is recorded as it is.
#[derive(Debug)]
pub struct Literally(pub &'static str);

impl Traced for Literally {
    fn traced(&self, _: &mut Recorder<'_>) -> Captured {
        Captured::Text(self.0.to_owned())
    }
}

/// What was kept of a tensor's elements for its file.
#[derive(Debug)]
pub(crate) enum Elements {
    /// The session writes no tensor files.
    NotWanted,
    /// The elements, row-major.
    Copied(Vec<u8>),
    /// Nothing: the session's budget for tensor files is used up.
    OverBudget,
    /// The tensor itself, whose elements its device will be asked for.
    #[cfg(feature = "fusion")]
    OnDevice(super::fusion::FusionTensor),
}

/// A type whose values can be recorded as arguments and results of traced methods.
///
/// Implemented for tensors of every rank and kind, `Option`, tuples, arrays, vectors, maps, results,
/// references, numbers, booleans and strings. For your own structs use `#[derive(burnscope::Traced)]`;
/// a type without it is recorded by its `Debug` text.
pub trait Traced {
    /// Records the value.
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured;
}

/// Turns values into what a session keeps of them.
pub struct Recorder<'s> {
    session: &'s Shared,
    /// Elements that the caller of this very call has copied already, by the tensor's number.
    copied: HashMap<u64, Vec<u8>>,
    /// For values that are to be read here and now rather than recorded.
    reading: Option<Reading>,
}

/// What was learnt while values were read.
#[derive(Default)]
struct Reading {
    /// Whether a tensor was on a device where Burn may fuse operations.
    fusion: bool,
}

impl<'s> Recorder<'s> {
    pub(crate) fn new(session: &'s Shared) -> Self {
        Self {
            session,
            copied: HashMap::new(),
            reading: None,
        }
    }

    /// A recorder that reads every tensor, wherever it is, and records nothing in the session.
    pub(crate) fn reading(session: &'s Shared) -> Self {
        Self {
            reading: Some(Reading::default()),
            ..Self::new(session)
        }
    }

    /// Whether it read a tensor on a device where Burn may fuse operations.
    pub(crate) fn saw_fusion(&self) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.fusion)
    }

    /// A recorder that takes over the elements in `captured` instead of copying them again.
    pub(crate) fn reusing(session: &'s Shared, captured: CapturedInputs) -> Self {
        let mut recorder = Self::new(session);
        captured
            .into_iter()
            .for_each(|(_, value)| recorder.take_elements(value));
        recorder
    }

    fn take_elements(&mut self, captured: Captured) {
        match captured {
            Captured::Tensor(CapturedTensor {
                record,
                elements: Elements::Copied(bytes),
            }) => {
                if let Some(id) = record.id {
                    self.copied.insert(id, bytes);
                }
            }
            Captured::Tensor(_) | Captured::Text(_) => {}
            Captured::List(values) => values
                .into_iter()
                .for_each(|value| self.take_elements(value)),
            Captured::Map(entries) => entries
                .into_iter()
                .for_each(|(_, value)| self.take_elements(value)),
        }
    }

    /// Records a tensor: summarised now or by its device, unless the same tensor was before.
    pub fn tensor<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) -> Captured {
        if let Some(reading) = &mut self.reading {
            let (record, elements, fusion) = super::tensor::read(tensor);
            reading.fusion |= fusion;
            return Captured::Tensor(CapturedTensor {
                record: Arc::new(record),
                elements: elements.map_or(Elements::NotWanted, Elements::Copied),
            });
        }
        let seen = Seen::look(tensor);
        let record = self.session.describe(&seen);
        let options = self.session.options();
        let elements = if options.dump != super::Dump::Safetensors {
            Elements::NotWanted
        } else if let Some(bytes) = record.id.and_then(|id| self.copied.remove(&id)) {
            Elements::Copied(bytes)
        } else {
            match seen {
                Seen::Host(host) if self.session.dumps().has_room(host.bytes()) => host
                    .row_major_bytes()
                    .map_or(Elements::NotWanted, Elements::Copied),
                Seen::Host(_) => Elements::OverBudget,
                #[cfg(feature = "fusion")]
                Seen::Device(device) => Elements::OnDevice(device.primitive),
            }
        };
        Captured::Tensor(CapturedTensor { record, elements })
    }

    /// Records a value by its `Debug` text, cut after a kilobyte.
    pub fn debug(&mut self, value: &dyn Debug) -> Captured {
        // A `Debug` that panics must not end a program that would run untraced.
        let text = catch_unwind(AssertUnwindSafe(|| bounded(format_args!("{value:?}"))));
        Captured::Text(text.unwrap_or_else(|_| "<its Debug panicked>".to_owned()))
    }
}

/// Formats without ever building more than [`TEXT_LIMIT`] bytes: a `Debug` may print whole tensors.
fn bounded(arguments: fmt::Arguments<'_>) -> String {
    struct Bounded(String);
    impl Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = TEXT_LIMIT - self.0.len();
            if text.len() <= room {
                self.0.push_str(text);
                return Ok(());
            }
            self.0.push_str(&text[..text.floor_char_boundary(room)]);
            self.0.push('…');
            Err(fmt::Error)
        }
    }
    let mut text = Bounded(String::new());
    // An error only means that the text was cut, which the text shows.
    let _ = text.write_fmt(arguments);
    text.0
}

impl<const D: usize, K: Basic> Traced for Tensor<D, K> {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        recorder.tensor(self)
    }
}

/// A missing value reads `None`, as in Python.
impl<T: Traced> Traced for Option<T> {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        match self {
            Some(value) => value.traced(recorder),
            None => Captured::Text("None".to_owned()),
        }
    }
}

/// A success is recorded as its value, an error by its text.
impl<T: Traced, E: Debug> Traced for Result<T, E> {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        match self {
            Ok(value) => value.traced(recorder),
            Err(error) => Captured::Text(bounded(format_args!("Err({error:?})"))),
        }
    }
}

impl<T: Traced> Traced for [T] {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        Captured::List(self.iter().map(|value| value.traced(recorder)).collect())
    }
}

impl<T: Traced, const N: usize> Traced for [T; N] {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        self.as_slice().traced(recorder)
    }
}

impl<T: Traced> Traced for Vec<T> {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        self.as_slice().traced(recorder)
    }
}

impl<T: Traced> Traced for BTreeMap<String, T> {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        Captured::Map(
            self.iter()
                .map(|(key, value)| (key.clone(), value.traced(recorder)))
                .collect(),
        )
    }
}

/// In the order of the keys: a hash map has none of its own.
impl<T: Traced> Traced for HashMap<String, T> {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        let sorted: BTreeMap<&String, &T> = self.iter().collect();
        Captured::Map(
            sorted
                .into_iter()
                .map(|(key, value)| (key.clone(), value.traced(recorder)))
                .collect(),
        )
    }
}

macro_rules! traced_pointers {
    ($($pointer:ty),*) => {$(
        impl<T: Traced + ?Sized> Traced for $pointer {
            fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
                (**self).traced(recorder)
            }
        }
    )*};
}
traced_pointers!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

macro_rules! traced_tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Traced),*> Traced for ($($name,)*) {
            fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
                Captured::List(vec![$(self.$index.traced(recorder)),*])
            }
        }
    )*};
}
traced_tuples! {
    (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5) (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

macro_rules! traced_numbers {
    ($($number:ty)*) => {$(
        impl Traced for $number {
            fn traced(&self, _: &mut Recorder<'_>) -> Captured {
                Captured::Text(format!("{self:?}"))
            }
        }
    )*};
}
traced_numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

/// As Python writes it.
impl Traced for bool {
    fn traced(&self, _: &mut Recorder<'_>) -> Captured {
        Captured::Text(if *self { "True" } else { "False" }.to_owned())
    }
}

/// In single quotes, as Python writes it.
impl Traced for str {
    fn traced(&self, _: &mut Recorder<'_>) -> Captured {
        Captured::Text(bounded(format_args!("'{}'", self.escape_debug())))
    }
}

impl Traced for String {
    fn traced(&self, recorder: &mut Recorder<'_>) -> Captured {
        self.as_str().traced(recorder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_is_cut_at_a_character() {
        let text = bounded(format_args!("{}", "é".repeat(TEXT_LIMIT)));
        assert!(text.len() <= TEXT_LIMIT + '…'.len_utf8());
        assert!(text.ends_with("é…"));
    }
}
