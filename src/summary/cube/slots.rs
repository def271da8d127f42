//! The buffers on the device into which kernels leave their few words, until they are read back.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use cubecl::client::Client;
use cubecl::server::Handle;

use super::error::ReadError;
use super::partial;
use super::storage::Storage;
use crate::summary::Summary;
use crate::summary::edge::{EdgeItems, edge_runs};

/// A request's number, in the order of requests from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

/// What a request brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Of [`enqueue`](super::CubeSummariser::enqueue).
    Summary(Summary),
    /// Of [`enqueue_edges`](super::CubeSummariser::enqueue_edges).
    Edges(EdgeItems),
}

/// What the words of a slot are.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Partials { storage: Storage, count: u32 },
    Edges { storage: Storage, shape: Vec<usize> },
}

impl Content {
    /// From the slot's words; a tensor without elements has none.
    pub(super) fn decode(&self, words: &[u32]) -> Result<Reading, ReadError> {
        match self {
            Self::Partials { count: 0, .. } => Ok(Reading::Summary(Summary::empty())),
            Self::Partials { storage, count } => {
                Ok(Reading::Summary(partial::summary(*storage, *count, words)))
            }
            Self::Edges { storage, shape } => {
                let size = storage.host_size();
                let item = if size == 8 { 2 } else { 1 };
                let bytes: Vec<u8> = words
                    .chunks_exact(item)
                    .flat_map(|words| {
                        let upper = words.get(1).copied().unwrap_or(0);
                        let bits = u64::from(words[0]) | u64::from(upper) << 32;
                        bits.to_le_bytes().into_iter().take(size)
                    })
                    .collect();
                EdgeItems::new(storage.dtype(), shape, &native(bytes, size))
                    .map(Reading::Edges)
                    .map_err(|error| ReadError {
                        reason: error.to_string(),
                    })
            }
        }
    }
}

/// Little-endian elements in the host's byte order.
pub(super) fn native(mut bytes: Vec<u8>, size: usize) -> Vec<u8> {
    if cfg!(target_endian = "big") {
        for element in bytes.chunks_exact_mut(size) {
            element.reverse();
        }
    }
    bytes
}

/// How many elements PyTorch prints of a tensor of that shape.
pub(super) fn edge_count(shape: &[usize]) -> usize {
    edge_runs(shape).iter().map(ExactSizeIterator::len).sum()
}

/// Where a kernel leaves its words.
pub(super) struct Room {
    pub(super) buffer: Handle,
    pub(super) first_word: u32,
    /// To be written to the word before the first.
    pub(super) stamp: u32,
}

/// A number that no earlier slot of the process had: memory that a kernel was to write and did not,
/// because it could not be compiled or started, may hold an earlier slot's words.
fn next_stamp() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Odd, so that every number comes before one comes again.
    NEXT.fetch_add(0x9e37_79b1, Ordering::Relaxed)
}

/// A slot in a buffer.
#[derive(Debug)]
struct Kept {
    slot: Slot,
    content: Content,
    stamp: u32,
    /// The stamp and what the kernel leaves.
    words: std::ops::Range<u32>,
}

impl Kept {
    /// From the words of its buffer; `None` if the kernel did not write it.
    fn reading(&self, words: &[u32]) -> Result<Option<(Slot, Reading)>, ReadError> {
        let range = self.words.start as usize..self.words.end as usize;
        let (stamp, words) = words
            .get(range)
            .and_then(<[u32]>::split_first)
            .ok_or_else(|| ReadError {
                reason: format!("{} of {} words were read", words.len(), self.words.end),
            })?;
        if *stamp != self.stamp {
            return Ok(None);
        }
        Ok(Some((self.slot, self.content.decode(words)?)))
    }
}

/// A buffer with the slots that are in it.
#[derive(Debug)]
struct Chunk {
    handle: Handle,
    words: u32,
    used: u32,
    slots: Vec<Kept>,
}

/// Buffers that are filled one after the other and each read once.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Words of a new buffer, unless one slot needs more.
    chunk_words: u32,
    chunks: Vec<Chunk>,
    /// Slots that need no words.
    empty: Vec<(Slot, Content)>,
    next: u64,
}

impl Buffers {
    pub(super) fn new(chunk_words: u32) -> Self {
        Self {
            chunk_words,
            chunks: Vec::new(),
            empty: Vec::new(),
            next: 0,
        }
    }

    fn slot(&mut self) -> Slot {
        let slot = Slot(self.next);
        self.next += 1;
        slot
    }

    /// A slot without words.
    pub(super) fn push_empty(&mut self, content: Content) -> Slot {
        let slot = self.slot();
        self.empty.push((slot, content));
        slot
    }

