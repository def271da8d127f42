//! Appending to a record while the run goes, and writing one of a trace that is already there.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Header, encode::Encoder};
use crate::{
    atomic::{self, Durability},
    format::WriteError,
    trace::{Node, Op, Part, TensorRecord, Timeline, Trace},
};

/// A call in a record, from its `enter` to its `exit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(u64);

/// A record that is being written.
///
/// Each event goes to the operating system at once and in one piece, so that a crash of the
/// process loses at most the line that was being made. After an error the file ends with its last
/// whole line, and every later event returns [`WriteError::Ended`]. Dropping the writer without
/// [`finish`](Self::finish) leaves a record that reads as incomplete.
pub struct JsonlWriter {
    file: File,
    path: PathBuf,
    encoder: Encoder,
    /// The bytes of the lines that are whole.
    written: u64,
    ended: bool,
}

impl JsonlWriter {
    /// Begins a record, in place of an older file of that name.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn create(path: impl Into<PathBuf>, header: &Header) -> Result<Self, WriteError> {
        let path = path.into();
        let mut writer = Self {
            file: open(&path)?,
            path,
            encoder: Encoder::default(),
            written: 0,
            ended: false,
        };
        writer.encoder.header(header);
        writer.flush()?;
        Ok(writer)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A call begins, inside `parent` or as a root call.
    ///
    /// Of the node this records what is known by now: path, kind, method, step, call, order,
    /// attribution, start time and inputs. Tensors that the record does not have yet get their lines.
    ///
    /// # Errors
    /// If the parent is none of this record's, the disk refuses, or an earlier event failed.
    pub fn enter(&mut self, parent: Option<CallId>, node: &Node) -> Result<CallId, WriteError> {
        if let Some(parent) = parent {
            self.check(parent)?;
        }
        let number = self.encoder.enter(parent.map(|parent| parent.0), node);
        self.flush()?;
        Ok(CallId(number))
    }

    /// A call ends: its outputs, duration, `complete` and pruned layers are recorded.
    ///
    /// A call that a panic leaves may be passed here with `complete` false, or have no exit at all.
    ///
    /// # Errors
    /// If the call is none of this record's, the disk refuses, or an earlier event failed.
    pub fn exit(&mut self, call: CallId, node: &Node) -> Result<(), WriteError> {
        self.check(call)?;
        self.encoder.exit(call.0, node);
        self.flush()
    }

    /// A device was asked for an operation, by this call if that is known by now.
    ///
    /// Outputs that the record does not have yet get their tensor lines.
    ///
    /// # Errors
    /// If the call is none of this record's, the disk refuses, or an earlier event failed.
    pub fn op(&mut self, call: Option<CallId>, op: &Op) -> Result<(), WriteError> {
        if let Some(call) = call {
            self.check(call)?;
        }
        self.encoder.op(call.map(|call| call.0), op);
        self.flush()
    }

    /// The numbers of a tensor became known after its line was written.
    ///
    /// The tensor is found by the record's address, else by its [`id`](TensorRecord::id). What
    /// `resolved` has of summary (or the reason that there is none), printed statistics and elements
    /// replaces what was written; what it lacks stays. Every other line with the same id that has no
    /// numbers, written before or after, gets the numbers, too, but not the elements. Nothing is
    /// written of a tensor that is not in the record.
    ///
    /// # Errors
    /// If the disk refuses or an earlier event failed.
    pub fn summary(
        &mut self,
        tensor: &Arc<TensorRecord>,
        resolved: &TensorRecord,
    ) -> Result<(), WriteError> {
        self.encoder.summary(tensor, resolved);
        self.flush()
    }

    /// Operations that are in the record turn out to belong directly to this call; `ops` are their
    /// [`order`](Op::order)s. They are inferred where the call is.
    ///
    /// An operation that was written under a call can only go to a call inside that one, and none can
    /// be told twice.
    ///
    /// # Errors
    /// If the call or an operation is none of this record's, an operation belongs elsewhere already,
    /// the disk refuses, or an earlier event failed. For the first two nothing is written.
    pub fn ops(&mut self, call: CallId, ops: &[u64]) -> Result<(), WriteError> {
        self.check(call)?;
        let told = self.encoder.ops(call.0, ops);
        told.map_err(|op| WriteError::UnknownOp {
            path: self.path.clone(),
            op,
        })?;
        self.flush()
    }

