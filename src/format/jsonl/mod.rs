//! burnscope's own record, `<Class>.burnscope.jsonl`: one JSON object a line, appended as the run goes.
//!
//! It holds everything a [`Trace`](crate::trace::Trace) does, at full precision, and is readable after
//! a crash up to the last whole line. It is not concerned with what torch would print.

mod encode;
mod line;
mod number;
mod read;
mod record;
mod tensors;
mod value;
mod write;

use serde::{Deserialize, Serialize};

pub use read::{read, read_from, read_with_header};
pub use write::{CallId, JsonlWriter, write, write_to};

/// What follows the class name in a record's file name.
pub const FILE_SUFFIX: &str = ".burnscope.jsonl";

/// The schema's major version: a reader refuses any other.
pub const SCHEMA_MAJOR: u64 = 1;

/// The schema's minor version: higher ones add keys and kinds of lines, which a reader skips.
pub const SCHEMA_MINOR: u64 = 1;

/// What a record says about its run before any call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The model's class.
    pub name: String,
    /// What wrote the record, as `burnscope 0.1.0`; becomes [`Trace::source`](crate::trace::Trace::source).
    pub program: String,
    /// When the session began, in milliseconds since 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_unix_ms: Option<u64>,
    /// The device the model was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The session's options, by name.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub options: serde_json::Map<String, serde_json::Value>,
}

impl Header {
    /// The header of a session that starts now.
    pub fn now(name: impl Into<String>) -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            name: name.into(),
            program: concat!("burnscope ", env!("CARGO_PKG_VERSION")).to_owned(),
            started_unix_ms: since_1970
                .ok()
                .and_then(|time| u64::try_from(time.as_millis()).ok()),
            ..Self::default()
        }
    }
}
