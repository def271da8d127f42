//! The end of a session: files are waited for, devices' numbers put in their places, the trace built.

#[cfg(feature = "fusion")]
use super::fusion::{DeviceTrace, first_guilty};
use super::{
    record::{CallId, Record},
    settings::Options,
    watch::{Operations, Watched},
};
use crate::{
    format::{WriteError, jsonl::JsonlWriter},
    trace::{Node, Trace, arrange},
};

impl Record {
    /// Ends the session: waits for the tensor files, closes the journal, builds the trace.
    pub(crate) fn finish(
        &mut self,
        options: &Options,
        watched: Option<&Watched>,
        #[cfg(feature = "fusion")] device: DeviceTrace,
    ) -> (Trace, Option<WriteError>) {
        let (dropped, written) = self.dumps.finish();
        if dropped.total > 0 {
            self.note(format!(
                "the dump budget of {} bytes was reached: {} tensors have a summary but no file",
                options.dump_budget.unwrap_or_default(),
                dropped.total,
            ));
        }
        if dropped.in_flight > 0 {
            self.note(format!(
                "the device made tensors faster than they could be written within {} bytes of memory: \
                 {} tensors have a summary but no file",
                options.dump_memory, dropped.in_flight,
            ));
        }
        if let Some((name, why)) = dropped.first_not_copied {
            self.note(format!(
                "{} tensors could not be copied from their device and have no file, first {name}: {why}",
                dropped.not_copied,
            ));
        }
        self.open_journal(options);
        let mut lost_files = false;
        if let Err(lost) = written {
            lost_files = true;
            self.note(format!(
                "{} tensor files could not be written, {} first",
                lost.files, lost.name
            ));
            self.failure.get_or_insert(lost.error);
        }
        let complete = !lost_files
            && !self.panicked
            && self
                .roots
                .iter()
                .all(|root| self.calls[root.0].node.complete);
        // Whatever the filters leave out of the trace is judged, too.
        #[cfg(feature = "fusion")]
        let operations = match watched {
            Some(_) => {
                let (guilty, not_judged) = first_guilty(&device);
                let guilty = guilty.map(|(mut first, call)| {
                    first.path = call.map(|call| self.call(call).node.path.clone());
                    first
                });
                Operations {
                    guilty,
                    not_judged,
                    stopped: device.stopped,
                }
            }
            None => Operations::default(),
        };
        #[cfg(not(feature = "fusion"))]
        let operations = Operations::default();
        #[cfg(feature = "fusion")]
        let (concluded, ops) = self.complete(options, device);
        #[cfg(not(feature = "fusion"))]
        let (concluded, ops) = (Vec::new(), Vec::new());
        self.finished = true;
        let name = self.name(options);
        let roots = std::mem::take(&mut self.roots);
        let mut trace = Trace {
            name,
            source: concat!("burnscope ", env!("CARGO_PKG_VERSION")).to_owned(),
            roots: roots
                .into_iter()
                .filter_map(|root| self.build(root))
                .chain(concluded)
                .collect(),
            ops,
            complete,
            notes: Vec::new(),
        };
        arrange(&mut trace);
        if let Some(watched) = watched {
            self.note(watched.conclude(&trace, operations));
        }
        if let Some(journal) = self.journal.take()
            && let Err(error) = close(journal, &self.notes, complete)
        {
            self.failure.get_or_insert(error);
        }
        trace.notes = std::mem::take(&mut self.notes);
        (trace, self.failure.take())
    }

    /// The node of a call with its children; `None` where the filters leave nothing of it.
    fn build(&mut self, id: CallId) -> Option<Node> {
        let children = std::mem::take(&mut self.call(id).children);
        let children: Vec<Node> = children
            .into_iter()
            .filter_map(|child| self.build(child))
            .collect();
        let call = self.call(id);
        if !call.selected && children.is_empty() && call.node.children.is_empty() {
            return None;
        }
        let mut node = std::mem::take(&mut call.node);
        // Beside those that were concluded.
        node.children.extend(children);
        Some(node)
    }
}

fn close(mut journal: JsonlWriter, notes: &[String], complete: bool) -> Result<(), WriteError> {
    for note in notes {
        journal.note(note)?;
    }
    journal.finish(complete)
}
