//! A tensor's elements in row-major order, copied on the device and then read by another thread.

use std::fmt;

use cubecl::client::Client;
use cubecl::server::Handle;

use super::error::ReadError;
use super::slots::{native, read_error};
use super::storage::Storage;
use crate::summary::DType;

/// A copy of a tensor that stays on the device until it is read.
///
/// Later operations may change the tensor in place: the copy keeps the elements as they were. It can
/// be sent to another thread, which reads it while the device goes on.
#[must_use = "the copy is lost unless it is read"]
pub struct DeviceCopy {
    client: Client,
    /// `None` for a tensor without elements.
    handle: Option<Handle>,
    storage: Storage,
    shape: Vec<usize>,
}

/// Without the client, which has no such form.
impl fmt::Debug for DeviceCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceCopy")
            .field("handle", &self.handle)
            .field("storage", &self.storage)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl DeviceCopy {
    pub(super) fn new(
        client: &Client,
        handle: Option<Handle>,
        storage: Storage,
        shape: &[usize],
    ) -> Self {
        Self {
            client: client.clone(),
            handle,
            storage,
            shape: shape.to_vec(),
        }
    }

    /// The element type of the bytes that are read.
    pub fn dtype(&self) -> DType {
        self.storage.dtype()
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many bytes are read; the memory that it holds on the device is at most 3 bytes more.
    pub fn bytes(&self) -> usize {
        match self.handle {
            Some(_) => self.shape.iter().product::<usize>() * self.storage.host_size(),
            None => 0,
        }
    }

    /// The elements' bytes, blocking the calling thread until the device has made the copy.
    ///
    /// Do not call it on the device's own thread.
    ///
    /// # Errors
    /// If the kernel failed or the memory cannot be read.
    pub fn wait(mut self) -> Result<Vec<u8>, ReadError> {
        match self.handle.take() {
            None => Ok(Vec::new()),
            Some(handle) => {
                let length = self.length();
                let bytes = self.client.read_one(handle).map_err(read_error)?;
                self.elements(&bytes, length)
            }
        }
    }

    /// The same as a future, which borrows nothing.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn read(mut self) -> Result<Vec<u8>, ReadError> {
        let Some(handle) = self.handle.take() else {
            return Ok(Vec::new());
        };
        let length = self.length();
        let read = self.client.read_async(vec![handle]).await;
        let bytes = read.map_err(read_error)?;
        self.elements(bytes.first().map_or(&[], |bytes| bytes), length)
    }

    fn length(&self) -> usize {
        self.shape.iter().product::<usize>() * self.storage.host_size()
    }

    fn elements(&self, bytes: &[u8], length: usize) -> Result<Vec<u8>, ReadError> {
        let bytes = bytes.get(..length).ok_or_else(|| ReadError {
            reason: format!("{} of {length} bytes were read", bytes.len()),
        })?;
        Ok(native(bytes.to_vec(), self.storage.host_size()))
    }
}
