//! Reads a checkpoint's `config.json`: typed, bounded access to its fields with errors that name
//! the field. It knows nothing about any one architecture.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use thiserror::Error;

use super::files::{FileError, read_bounded};

/// The largest `config.json` that is read, in bytes. Real ones are a few kilobytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// The largest value any size in a configuration may have.
///
/// Products of two sizes then fit in 64 bits, and no model that exists comes near.
const MAX_SIZE: usize = 1 << 30;

/// The largest number of layers a configuration may ask for.
const MAX_LAYERS: usize = 4096;

/// What is wrong with a `config.json`.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not JSON, or not a JSON object.
    #[error("{path}: not a JSON object: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// A field the architecture needs is absent.
    #[error("config.json has no `{key}`")]
    Missing {
        /// The field.
        key: String,
    },
    /// A field holds something else than it should.
    #[error("config.json: `{key}` is {found}, expected {expected}")]
    Invalid {
        /// The field.
        key: String,
        /// What it holds, as JSON.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// Two fields contradict each other.
    #[error("config.json: {reason}")]
    Inconsistent {
        /// Which fields, and how they disagree.
        reason: String,
    },
    /// A field asks for a computation these ports do not have.
    #[error(
        "config.json: `{key}` is {found}, which is not supported here (supported: {supported})"
    )]
    Unsupported {
        /// The field.
        key: String,
        /// What it asks for, as JSON.
        found: String,
        /// What could be asked for instead.
        supported: String,
    },
}

/// The fields of a `config.json`.
///
/// A field that is absent and one that is `null` are the same thing, as in transformers.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    fields: Map<String, Value>,
    /// The name of the enclosing object with a trailing dot, for messages; empty at the top.
    scope: String,
}

impl ConfigFile {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// When the file cannot be read, is unreasonably large, or is not a JSON object.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let bytes = read_bounded(path, MAX_CONFIG_BYTES)?;
        Self::parse(&bytes).map_err(|reason| ConfigError::Syntax {
            path: path.to_owned(),
            reason,
        })
    }

    /// Parses the text of a `config.json`.
    ///
    /// # Errors
    /// What the parser said, when the text is not a JSON object.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice(text) {
            Ok(Value::Object(fields)) => Ok(Self {
                fields,
                scope: String::new(),
            }),
            Ok(other) => Err(format!("it holds {}", kind(&other))),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The value of `key`, if it is there and not `null`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// The nested object `key`, if it is there.
    pub fn object(&self, key: &str) -> Result<Option<Self>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self {
                fields: fields.clone(),
                scope: format!("{}{key}.", self.scope),
            })),
            Some(_) => Err(self.invalid(key, "an object")),
        }
    }

    /// The string `key`, if it is there.
    pub fn text(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.invalid(key, "a string")),
        }
    }

    /// The boolean `key`, or `default` where it is absent.
    pub fn flag_or(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.invalid(key, "true or false")),
        }
    }

    /// The positive, finite number `key`, if it is there.
    pub fn positive(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
                _ => Err(self.invalid(key, "a positive number")),
            },
        }
    }

    /// The positive, finite number `key`.
    pub fn required_positive(&self, key: &str) -> Result<f64, ConfigError> {
        self.positive(key)?.ok_or_else(|| self.missing(key))
    }

    /// A probability: the number `key` in `[0, 1)`, or 0 where it is absent.
    pub fn probability(&self, key: &str) -> Result<f64, ConfigError> {
        match self.get(key) {
            None => Ok(0.0),
            Some(value) => match value.as_f64() {
                Some(p) if (0.0..1.0).contains(&p) => Ok(p),
                _ => Err(self.invalid(key, "a number in [0, 1)")),
            },
        }
    }

    /// The size `key`, an integer from 1 to 2^30, if it is there.
    pub fn size(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        self.bounded(key, MAX_SIZE)
    }

    /// The size `key`, an integer from 1 to 2^30.
    pub fn required_size(&self, key: &str) -> Result<usize, ConfigError> {
        self.size(key)?.ok_or_else(|| self.missing(key))
    }

    /// The number of layers `key`, an integer from 1 to 4096.
    pub fn required_layers(&self, key: &str) -> Result<usize, ConfigError> {
        self.bounded(key, MAX_LAYERS)?
            .ok_or_else(|| self.missing(key))
    }

    /// The strings of the list `key`; empty where it is absent.
    pub fn texts(&self, key: &str) -> Result<Vec<&str>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        value
            .as_array()
            .and_then(|items| items.iter().map(Value::as_str).collect())
            .ok_or_else(|| self.invalid(key, "a list of strings"))
    }

    /// Fails unless `key` is absent or equal to `only`, the one value that is supported.
    pub fn require(&self, key: &str, only: &Value) -> Result<(), ConfigError> {
        match self.get(key) {
            Some(value) if !same(value, only) => Err(self.unsupported(key, &only.to_string())),
            _ => Ok(()),
        }
    }

    /// Fails where `key` is present and neither `null` nor an empty object or list.
    pub fn refuse(&self, key: &str) -> Result<(), ConfigError> {
        match self.get(key) {
            None => Ok(()),
            Some(Value::Object(fields)) if fields.is_empty() => Ok(()),
            Some(Value::Array(items)) if items.is_empty() => Ok(()),
            Some(_) => Err(self.unsupported(key, "leaving it out")),
        }
    }

    /// The names of all fields that are not `null`.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, _)| key.as_str())
    }

    /// The error for a field that asks for something these ports do not have.
    pub fn unsupported(&self, key: &str, supported: &str) -> ConfigError {
        ConfigError::Unsupported {
            key: format!("{}{key}", self.scope),
            found: self.shown(key),
            supported: supported.to_owned(),
        }
    }

    fn bounded(&self, key: &str, max: usize) -> Result<Option<usize>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_u64().map(usize::try_from) {
                Some(Ok(size)) if (1..=max).contains(&size) => Ok(Some(size)),
                _ => Err(self.invalid(key, &format!("an integer from 1 to {max}"))),
            },
        }
    }

    fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing {
            key: format!("{}{key}", self.scope),
        }
    }

    fn invalid(&self, key: &str, expected: &str) -> ConfigError {
        ConfigError::Invalid {
            key: format!("{}{key}", self.scope),
            found: self.shown(key),
            expected: expected.to_owned(),
        }
    }

    /// The value of `key` as it should appear in a message: JSON.
    fn shown(&self, key: &str) -> String {
        self.get(key)
            .map_or("absent".to_owned(), |value| shorten(&value.to_string()))
    }
}

/// The number of characters of a file's text that a message shows; keys are shorter.
const SHOWN: usize = 120;

/// Text from a file as it may appear in a message: control characters escaped, cut where it is
/// long.
pub(super) fn shorten(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        shown.push_str("...");
    }
    shown.replace(char::is_control, "\u{fffd}")
}

/// Whether two values are equal, an integer and the same float being equal too.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