    /// Something a person should know, as one of [`Trace::notes`].
    ///
    /// # Errors
    /// If the disk refuses or an earlier event failed.
    pub fn note(&mut self, text: &str) -> Result<(), WriteError> {
        self.encoder.note(text);
        self.flush()
    }

    /// Ends the record and waits for the disk; `complete` is [`Trace::complete`].
    ///
    /// # Errors
    /// If the disk refuses or an earlier event failed.
    pub fn finish(mut self, complete: bool) -> Result<(), WriteError> {
        self.encoder.finish(complete);
        self.flush()?;
        self.file.sync_all().map_err(WriteError::io(&self.path))
    }

    fn check(&self, call: CallId) -> Result<(), WriteError> {
        if self.encoder.knows(call.0) {
            return Ok(());
        }
        Err(WriteError::UnknownCall {
            path: self.path.clone(),
            node: call.0,
        })
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        if self.ended {
            self.encoder.lines.clear();
            return Err(WriteError::Ended {
                path: self.path.clone(),
            });
        }
        if let Err(error) = self.file.write_all(&self.encoder.lines) {
            self.ended = true;
            // Whether the half line can be cut off changes nothing: readers take it for a crash.
            let _ = self.file.set_len(self.written);
            return Err(WriteError::io(&self.path)(error));
        }
        self.written += self.encoder.lines.len() as u64;
        self.encoder.lines.clear();
        Ok(())
    }
}

/// Opens a record for this writer alone, emptied.
///
/// A link that stands in its place is replaced, what it points to is left alone. A pipe or a socket,
/// which would block, is refused.
fn open(path: &Path) -> Result<File, WriteError> {
    if let Ok(known) = fs::symlink_metadata(path) {
        if known.is_symlink() {
            fs::remove_file(path).map_err(WriteError::io(path))?;
        } else if blocks(&known) {
            let reason = "a pipe or a socket is where the record should be";
            return Err(WriteError::io(path)(io::Error::other(reason)));
        }
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(WriteError::io(path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(WriteError::Busy {
                path: path.to_owned(),
            });
        }
        // A file system without locks: two writers cannot be told apart there.
        Err(TryLockError::Error(_)) => {}
    }
    // A device has no length to cut.
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        file.set_len(0).map_err(WriteError::io(path))?;
    }
    Ok(file)
}

#[cfg(unix)]
fn blocks(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_fifo() || metadata.file_type().is_socket()
}

#[cfg(not(unix))]
fn blocks(_: &fs::Metadata) -> bool {
    false
}

/// Writes the record of a whole trace; the file appears under its name when it is whole.
///
/// # Errors
/// If the system refuses.
pub fn write(path: &Path, trace: &Trace) -> Result<(), WriteError> {
    atomic::write(path, Durability::Synced, |out| write_to(out, trace))
        .map_err(WriteError::io(path))
}

/// Writes the record of a whole trace to any writer.
///
/// # Errors
/// If the writer refuses.
pub fn write_to(out: &mut dyn Write, trace: &Trace) -> std::io::Result<()> {
    let mut encoder = Encoder::default();
    encoder.header(&Header {
        name: trace.name.clone(),
        program: trace.source.clone(),
        ..Header::default()
    });
    let timeline = Timeline::new(trace);
    write_parts(out, &mut encoder, &timeline, None, timeline.roots())?;
    trace.notes.iter().for_each(|note| encoder.note(note));
    encoder.finish(trace.complete);
    out.write_all(&encoder.lines)
}

fn write_parts<'t>(
    out: &mut dyn Write,
    encoder: &mut Encoder,
    timeline: &Timeline<'t>,
    call: Option<u64>,
    parts: Vec<Part<'t>>,
) -> std::io::Result<()> {
    for part in parts {
        match part {
            Part::Op(op) => encoder.op(call, op),
            Part::Call(node) => {
                let number = encoder.enter(call, node);
                write_parts(out, encoder, timeline, Some(number), timeline.parts(node))?;
                let elapsed = node.time.is_some_and(|time| time.elapsed_ns.is_some());
                if node.complete || elapsed || node.outputs.is_some() || !node.pruned.is_empty() {
                    encoder.exit(number, node);
                }
            }
        }
        out.write_all(&encoder.lines)?;
        encoder.lines.clear();
    }
    Ok(())
}
