//! Reads files without trusting their size or kind. It does not interpret what it reads.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// Why a file was not read; whoever asked for the file names it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The operating system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A folder, a pipe or a device.
    #[error("is not a regular file")]
    NotAFile,
    /// More bytes than files of its kind have reason to have.
    #[error("has {bytes} bytes; more than {limit} are not read")]
    TooLarge {
        /// How many bytes it has, as far as it was read.
        bytes: u64,
        /// How many are read.
        limit: u64,
    },
}

/// Opens a regular file and says how many bytes it has.
///
/// A pipe would block and a device might not end, so the kind is asked before the file is opened.
pub(crate) fn open(path: &Path) -> Result<(File, u64), Refusal> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(Refusal::NotAFile);
    }
    Ok((File::open(path)?, metadata.len()))
}

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Refusal> {
    let (file, bytes) = open(path)?;
    if bytes > limit {
        return Err(Refusal::TooLarge { bytes, limit });
    }
    let mut contents = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    // The file may grow while it is read, so the limit holds for the reading too.
    file.take(limit.saturating_add(1))
        .read_to_end(&mut contents)?;
    match contents.len() as u64 {
        bytes if bytes > limit => Err(Refusal::TooLarge { bytes, limit }),
        _ => Ok(contents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_at_the_limit_is_read_and_one_beyond_it_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, [7; 100]).unwrap();
        assert_eq!(read(&path, 100).unwrap(), [7; 100]);
        assert!(matches!(
            read(&path, 99),
            Err(Refusal::TooLarge {
                bytes: 100,
                limit: 99
            })
        ));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_no_file_or_says_nothing_of_its_size_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read(folder.path(), 100), Err(Refusal::NotAFile)));
        let zero = read(Path::new("/dev/zero"), 100);
        assert!(matches!(zero, Err(Refusal::NotAFile)));
        // Its size is given as nought.
        let maps = read(Path::new("/proc/self/maps"), 10);
        assert!(matches!(maps, Err(Refusal::TooLarge { .. })));
    }
}
