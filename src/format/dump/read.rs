//! Reading a dumped tensor back, from a file that is not trusted.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use super::{DTYPES, Header, is_plain};
use crate::{
    format::{ReadError, error::shorten},
    summary::{DType, TensorView, ViewError},
};

/// The longest header that is read: one tensor's takes a few hundred bytes, and foreign writers may
/// add metadata.
const MAX_HEADER: u64 = 1024 * 1024;

/// Opens the dumped tensors of one trace's folder, and of no other.
#[derive(Clone, Debug)]
pub struct DumpReader {
    folder: PathBuf,
    max_bytes: u64,
}

/// A tensor that was read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// The element type.
    pub dtype: DType,
    /// The size of each dimension.
    pub shape: Vec<usize>,
    /// The elements in row-major order, little-endian.
    pub bytes: Vec<u8>,
}

impl Dump {
    /// The tensor for a summary or a comparison.
    ///
    /// # Errors
    /// None for a dump that [`DumpReader::read`] returned; see [`TensorView::contiguous`].
    pub fn view(&self) -> Result<TensorView<'_>, ViewError> {
        TensorView::contiguous(self.dtype.clone(), &self.shape, &self.bytes)
    }
}

impl DumpReader {
    /// Reads from this folder files of up to 4 GiB.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            max_bytes: 4 * 1024 * 1024 * 1024,
        }
    }

    /// Sets the largest file that is read, in bytes.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Reads the tensor in the file of this name, as [`TensorValue::File`] gives it.
    ///
    /// [`TensorValue::File`]: crate::trace::TensorValue::File
    ///
    /// # Errors
    /// If the name would lead out of the folder, the file is a link, too large, damaged, or holds
    /// anything but one tensor under the key `data`.
    pub fn read(&self, name: &str) -> Result<Dump, ReadError> {
        if !is_plain(name) {
            return Err(ReadError::BadName {
                name: shorten(name),
            });
        }
        let path = self.folder.join(name);
        let found = fs::symlink_metadata(&path).map_err(ReadError::io(&path))?;
        if !found.is_file() {
            return Err(ReadError::NotAFile { path });
        }
        if found.len() > self.max_bytes {
            return Err(ReadError::TooLarge {
                path,
                limit: self.max_bytes,
            });
        }
        let mut file = File::open(&path).map_err(ReadError::io(&path))?;
        read_dump(&mut file, found.len(), &path)
    }
}

fn read_dump(file: &mut impl Read, len: u64, path: &Path) -> Result<Dump, ReadError> {
    let damaged = |message: String| ReadError::Tensor {
        path: path.to_owned(),
        message,
    };
    let cut = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged("the file ends inside its header".to_owned()),
        _ => ReadError::io(path)(error),
    };
    let mut header_len = [0; 8];
    file.read_exact(&mut header_len).map_err(cut)?;
    let header_len = u64::from_le_bytes(header_len);
    if header_len > MAX_HEADER || header_len > len {
        return Err(damaged(format!(
            "its header claims {header_len} bytes: not a safetensors file of one tensor"
        )));
    }
    // Bounded by MAX_HEADER.
    let mut header = vec![0; header_len as usize];
    file.read_exact(&mut header).map_err(cut)?;
    let Header { data } = serde_json::from_slice(&header).map_err(|error| {
        damaged(format!(
            "its header describes no tensor `data`: {}",
            shorten(&error.to_string())
        ))
    })?;
    let (dtype, _) = DTYPES
        .into_iter()
        .find(|(_, theirs)| *theirs == data.dtype)
        .ok_or_else(|| damaged(format!("elements of type {} are not read", data.dtype)))?;
    let expected = dtype
        .size()
        .and_then(|size| {
            data.shape
                .iter()
                .try_fold(size, |n, &dim| n.checked_mul(dim))
        })
        .ok_or_else(|| damaged("its shape has more bytes than can be counted".to_owned()))?;
    let mut bytes = Vec::new();
    // One byte more than the size at opening, so that a file that grows is noticed and bounded.
    file.take((len - header_len).saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(ReadError::io(path))?;
    if data.data_offsets != (0, expected) || bytes.len() != expected {
        return Err(damaged(format!(
            "its header describes {expected} bytes of elements at {:?}, the file has {}",
            data.data_offsets,
            bytes.len()
        )));
    }
    Ok(Dump {
        dtype,
        shape: data.shape,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend(data);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Dump, ReadError> {
        read_dump(
            &mut &bytes[..],
            bytes.len() as u64,
            Path::new("t.safetensors"),
        )
    }

    #[test]
    fn what_is_no_single_tensor_is_refused_and_says_why() {
        let good = r#"{"data":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}}"#;
        assert_eq!(read(&file(good, &[1, 0, 2, 0])).unwrap().shape, [2]);
        let huge =
            r#"{"data":{"dtype":"U8","shape":[18446744073709551615,2],"data_offsets":[0,4]}}"#;
        let end = r#"{"data":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}"#;
        let other = r#"{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
        let offset = r#"{"data":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
        for (bytes, reason) in [
            (file(good, &[1, 0, 2]), "the file has 3"),
            (file(good, &[1, 0, 2, 0, 0]), "the file has 5"),
            (file(huge, &[0; 4]), "can be counted"),
            (file(end, &[0; 4]), "the file has 4"),
            (file(other, &[0; 4]), "missing field `data`"),
            (file(offset, &[0; 8]), "at (4, 8)"),
            (u64::MAX.to_le_bytes().to_vec(), "claims"),
            (vec![0; 4], "ends inside its header"),
            (file(good, &[])[..20].to_vec(), "claims"),
        ] {
            let message = read(&bytes).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
    }
}
