//! Which module call a thread was in when it asked for an operation, told by the operation's identity.
//!
//! Burn numbers tensors with one counter, in the thread that asks for them. So the number of an
//! operation's first result says when it was asked for, however much later it runs.

/// Where a thread was from some moment on, change by change; `None` where nothing is recorded.
#[derive(Clone, Debug)]
pub(super) struct Timeline<P> {
    /// From the tensor with this number on.
    changes: Vec<(u64, Option<P>)>,
}

impl<P> Default for Timeline<P> {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
        }
    }
}

impl<P: Copy + PartialEq> Timeline<P> {
    /// From the tensor numbered `from` on the thread is there.
    pub(super) fn change(&mut self, from: u64, place: Option<P>) {
        while self.changes.last().is_some_and(|last| last.0 >= from) {
            // Nothing was asked for since.
            self.changes.pop();
        }
        let before = self.changes.last().and_then(|last| last.1);
        if before != place {
            self.changes.push((from, place));
        }
    }

    /// Where the thread was when it asked for the tensor numbered `id`.
    pub(super) fn at(&self, id: u64) -> Option<P> {
        let after = self.changes.partition_point(|(from, _)| *from <= id);
        self.changes[after.checked_sub(1)?].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_belongs_to_where_its_thread_was_when_it_was_asked_for() {
        let mut timeline = Timeline::default();
        timeline.change(10, Some("run"));
        timeline.change(12, Some("first"));
        timeline.change(12, Some("second"));
        timeline.change(15, Some("first"));
        timeline.change(15, Some("run"));
        timeline.change(20, None);
        for (id, place) in [
            (0, None),
            (9, None),
            (10, Some("run")),
            (11, Some("run")),
            (12, Some("second")),
            (14, Some("second")),
            (15, Some("run")),
            (19, Some("run")),
            (20, None),
            (99, None),
        ] {
            assert_eq!(timeline.at(id), place, "tensor {id}");
        }
    }

    #[test]
    fn what_comes_and_goes_without_an_operation_leaves_nothing() {
        let mut timeline = Timeline::default();
        timeline.change(1, Some(0));
        for call in 1..1000 {
            timeline.change(2, Some(call));
            timeline.change(2, Some(0));
        }
        assert_eq!(timeline.changes, [(1, Some(0))]);
    }
}
