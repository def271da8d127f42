//! The arguments, results and tensors of a JSON tree as they are read.

use std::{fmt, sync::Arc};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::{
    read::{Context, Segment},
    write::torch_size,
};
use crate::{
    format::{MAX_VALUE_DEPTH, error::shorten},
    summary::DType,
    trace::{Inputs, Printed, TensorRecord, TensorValue, Value},
};

/// A node's inputs, or null.
pub(super) struct InputsSeed<'c>(pub(super) &'c Context);

impl<'de> DeserializeSeed<'de> for InputsSeed<'_> {
    type Value = Option<Inputs>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let seed = ValueSeed {
            context: self.0,
            depth: 0,
        };
        let Some(value) = OptionalSeed(seed).deserialize(deserializer)? else {
            return Ok(None);
        };
        let mut inputs = Inputs::default();
        let Value::Map(entries) = value else {
            return Err(D::Error::custom(
                "expected an object with `args` and `kwargs`",
            ));
        };
        for (key, value) in entries {
            match (key.as_str(), value) {
                ("args", Value::List(args)) if inputs.args.is_empty() => inputs.args = args,
                ("kwargs", Value::Map(kwargs)) if inputs.kwargs.is_empty() => {
                    inputs.kwargs = kwargs
                }
                _ => {
                    return Err(D::Error::custom(format_args!(
                        "expected a list `args` and an object `kwargs`, found `{}`",
                        shorten(&key)
                    )));
                }
            }
        }
        Ok(Some(inputs))
    }
}

/// A value or null.
pub(super) struct OptionalSeed<'c>(pub(super) ValueSeed<'c>);

impl<'de> DeserializeSeed<'de> for OptionalSeed<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for OptionalSeed<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// A value and how deep it lies.
#[derive(Clone, Copy)]
pub(super) struct ValueSeed<'c> {
    pub(super) context: &'c Context,
    pub(super) depth: usize,
}

impl ValueSeed<'_> {
    /// For what lies inside a list or map.
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        // The writer counts neither the object of inputs nor a tensor's own object and its lines.
        if self.depth > MAX_VALUE_DEPTH + 2 {
            return Err(E::custom(format_args!(
                "lists and objects nest deeper than {MAX_VALUE_DEPTH}"
            )));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a list or an object")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = self.context.within(
            || Segment::Index(items.len()),
            || seq.next_element_seed(inner),
        )? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = self
                .context
                .within(|| Segment::Key(key.clone()), || map.next_value_seed(inner))?;
            entries.push((key, value));
        }
        Ok(match tensor(&entries) {
            Some(tensor) => Value::Tensor(Arc::new(tensor)),
            None => Value::Map(entries),
        })
    }
}

/// The tensor that an object describes, if writing it again gives the same object.
fn tensor(entries: &[(String, Value)]) -> Option<TensorRecord> {
    let text = |value: &Value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let (shape, rest) = entry(entries, "shape")?;
    let (dtype, rest) = entry(rest, "dtype")?;
    let shape = parse_torch_size(&text(shape)?)?;
    let dtype_name = text(dtype)?;
    let dtype: DType = dtype_name.parse().ok()?;
    if dtype.torch_name() != dtype_name {
        return None;
    }
    let (value, rest) = match entry(rest, "value") {
        None => (None, rest),
        Some((Value::Text(file), rest)) => {
            let file = file.strip_prefix("./")?.to_owned();
            (Some(TensorValue::File(file)), rest)
        }
        Some((Value::List(lines), rest)) => {
            let lines = lines.iter().map(text).collect::<Option<_>>()?;
            (Some(TensorValue::Lines(lines)), rest)
        }
        Some(_) => return None,
    };
    let printed = if rest.is_empty() {
        None
    } else {
        let (mean, rest) = entry(rest, "mean")?;
        let (std, rest) = entry(rest, "std")?;
        let (min, rest) = entry(rest, "min")?;
        let (max, rest) = entry(rest, "max")?;
        if !rest.is_empty() {
            return None;
        }
        Some(Printed {
            mean: text(mean)?,
            std: text(std)?,
            min: text(min)?,
            max: text(max)?,
        })
    };
    Some(TensorRecord {
        shape,
        dtype,
        device: None,
        id: None,
        summary: None,
        not_summarised: None,
        printed,
        value,
    })
}

/// The first entry's value if it has this key, and the other entries.
fn entry<'a>(
    entries: &'a [(String, Value)],
    key: &str,
) -> Option<(&'a Value, &'a [(String, Value)])> {
    match entries.split_first()? {
        ((found, value), rest) if found == key => Some((value, rest)),
        _ => None,
    }
}

/// A shape whose elements can be counted.
fn parse_torch_size(text: &str) -> Option<Vec<usize>> {
    let dims = text.strip_prefix("torch.Size([")?.strip_suffix("])")?;
    let shape: Vec<usize> = if dims.is_empty() {
        Vec::new()
    } else {
        dims.split(", ")
            .map(|dim| dim.parse().ok())
            .collect::<Option<_>>()?
    };
    // Eight bytes are the largest element, and no caller should have to fear the product.
    shape
        .iter()
        .try_fold(8usize, |bytes, &dim| bytes.checked_mul(dim.max(1)))?;
    (torch_size(&shape) == text).then_some(shape)
}
