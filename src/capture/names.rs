//! Which path a module has: learnt once by walking the model, found again by the identity of parameters.
//!
//! Addresses are never trusted for this: a model may be moved or cloned between attaching and running.

use std::collections::{HashMap, HashSet};

use burn::{
    module::{Module, ModuleVisitor, Param, ParamId},
    tensor::{Bool, Int, Tensor},
};

#[cfg(any(feature = "fusion", test))]
use super::infer::{DebugText, ModuleTree};

/// Rules that turn field names into the checkpoint's where Rust cannot spell them (`self_` → `self`).
///
/// Each rule replaces one whole path segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentNames(Vec<(String, String)>);

impl SegmentNames {
    pub(crate) fn add(&mut self, field: &str, name: &str) {
        self.0.push((field.to_owned(), name.to_owned()));
    }

    /// The name that `path` has after every segment was renamed.
    pub(crate) fn rename(&self, path: &str) -> String {
        if self.0.is_empty() {
            return path.to_owned();
        }
        let renamed: Vec<&str> = path
            .split('.')
            .map(|segment| {
                let rule = self.0.iter().find(|(field, _)| field == segment);
                rule.map_or(segment, |(_, name)| name)
            })
            .collect();
        renamed.join(".")
    }
}

/// The modules and parameters of every attached model.
#[derive(Debug, Default)]
pub(crate) struct ModuleNames {
    /// The paths below which a parameter was found, outermost module first: several where a
    /// parameter is shared (tied weights, cloned layers).
    by_param: HashMap<ParamId, Vec<String>>,
    /// The type of each module that contains something.
    kinds: HashMap<String, String>,
    /// Every path, parameterless modules included.
    known: HashSet<String>,
    roots: Vec<String>,
    /// What calls are concluded with where only operations are seen.
    #[cfg(any(feature = "fusion", test))]
    tree: ModuleTree,
    /// The tree's number for each parameter.
    #[cfg(any(feature = "fusion", test))]
    in_tree: HashMap<ParamId, usize>,
}

/// The walk of one module: its parameters with their paths, relative to it.
#[derive(Default)]
struct Walk {
    path: Vec<String>,
    params: Vec<(ParamId, String)>,
    kinds: Vec<(String, String)>,
    entered: Vec<Entered>,
}

/// One field that a walk came to.
#[derive(Clone, Debug)]
pub(crate) struct Entered {
    /// Its path relative to the module walked.
    pub(crate) path: String,
    /// What contains it, as Burn says it: `Struct:Linear`, `Enum:Activation`, `Vec`.
    #[cfg_attr(
        not(any(feature = "fusion", test)),
        expect(dead_code, reason = "only operations need it")
    )]
    pub(crate) container: String,
}

/// Visits parameters of every kind by `self.param(id)`. Only identities are read: a lazy parameter must
/// not be initialised by being looked at.
macro_rules! visit_identities {
    () => {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.param(param.id);
        }

        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            self.param(param.id);
        }

        fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
            self.param(param.id);
        }
    };
}

/// A model as it was walked: its code, which may be the user's, runs no more.
pub(crate) struct Attached {
    walk: Walk,
    #[cfg(any(feature = "fusion", test))]
    text: DebugText,
}

impl Attached {
    /// Walks through every parameter and module.
    pub(crate) fn of<M: Module>(model: &M) -> Self {
        let mut walk = Walk::default();
        model.visit(&mut walk);
        Self {
            walk,
            #[cfg(any(feature = "fusion", test))]
            text: DebugText::of(model),
        }
    }
}

impl Walk {
    fn param(&mut self, id: ParamId) {
        self.params.push((id, self.path.join(".")));
    }
}

impl ModuleVisitor for Walk {
    visit_identities!();