    /// Keeps room for a slot of so many words, and for its stamp before them.
    ///
    /// A new buffer is allocated when the last one has no room left.
    pub(super) fn reserve(
        &mut self,
        client: &Client,
        content: Content,
        words: u32,
    ) -> (Slot, Room) {
        let slot = self.slot();
        let words = words + 1;
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.words - chunk.used < words)
        {
            let size = self.chunk_words.max(words);
            self.chunks.push(Chunk {
                handle: client.empty(size as usize * 4),
                words: size,
                used: 0,
                slots: Vec::new(),
            });
        }
        // The list has a last one by now.
        let index = self.chunks.len() - 1;
        let chunk = &mut self.chunks[index];
        let start = chunk.used;
        chunk.used += words;
        let stamp = next_stamp();
        chunk.slots.push(Kept {
            slot,
            content,
            stamp,
            words: start..chunk.used,
        });
        let room = Room {
            buffer: chunk.handle.clone(),
            first_word: start + 1,
            stamp,
        };
        (slot, room)
    }

    /// Bytes on the device that wait to be read.
    pub(super) fn bytes(&self) -> u64 {
        let words = self.chunks.iter().map(|chunk| u64::from(chunk.words));
        words.sum::<u64>() * 4
    }

    /// Hands over all buffers; the next slot begins a new one.
    pub(super) fn take(&mut self, client: &Client) -> Pending {
        Pending {
            client: client.clone(),
            chunks: std::mem::take(&mut self.chunks),
            empty: std::mem::take(&mut self.empty),
        }
    }
}

/// Results that are still on the device, or being computed there.
///
/// It can be sent to another thread, which reads them while the device goes on.
#[must_use = "results are lost unless they are read"]
pub struct Pending {
    client: Client,
    chunks: Vec<Chunk>,
    empty: Vec<(Slot, Content)>,
}

/// Without the client, which has no such form.
impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("chunks", &self.chunks)
            .field("empty", &self.empty)
            .finish_non_exhaustive()
    }
}

impl Pending {
    /// Reads every buffer once, blocking the calling thread until the device is done with them.
    ///
    /// The results are in the order of requests; one whose kernel did not run is left out. Do not call
    /// it on the device's own thread.
    ///
    /// # Errors
    /// If a kernel failed or the memory cannot be read.
    pub fn wait(self) -> Result<Vec<(Slot, Reading)>, ReadError> {
        let bytes = match self.handles() {
            handles if handles.is_empty() => Vec::new(),
            handles => self.client.read(handles).map_err(read_error)?,
        };
        self.decode(&bytes)
    }

    /// The same as a future, which borrows nothing.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn read(self) -> Result<Vec<(Slot, Reading)>, ReadError> {
        let bytes = match self.handles() {
            handles if handles.is_empty() => Vec::new(),
            handles => self.client.read_async(handles).await.map_err(read_error)?,
        };
        self.decode(&bytes)
    }

    /// The used part of each buffer.
    fn handles(&self) -> Vec<Handle> {
        self.chunks
            .iter()
            .map(|chunk| {
                let unused = u64::from(chunk.words - chunk.used) * 4;
                chunk.handle.clone().offset_end(unused)
            })
            .collect()
    }

    fn decode<B: std::ops::Deref<Target = [u8]>>(
        &self,
        buffers: &[B],
    ) -> Result<Vec<(Slot, Reading)>, ReadError> {
        let mut results = Vec::new();
        for (slot, content) in &self.empty {
            results.push((*slot, content.decode(&[])?));
        }
        for (chunk, bytes) in self.chunks.iter().zip(buffers) {
            let words: Vec<u32> = bytes
                .as_chunks()
                .0
                .iter()
                .map(|&word| u32::from_le_bytes(word))
                .collect();
            for kept in &chunk.slots {
                results.extend(kept.reading(&words)?);
            }
        }
        results.sort_unstable_by_key(|(slot, _)| *slot);
        Ok(results)
    }
}

pub(super) fn read_error(error: impl std::fmt::Display) -> ReadError {
    ReadError {
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kernel that never ran leaves: whatever was in the memory.
    #[test]
    fn words_that_were_not_written_are_no_result() {
        let content = Content::Edges {
            storage: Storage::I32,
            shape: vec![2],
        };
        let kept = |slot, stamp, words| Kept {
            slot: Slot(slot),
            content: content.clone(),
            stamp,
            words,
        };
        let slots = [kept(0, 7, 0..3), kept(1, 8, 3..6)];
        let words = [7u32, 10, 11, 7, 12, 13];
        let found: Vec<u64> = slots
            .iter()
            .filter_map(|kept| kept.reading(&words).unwrap())
            .map(|(slot, _)| slot.0)
            .collect();
        assert_eq!(found, [0]);
    }
}
