//! The modules of the attached models and which parameters each owns: what operations are matched with.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use super::{
    debug_text::DebugText,
    template::{self, Pattern},
};
use crate::capture::names::Entered;

/// Containers of `Module::visit` that are a level of a path and no module.
const LEVELS: &[&str] = &["Array", "Reparameterization", "Tuple", "Vec"];
/// Types of fields that are no modules although they are visited like one.
const NO_MODULES: &[&str] = &["None", "Param", "PhantomData", "RunningState", "Tensor"];

/// The modules of the attached models, in the order in which `Module::visit` goes through them.
#[derive(Debug, Default)]
pub(crate) struct ModuleTree {
    modules: Vec<Module>,
    by_path: HashMap<String, usize>,
    /// Parameters by full path; a shared one has the same number under each of its paths.
    parameters: HashMap<String, usize>,
    /// The modules that own each parameter, in the order of the walk.
    owners: Vec<Vec<usize>>,
}

/// A module: something with a `forward`, as far as one can know.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Full path.
    pub(super) path: String,
    /// The type, where it is known.
    pub(super) kind: Option<String>,
    /// Other types and variants by which the module may be known, most telling first.
    pub(super) mentions: Vec<String>,
    /// The patterns of its type; of a type without one, those of the first that it mentions.
    pub(super) patterns: Vec<&'static Pattern>,
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    /// Whether the module or a part of it has parameters.
    pub(super) has_parameters: bool,
    /// Whether it owns parameters itself.
    pub(super) owns_parameters: bool,
}

impl ModuleTree {
    /// Adds a model. `full` makes a full path of a relative one; `shared` tells parameters apart.
    pub(crate) fn add<Id: Copy + Eq + Hash>(
        &mut self,
        full: impl Fn(&str) -> String,
        entered: &[Entered],
        parameters: &[(Id, String)],
        shared: &mut HashMap<Id, usize>,
        text: &DebugText,
    ) {
        let before = self.modules.len();
        let mut containers: HashMap<&str, &str> = HashMap::new();
        for field in entered {
            if let Some(above) = parent(&field.path) {
                containers.insert(above, &field.container);
            }
        }
        let is_parameter: HashMap<&str, Id> = parameters
            .iter()
            .map(|(id, path)| (path.as_str(), *id))
            .collect();
        let paths = std::iter::once("").chain(entered.iter().map(|field| field.path.as_str()));
        let no_module = |path: &str| {
            let described = text.describe(path);
            is_parameter.contains_key(path)
                || parent(path).is_some_and(|above| is_parameter.contains_key(above))
                || described.is_some_and(|(name, _)| NO_MODULES.contains(&name))
        };
        let with_parts: HashSet<&str> = entered
            .iter()
            .filter(|field| !no_module(&field.path))
            .filter_map(|field| parent(&field.path))
            .collect();
        // Relative paths to modules; a variant of an enum that has no parts is the enum itself.
        let mut local: HashMap<&str, usize> = HashMap::new();
        for path in paths {
            let described = text.describe(path);
            let container = containers.get(path).copied();
            let nearest = ancestors(path).find_map(|path| local.get(path).copied());
            let is_level = container.is_some_and(|container| LEVELS.contains(&container));
            if is_level || no_module(path) {
                continue;
            }
            let (described, mentions) = described.unwrap_or_default();
            let mut names: Vec<&str> = container
                .and_then(|container| container.split_once(':'))
                .map(|(_, kind)| kind)
                .into_iter()
                .chain((!described.is_empty()).then_some(described))
                .chain(mentions)
                .collect();
            names.dedup();
            let is_variant = parent(path)
                .and_then(|above| containers.get(above))
                .is_some_and(|container| container.starts_with("Enum:"));
            if let (true, false, Some(whole)) = (is_variant, with_parts.contains(path), nearest) {
                let mentions = &mut self.modules[whole].mentions;
                names
                    .iter()
                    .rev()
                    .for_each(|name| mentions.insert(0, (*name).to_owned()));
                local.insert(path, whole);
                continue;
            }
            let index = self.modules.len();
            let mut names = names.into_iter().map(str::to_owned);
            self.modules.push(Module {
                path: full(path),
                kind: names.next(),
                mentions: names.collect(),
                parent: nearest,
                ..Module::default()
            });
            self.by_path.insert(full(path), index);
            if let Some(above) = nearest {
                self.modules[above].children.push(index);
            }
            local.insert(path, index);
        }
        for module in &mut self.modules[before..] {
            module.patterns = module
                .kind
                .iter()
                .chain(&module.mentions)
                .map(|kind| template::of_kind(kind).collect::<Vec<_>>())
                .find(|patterns| !patterns.is_empty())
                .unwrap_or_default();
        }
        for (id, path) in parameters {
            let number = *shared.entry(*id).or_insert_with(|| {
                self.owners.push(Vec::new());
                self.owners.len() - 1
            });
            self.parameters.insert(full(path), number);
            let Some(owner) = ancestors(path).find_map(|path| local.get(path).copied()) else {
                continue;
            };
            if !self.owners[number].contains(&owner) {
                self.owners[number].push(owner);
            }
            self.modules[owner].owns_parameters = true;
            let mut at = Some(owner);
            while let Some(module) = at {
                self.modules[module].has_parameters = true;
                at = self.modules[module].parent;
            }
        }
    }

    pub(super) fn module(&self, index: usize) -> &Module {
        &self.modules[index]
    }

    pub(super) fn at(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    /// The number of the parameter at a full path.
    pub(super) fn parameter(&self, path: &str) -> Option<usize> {
        self.parameters.get(path).copied()
    }

    /// The modules that own a parameter.
    pub(super) fn owners(&self, parameter: usize) -> &[usize] {
        &self.owners[parameter]
    }

    /// The module itself and everything that contains it, innermost first.
    pub(super) fn chain(&self, module: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(module), |at| self.modules[*at].parent)
    }

    /// Whether `module` is a part of `container`.
    pub(super) fn is_below(&self, module: usize, container: usize) -> bool {
        self.chain(module).skip(1).any(|at| at == container)
    }

    /// The part of `container` that `module` is or is in; the root where there is no container.
    pub(super) fn part_of(&self, container: Option<usize>, module: usize) -> Option<usize> {
        self.chain(module)
            .find(|at| self.modules[*at].parent == container)
    }

    /// Whether the module owns parameters and no part of it does.
    pub(super) fn is_leaf(&self, module: usize) -> bool {
        let module = &self.modules[module];
        module.owns_parameters
            && !module
                .children
                .iter()
                .any(|child| self.modules[*child].has_parameters)
    }
}

/// The paths above `path`, longest first, the empty one last; none of the empty path.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(path), |path| parent(path))
}

fn parent(path: &str) -> Option<&str> {
    match path {
        "" => None,
        path => Some(path.rsplit_once('.').map_or("", |(above, _)| above)),
    }
}
