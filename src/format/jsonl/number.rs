//! Numbers that JSON lacks or that its readers round: NaN, infinities and 64-bit patterns.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, Visitor},
};

use crate::summary::Number;

/// A double that reads back equal; NaN and the infinities are the strings `nan`, `inf`, `-inf`.
#[derive(Clone, Copy)]
pub(super) struct Real(pub(super) f64);

impl Real {
    fn word(self) -> Option<&'static str> {
        match self.0 {
            x if x.is_nan() => Some("nan"),
            f64::INFINITY => Some("inf"),
            f64::NEG_INFINITY => Some("-inf"),
            _ => None,
        }
    }
}

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.word() {
            Some(word) => serializer.serialize_str(word),
            None => serializer.serialize_f64(self.0),
        }
    }
}

/// A number of a tensor's own class: written with a point or exponent exactly if it is a float.
#[derive(Clone, Copy)]
pub(super) struct Element(pub(super) Number);

impl Serialize for Element {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Number::Int(value) => serializer.serialize_i64(value),
            Number::UInt(value) => serializer.serialize_u64(value),
            Number::Float(value) => Real(value).serialize(serializer),
        }
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"nan\", \"inf\" or \"-inf\"")
    }

    fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
        Ok(Number::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
        Ok(i64::try_from(value).map_or(Number::UInt(value), Number::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
        Ok(Number::Float(value))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Number, E> {
        match text {
            "nan" => Ok(Number::Float(f64::NAN)),
            "inf" => Ok(Number::Float(f64::INFINITY)),
            "-inf" => Ok(Number::Float(f64::NEG_INFINITY)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor).map(Element)
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(NumberVisitor)
            .map(|number| match number {
                Number::Int(value) => Real(value as f64),
                Number::UInt(value) => Real(value as f64),
                Number::Float(value) => Real(value),
            })
    }
}

/// 64 arbitrary bits as 16 hexadecimal digits, since many JSON readers keep only 53.
#[derive(Clone, Copy)]
pub(super) struct Hex(pub(super) u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits
            .then(|| u64::from_str_radix(&text, 16).ok())
            .flatten()
            .map(Hex)
            .ok_or_else(|| D::Error::custom("expected 16 hexadecimal digits"))
    }
}
