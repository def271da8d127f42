//! The values of a record's lines as they are read: tensors still by the number of their line.

use std::{fmt, marker::PhantomData, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};

use crate::trace::{Inputs, TensorRecord, Value};

/// An argument or result, its tensors not looked up yet.
pub(super) enum Encoded {
    Tensor(u64),
    List(Vec<Encoded>),
    Map(Entries<Encoded>),
    Text(String),
}

/// A JSON object's entries in order; a key may come twice.
pub(super) struct Entries<V>(pub(super) Vec<(String, V)>);

/// A call's inputs, their tensors not looked up yet.
#[derive(Deserialize)]
pub(super) struct EncodedInputs {
    args: Vec<Encoded>,
    kwargs: Entries<Encoded>,
}

impl EncodedInputs {
    /// As [`Encoded::check`].
    pub(super) fn check(&self, tensors: usize) -> Result<(), UnknownTensor> {
        let values = self.kwargs.0.iter().map(|(_, value)| value);
        let mut values = self.args.iter().chain(values);
        values.try_for_each(|value| value.check(tensors))
    }

    /// As [`Encoded::resolve`].
    pub(super) fn resolve(self, tensors: &[Arc<TensorRecord>]) -> Inputs {
        Inputs {
            args: resolve_list(self.args, tensors),
            kwargs: self.kwargs.resolve(tensors),
        }
    }
}

/// A tensor that is referred to before its line, or that has none.
#[derive(Debug, thiserror::Error)]
#[error("tensor {0} has no line before this one")]
pub(super) struct UnknownTensor(u64);

/// A tensor's place among the first `tensors` lines.
pub(super) fn known_tensor(number: u64, tensors: usize) -> Result<usize, UnknownTensor> {
    usize::try_from(number)
        .ok()
        .filter(|&place| place < tensors)
        .ok_or(UnknownTensor(number))
}

impl Encoded {
    /// Whether all its tensors are among the first `tensors` lines.
    pub(super) fn check(&self, tensors: usize) -> Result<(), UnknownTensor> {
        match self {
            Encoded::Text(_) => Ok(()),
            Encoded::List(items) => items.iter().try_for_each(|item| item.check(tensors)),
            Encoded::Map(Entries(entries)) => {
                entries.iter().try_for_each(|(_, item)| item.check(tensors))
            }
            Encoded::Tensor(number) => known_tensor(*number, tensors).map(drop),
        }
    }

    /// Looks the tensors up, which must have been checked.
    pub(super) fn resolve(self, tensors: &[Arc<TensorRecord>]) -> Value {
        match self {
            Encoded::Text(text) => Value::Text(text),
            Encoded::List(items) => Value::List(resolve_list(items, tensors)),
            Encoded::Map(entries) => Value::Map(entries.resolve(tensors)),
            Encoded::Tensor(number) => Value::Tensor(Arc::clone(&tensors[number as usize])),
        }
    }
}

impl Entries<Encoded> {
    fn resolve(self, tensors: &[Arc<TensorRecord>]) -> Vec<(String, Value)> {
        let entries = self.0.into_iter();
        entries
            .map(|(key, item)| (key, item.resolve(tensors)))
            .collect()
    }
}

fn resolve_list(items: Vec<Encoded>, tensors: &[Arc<TensorRecord>]) -> Vec<Value> {
    items
        .into_iter()
        .map(|item| item.resolve(tensors))
        .collect()
}

impl<'de> Deserialize<'de> for Encoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // serde_json bounds the recursion.
        deserializer.deserialize_any(EncodedVisitor)
    }
}

struct EncodedVisitor;

impl<'de> Visitor<'de> for EncodedVisitor {
    type Value = Encoded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a list, {\"tensor\": n} or {\"map\": {...}}")
    }

    fn visit_str<E>(self, text: &str) -> Result<Encoded, E> {
        Ok(Encoded::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Encoded, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Encoded::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Encoded, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Form {
            Tensor,
            Map,
        }
        let value = match map.next_key::<Form>()? {
            Some(Form::Tensor) => Encoded::Tensor(map.next_value()?),
            Some(Form::Map) => Encoded::Map(map.next_value()?),
            None => return Err(A::Error::invalid_length(0, &self)),
        };
        match map.next_key::<Form>()? {
            None => Ok(value),
            Some(_) => Err(A::Error::invalid_length(2, &self)),
        }
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<V> {
    type Value = Entries<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<V>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
