//! Writing one tensor as a safetensors file, byte for byte as the Python library does.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use safetensors::tensor::TensorInfo;

use super::{DTYPES, Header, is_plain};
use crate::{
    atomic::{self, Durability},
    format::{WriteError, error::shorten},
    summary::TensorView,
};

/// Writes a tensor under the key `data` to `folder/name` and returns the file's path.
///
/// The elements are written in row-major order whatever the strides, in this machine's byte order,
/// which safetensors takes to be little-endian. The file appears under its name when it is whole.
///
/// # Errors
/// If the name is no plain file name, the dtype has no name in safetensors, or the system refuses.
pub fn write_tensor(
    folder: &Path,
    name: &str,
    tensor: &TensorView<'_>,
) -> Result<PathBuf, WriteError> {
    if !is_plain(name) {
        return Err(WriteError::BadName {
            name: shorten(name),
        });
    }
    let unknown = || WriteError::DType {
        dtype: tensor.dtype().to_string(),
    };
    let (_, dtype) = DTYPES
        .into_iter()
        .find(|(ours, _)| ours == tensor.dtype())
        .ok_or_else(unknown)?;
    let size = tensor.dtype().size().ok_or_else(unknown)?;
    let target = folder.join(name);
    atomic::write(&target, Durability::Cached, |out| {
        let header = Header {
            data: TensorInfo {
                dtype,
                shape: tensor.shape().to_vec(),
                data_offsets: (0, byte_len(tensor, size)?),
            },
        };
        let mut header = serde_json::to_vec(&header)?;
        header.resize(header.len().next_multiple_of(8), b' ');
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        match tensor.contiguous_bytes() {
            Some(bytes) => out.write_all(bytes),
            None => gather(tensor, size, out),
        }
    })
    .map_err(WriteError::io(&target))?;
    Ok(target)
}

fn byte_len(tensor: &TensorView<'_>, size: usize) -> io::Result<usize> {
    // A broadcast view can have more elements than memory has bytes.
    tensor
        .shape()
        .iter()
        .try_fold(size, |bytes, &dim| bytes.checked_mul(dim))
        .ok_or_else(|| io::Error::other("the tensor has more bytes than this machine can count"))
}

/// Writes the elements of a strided tensor in row-major order, one innermost row at a time.
fn gather(tensor: &TensorView<'_>, size: usize, out: &mut dyn Write) -> io::Result<()> {
    let (Some((&row, outer)), Some((&step, outer_steps))) =
        (tensor.shape().split_last(), tensor.strides().split_last())
    else {
        // A scalar and an empty tensor are contiguous.
        return Ok(());
    };
    let outside = || io::Error::other("an element lies outside the tensor's memory");
    let mut index = vec![0usize; outer.len()];
    loop {
        let start = index
            .iter()
            .zip(outer_steps)
            .fold(tensor.offset() as isize, |at, (&i, &stride)| {
                at + i as isize * stride
            });
        for i in 0..row {
            let at = usize::try_from(start + i as isize * step).map_err(|_| outside())? * size;
            out.write_all(tensor.bytes().get(at..at + size).ok_or_else(outside)?)?;
        }
        // The next outer index, the last dimension fastest.
        let mut dim = outer.len();
        loop {
            if dim == 0 {
                return Ok(());
            }
            dim -= 1;
            index[dim] += 1;
            if index[dim] < outer[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
}
