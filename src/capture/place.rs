//! Where a call belongs: the path of its module, found by parameters first, then by what the source says.
//!
//! It decides and counts; what is kept of a call is `record`'s matter.

use super::{
    record::{CallId, Record},
    settings::Options,
};
use crate::trace::Attribution;

impl Record {
    /// Gives a call its path and what follows from it.
    pub(super) fn place(&mut self, options: &Options, id: CallId) {
        let (path, attribution) = self.resolve(options, id);
        let step = self.calls[id.0].node.step;
        let count = self.counts.entry((step, path.clone())).or_default();
        let number = std::mem::replace(count, *count + 1);
        let known = self.names.kind(&path).map(str::to_owned);
        self.count_hint(id, &path);
        let call = self.call(id);
        call.selected = options.selects(&path);
        call.node.kind = Some(known.unwrap_or_else(|| call.receiver.kind().to_owned()));
        call.node.path = path;
        call.node.call = number;
        call.node.attribution = attribution;
    }

    /// Notes which element of a list of modules comes next under the same name in the caller's source:
    /// the one after this call's, whether that was found by its parameters or by its turn.
    fn count_hint(&mut self, id: CallId, path: &str) {
        let call = &self.calls[id.0];
        let Some(parent) = call.parent else { return };
        let list = format!("{}.{}.", self.calls[parent.0].node.path, call.hint);
        let element = path
            .strip_prefix(&list)
            .and_then(|rest| rest.split('.').next()?.parse::<u64>().ok());
        let next = element.unwrap_or(call.hint_index) + 1;
        let hint = call.hint.clone();
        self.call(parent).hints.insert(hint, next);
    }

    /// The path of the module that a call's receiver is, and how sure that is.
    fn resolve(&self, options: &Options, id: CallId) -> (String, Attribution) {
        let call = &self.calls[id.0];
        let (parent, step, hint) = (call.parent, call.node.step, call.hint.clone());
        let above = parent.map(|parent| &self.calls[parent.0]);
        if let Some(first) = &call.receiver.first_param {
            let mut found = self
                .names
                .candidates(first, &options.segments, call.receiver.kind());
            if let Some(above) = above
                && found.len() > 1
            {
                narrow(&mut found, &above.node.path, &hint);
            }
            if found.len() == 1 {
                return (found.remove(0), Attribution::Exact);
            }
            // Shared parameters: the calls are given to the paths in turn.
            let uses = |path: &String| {
                let count = self.counts.get(&(step, path.clone()));
                count.copied().unwrap_or(0)
            };
            if let Some(path) = found.iter().min_by_key(|path| uses(path)) {
                return (path.clone(), Attribution::Inferred);
            }
        }
        let Some(above) = above else {
            let name = options.name.as_deref().or(self.names.first_root());
            let kind = call.receiver.kind();
            // A model without parameters, or one that was never attached, is taken for the root.
            return (name.unwrap_or(kind).to_owned(), Attribution::Inferred);
        };
        let path = above.node.path.clone();
        if hint == "self" && above.receiver.type_name == call.receiver.type_name {
            return (path, Attribution::Exact);
        }
        if hint.is_empty() {
            return (
                format!("{path}.{}", call.receiver.kind()),
                Attribution::Inferred,
            );
        }
        let named = format!("{path}.{hint}");
        // An element of a list of modules, called in a loop.
        let element = format!("{named}.{}", call.hint_index);
        if self.names.knows(&element) {
            return (element, Attribution::Exact);
        }
        let attribution = if self.names.knows(&named) {
            Attribution::Exact
        } else {
            Attribution::Inferred
        };
        (named, attribution)
    }
}

/// Of several paths, keeps those that the caller's own path and the name in its source speak for.
fn narrow(found: &mut Vec<String>, within: &str, hint: &str) {
    let prefix = format!("{within}.");
    let named = format!("{prefix}{hint}");
    let element = format!("{named}.");
    let called = |path: &String| *path == named || path.starts_with(&element);
    if !hint.is_empty() && found.iter().any(called) {
        found.retain(called);
    } else if found.iter().any(|path| path.starts_with(&prefix)) {
        found.retain(|path| path.starts_with(&prefix));
    }
}
