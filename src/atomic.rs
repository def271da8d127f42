//! Files that appear under their final name only when they are whole; what stands in them is the
//! callers' affair.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

/// A file written beside its final place, removed unless it is published.
pub(crate) struct Staged {
    temporary: PathBuf,
    target: PathBuf,
    published: bool,
}

/// Whether the bytes must have reached the disk before the file gets its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Wait for the disk: a power failure leaves the old file or the new one.
    Synced,
    /// Leave it to the system, for files by the hundred.
    Cached,
}

impl Staged {
    /// Writes the whole contents beside `target`.
    pub(crate) fn write(
        target: &Path,
        durability: Durability,
        contents: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<Self> {
        let temporary = temporary_beside(target);
        // `create_new` also keeps a link that somebody put there from being followed.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        let staged = Staged {
            temporary,
            target: target.to_owned(),
            published: false,
        };
        fill(file, durability, contents)?;
        Ok(staged)
    }

    /// Gives the file its final name, in place of an older file of that name.
    pub(crate) fn publish(mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.target)?;
        self.published = true;
        Ok(())
    }
}

/// Writes a file that gets its name, in place of an older file of that name, when it is whole.
pub(crate) fn write(
    target: &Path,
    durability: Durability,
    contents: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    Staged::write(target, durability, contents)?.publish()
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            // Nothing can be done about a file that cannot be removed; its name says what it is.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

fn temporary_beside(target: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    target.with_file_name(format!(".burnscope-{}-{number}.tmp", process::id()))
}

fn fill(
    file: File,
    durability: Durability,
    contents: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(64 * 1024, file);
    contents(&mut buffered)?;
    let file = buffered.into_inner().map_err(|error| error.into_error())?;
    match durability {
        Durability::Synced => file.sync_all(),
        Durability::Cached => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WriteError;

    #[test]
    fn an_error_midway_leaves_neither_the_file_nor_the_temporary() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.json");
        fs::write(&target, "old").unwrap();
        let result = Staged::write(&target, Durability::Synced, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("the tensor went away"))
        });
        assert!(result.is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_named_as_such() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = fill(full, Durability::Cached, |out| out.write_all(&[0; 100_000])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let message = WriteError::io(Path::new("a.json"))(error).to_string();
        assert!(
            message.contains("a.json") && message.contains("free some space"),
            "{message}"
        );
    }
}
