//! The formats a scan is written in, and the files they are written to.

mod csv;
mod html;
mod json;
mod markdown;
mod sarif;
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};

use super::{CompatEntry, Scan, SkipsError};
use crate::atomic::{self, Durability};
use json::{compat_json, inventory_json};
pub use terminal::{summary, table};

/// A file format for the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The original schema with added keys.
    Json,
    /// One row per test and model.
    Csv,
    /// A table of tests, sorted by the share of models that skip them.
    Markdown,
    /// Lints for code scanning services (SARIF 2.1.0).
    Sarif,
    /// A page that needs no other file, with the same table and all reasons.
    Html,
}

impl Format {
    /// The ending of the file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Markdown => "md",
            Self::Sarif => "sarif",
            Self::Html => "html",
        }
    }
}

/// The name of the result file without its ending: one for full scans, one per single test.
pub(crate) fn file_stem(test: Option<&str>) -> String {
    test.map_or_else(
        || "all_tests_scan_result".to_owned(),
        |test| format!("scan_{test}"),
    )
}

/// Writes the results of a scan into `folder` and returns the file's path. `test` is the name of the
/// only test scanned.
///
/// # Errors
/// [`SkipsError::Write`] where the folder or file cannot be written. No half-written file is left
/// under the final name.
pub fn write(
    scan: &Scan,
    format: Format,
    test: Option<&str>,
    folder: &Path,
) -> Result<PathBuf, SkipsError> {
    let pieces = match format {
        Format::Json => json::scan_json(scan, test.is_some()),
        Format::Csv => vec![csv::csv(scan)],
        Format::Markdown => vec![markdown::markdown(scan)],
        Format::Sarif => vec![sarif::sarif(scan)],
        Format::Html => vec![html::html(scan)],
    };
    save(
        &pieces,
        folder,
        &format!("{}.{}", file_stem(test), format.extension()),
    )
}

/// Writes the original script's JSON.
///
/// # Errors
/// As [`write()`].
pub fn write_compat(
    entries: &[CompatEntry],
    test: Option<&str>,
    folder: &Path,
) -> Result<PathBuf, SkipsError> {
    save(
        &compat_json(entries, test.is_some()),
        folder,
        &format!("{}.json", file_stem(test)),
    )
}

/// Writes the list of every test of every class.
///
/// # Errors
/// As [`write()`].
pub fn write_inventory(scan: &Scan, folder: &Path) -> Result<PathBuf, SkipsError> {
    save(&inventory_json(scan), folder, "skips_inventory.json")
}

/// Writes beside the final name and renames, so that no half-written file is ever seen.
fn save(pieces: &[String], folder: &Path, name: &str) -> Result<PathBuf, SkipsError> {
    let path = folder.join(name);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SkipsError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    atomic::write(&path, Durability::Cached, |out| {
        pieces
            .iter()
            .try_for_each(|piece| out.write_all(piece.as_bytes()))
    })
    .map_err(failed(&path))?;
    Ok(path)
}
