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
        // Nothing was asked for since: each change takes a number itself.
        while self.changes.last().is_some_and(|last| last.0 + 1 >= from) {
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
        // Tensors 11 and 12.
        timeline.change(13, Some("first"));
        timeline.change(14, Some("second"));
        // Tensors 15 to 17.
        timeline.change(18, Some("first"));
        timeline.change(19, Some("run"));
        // Tensor 20.
        timeline.change(21, None);
        for (id, place) in [
            (0, None),
            (9, None),
            (11, Some("run")),
            (12, Some("run")),
            (15, Some("second")),
            (17, Some("second")),
            (20, Some("run")),
            (22, None),
            (99, None),
        ] {
            assert_eq!(timeline.at(id), place, "tensor {id}");
        }
    }

    #[test]
    fn what_comes_and_goes_without_an_operation_leaves_nothing() {
        let mut timeline = Timeline::default();
        timeline.change(1, Some(0));
        // Tensor 2.
        for call in 0..1000 {
            timeline.change(3 + 2 * call, Some(call + 1));
            timeline.change(4 + 2 * call, Some(0));
        }
        assert_eq!(timeline.changes, [(1, Some(0))]);
        assert_eq!(timeline.at(2), Some(0));
    }
}