    fn enter_module(&mut self, name: &str, container: &str) {
        // The type named is the one of what contains `name`.
        let kind = container
            .split_once(':')
            .map_or(container, |(_, kind)| kind);
        self.kinds.push((self.path.join("."), kind.to_owned()));
        self.path.push(name.to_owned());
        self.entered.push(Entered {
            path: self.path.join("."),
            container: container.to_owned(),
        });
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}

/// The first parameter of a module and where in the module it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstParam {
    id: ParamId,
    path: String,
}

impl FirstParam {
    pub(crate) fn of<M: Module>(module: &M) -> Option<Self> {
        struct First {
            path: Vec<String>,
            found: Option<FirstParam>,
        }
        impl First {
            fn param(&mut self, id: ParamId) {
                self.found.get_or_insert_with(|| FirstParam {
                    id,
                    path: self.path.join("."),
                });
            }
        }
        impl ModuleVisitor for First {
            visit_identities!();

            fn enter_module(&mut self, name: &str, _: &str) {
                if self.found.is_none() {
                    self.path.push(name.to_owned());
                }
            }

            fn exit_module(&mut self, _: &str, _: &str) {
                if self.found.is_none() {
                    self.path.pop();
                }
            }
        }
        let mut first = First {
            path: Vec::new(),
            found: None,
        };
        module.visit(&mut first);
        first.found
    }
}

impl ModuleNames {
    /// Learns a walked model under the name `root`.
    pub(crate) fn attach(&mut self, root: &str, model: Attached, names: &SegmentNames) {
        let walk = model.walk;
        let full = |path: &str| match path {
            "" => root.to_owned(),
            path => format!("{root}.{}", names.rename(path)),
        };
        #[cfg(any(feature = "fusion", test))]
        self.tree.add(
            full,
            &walk.entered,
            &walk.params,
            &mut self.in_tree,
            &model.text,
        );
        for (id, path) in walk.params {
            self.by_param.entry(id).or_default().push(full(&path));
        }
        for (path, kind) in walk.kinds {
            self.kinds.insert(full(&path), kind);
        }
        self.known.insert(root.to_owned());
        self.known
            .extend(walk.entered.iter().map(|field| full(&field.path)));
        self.roots.push(root.to_owned());
    }

    /// The attached models' modules, to conclude calls from operations.
    #[cfg(any(feature = "fusion", test))]
    #[cfg_attr(
        not(feature = "fusion"),
        expect(dead_code, reason = "only operations need it")
    )]
    pub(crate) fn tree(&self) -> &ModuleTree {
        &self.tree
    }

    /// The name of the first attached model.
    pub(crate) fn first_root(&self) -> Option<&str> {
        self.roots.first().map(String::as_str)
    }

    pub(crate) fn kind(&self, path: &str) -> Option<&str> {
        self.kinds.get(path).map(String::as_str)
    }

    pub(crate) fn knows(&self, path: &str) -> bool {
        self.known.contains(path)
    }

    /// Every path at which a module with this first parameter was attached.
    ///
    /// `kind` tells a module from one that merely contains it as its first field.
    pub(crate) fn candidates(
        &self,
        first: &FirstParam,
        names: &SegmentNames,
        kind: &str,
    ) -> Vec<String> {
        let suffix = names.rename(&first.path);
        let paths = self.by_param.get(&first.id).into_iter().flatten();
        let mut found: Vec<String> = paths
            .filter_map(|path| path.strip_suffix(suffix.as_str())?.strip_suffix('.'))
            .map(str::to_owned)
            .collect();
        if found.len() > 1 {
            let same_kind: Vec<String> = found
                .iter()
                .filter(|path| self.kind(path).is_none_or(|known| known == kind))
                .cloned()
                .collect();
            if !same_kind.is_empty() {
                found = same_kind;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_segments_are_renamed() {
        let mut names = SegmentNames::default();
        names.add("self_", "self");
        assert_eq!(
            names.rename("attention.self_.query"),
            "attention.self.query"
        );
        assert_eq!(
            names.rename("attention.self_norm.query"),
            "attention.self_norm.query"
        );
    }
}
