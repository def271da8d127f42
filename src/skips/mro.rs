//! Python's method resolution order (C3) over classes of the project and names outside of it.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Fault;
use super::project::{ClassId, Def, Project};

/// Chains of base classes longer than this are reported instead of followed.
const MAX_DEPTH: usize = 200;

/// One entry of a resolution order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ancestor {
    Class(ClassId),
    /// A class outside the project, by its dotted name, or a base that could not be found.
    Outside(Box<str>),
}

/// The order in which a class looks up its attributes, itself first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    pub order: Vec<Ancestor>,
    /// It derives from `unittest.TestCase`.
    pub is_test_case: bool,
    /// The first ancestor whose attributes cannot be known: its place in the order, and its name.
    pub opaque: Option<(usize, Box<str>)>,
}

impl Lineage {
    /// The classes of the project in the order, with their places.
    pub fn classes(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.order.iter().filter_map(|ancestor| match ancestor {
            Ancestor::Class(id) => Some(*id),
            Ancestor::Outside(_) => None,
        })
    }

    pub fn contains(&self, id: ClassId) -> bool {
        self.classes().any(|class| class == id)
    }
}

/// Resolution orders of every class asked for so far.
#[derive(Default)]
pub(crate) struct Lineages {
    known: FxHashMap<ClassId, Lineage>,
    /// What is wrong with the bases of a class.
    problems: Vec<(ClassId, Fault)>,
}

impl Lineages {
    /// The lineage of a class that was computed before.
    pub fn get(&self, id: ClassId) -> &Lineage {
        // Every class is linked before any is judged.
        &self.known[&id]
    }

    /// Whether the lineage of a class was computed.
    pub fn has(&self, id: ClassId) -> bool {
        self.known.contains_key(&id)
    }

    /// Computes the lineage of `id` and of its ancestors.
    pub fn link(&mut self, project: &Project, id: ClassId) {
        self.linearize(project, id, &mut Vec::new());
    }

    /// What is wrong with the bases of the given classes.
    pub fn problems_of(&self, classes: &FxHashSet<ClassId>) -> Vec<Fault> {
        self.problems
            .iter()
            .filter(|(id, _)| classes.contains(id))
            .map(|(_, p)| p.clone())
            .collect()
    }

    fn linearize(
        &mut self,
        project: &Project,
        id: ClassId,
        path: &mut Vec<ClassId>,
    ) -> Vec<Ancestor> {
        if let Some(lineage) = self.known.get(&id) {
            return lineage.order.clone();
        }
        let class = project.class(id);
        let source = project.module(id.module);
        if path.contains(&id) || path.len() > MAX_DEPTH {
            let problem = Fault::new(
                &*source.path,
                Some(source.line(class.offset)),
                format!(
                    "class `{}` inherits from itself through its bases",
                    class.name
                ),
            );
            self.problems.push((id, problem));
            return vec![Ancestor::Outside(
                "a class that inherits from itself".into(),
            )];
        }
        path.push(id);
        let mut parents: Vec<Vec<Ancestor>> = Vec::new();
        for base in &class.bases {
            let order = match project.resolve(id.module, base) {
                Def::Class(parent) => self.linearize(project, parent, path),
                // `tests` is this repository: a name in it that is not found is lost.
                Def::External(name) if !name.starts_with("tests.") => {
                    vec![Ancestor::Outside(name.into())]
                }
                Def::Unbound => vec![Ancestor::Outside(project.text(id.module, base).into())],
                _ => {
                    let text = project.text(id.module, base);
                    let root = text.split(['.', '[', '(']).next().unwrap_or(&text);
                    let (offset, message) =
                        project.import_problem(id.module, root).unwrap_or_else(|| {
                            (
                                class.offset,
                                format!(
                                    "base `{text}` of class `{}` cannot be resolved",
                                    class.name
                                ),
                            )
                        });
                    // Most of the library's own sources are not read: nothing is wrong with a base
                    // that lies there.
                    if !source.path.starts_with("src/") {
                        let problem = Fault::new(&*source.path, Some(source.line(offset)), message);
                        self.problems.push((id, problem));
                    }
                    vec![Ancestor::Outside(format!("{text} (unresolved)").into())]
                }
            };
            parents.push(order);
        }
        path.pop();
        let direct: Vec<Ancestor> = parents
            .iter()
            .filter_map(|order| order.first().cloned())
            .collect();
        let mut sequences = parents;
        sequences.push(direct);
        let mut order = vec![Ancestor::Class(id)];
        match merge(sequences) {
            Ok(rest) => order.extend(rest),
            Err(rest) => {
                let problem = Fault::new(
                    &*source.path,
                    Some(source.line(class.offset)),
                    format!(
                        "the bases of class `{}` have no consistent order (Python would refuse it)",
                        class.name
                    ),
                );
                self.problems.push((id, problem));
                order.extend(rest);
            }
        }
        let lineage = Lineage {
            is_test_case: order
                .iter()
                .any(|a| matches!(a, Ancestor::Outside(name) if is_test_case(name))),
            opaque: order.iter().enumerate().find_map(|(at, a)| match a {
                Ancestor::Outside(name) if !is_known(name) => Some((at, name.clone())),
                _ => None,
            }),
            order: order.clone(),
        };
        self.known.insert(id, lineage);
        order
    }
}

/// C3's merge: repeatedly takes the first head that is in no other tail. When no head qualifies,
/// the error holds what was merged so far and the rest in plain order.
fn merge(mut sequences: Vec<Vec<Ancestor>>) -> Result<Vec<Ancestor>, Vec<Ancestor>> {
    let mut merged = Vec::new();
    loop {
        sequences.retain(|sequence| !sequence.is_empty());
        if sequences.is_empty() {
            return Ok(merged);
        }
        let head = sequences
            .iter()
            .map(|sequence| &sequence[0])
            .find(|head| sequences.iter().all(|other| !other[1..].contains(head)))
            .cloned();
        let Some(head) = head else {
            for ancestor in sequences.into_iter().flatten() {
                if !merged.contains(&ancestor) {
                    merged.push(ancestor);
                }
            }
            return Err(merged);
        };
        for sequence in &mut sequences {
            if sequence[0] == head {
                sequence.remove(0);
            }
        }
        merged.push(head);
    }
}

/// Names of test case classes outside of the project.
pub(crate) fn is_test_case(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    matches!(
        last,
        "TestCase" | "IsolatedAsyncioTestCase" | "TestCasePlus" | "FunctionTestCase"
    )
}

/// Classes outside of the project that define no tests and no flags.
fn is_known(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    is_test_case(name) || matches!(last, "object" | "ABC" | "Generic" | "Protocol" | "Enum")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(name: &str) -> Ancestor {
        Ancestor::Outside(name.into())
    }

    fn orders(lists: &[&str]) -> Vec<Vec<Ancestor>> {
        lists
            .iter()
            .map(|list| list.chars().map(|c| outside(&c.to_string())).collect())
            .collect()
    }

    #[test]
    fn merging_follows_the_published_example() {
        // Python's own documentation of C3: O; D, E, F (O); B (D, E); C (D, F); A (B, C).
        let b = merge(orders(&["DO", "EO", "DE"])).unwrap();
        assert_eq!(b, orders(&["DEO"])[0]);
        let a = merge(orders(&["BDEO", "CDFO", "BC"])).unwrap();
        assert_eq!(a, orders(&["BCDEFO"])[0].to_vec());
    }

    #[test]
    fn an_impossible_order_is_an_error() {
        assert!(merge(orders(&["AB", "BA", "AB"])).is_err());
    }
}
