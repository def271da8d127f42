//! What existing models inherit from: the statements of `modular_*.py` files.
//!
//! The classes that other models already chose as parents are the likely parents of the next one. This
//! module reads who chose what; the weight that gets is the ranking's business.

use ruff_python_ast::{Expr, ModModule, Stmt};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// One definition taken from another model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inheritance {
    /// The name in the inheriting model.
    pub child: String,
    /// The parent's file, relative to the models' folder: `llama/modeling_llama.py`.
    pub parent_file: String,
    /// The parent's name in that file.
    pub parent: String,
}

/// Reads the classes that inherit from another model's, and the functions taken from one.
pub fn inheritances(module: &ModModule) -> Vec<Inheritance> {
    let mut imported: FxHashMap<&str, (String, &str)> = FxHashMap::default();
    let mut found = Vec::new();
    for statement in &module.body {
        match statement {
            Stmt::ImportFrom(import) => {
                let Some(file) = import
                    .module
                    .as_ref()
                    .and_then(|module| model_file(import.level, module))
                else {
                    continue;
                };
                for alias in &import.names {
                    let local = alias.asname.as_ref().unwrap_or(&alias.name);
                    imported.insert(local.as_str(), (file.clone(), alias.name.as_str()));
                    if !alias.name.starts_with(|c: char| c.is_ascii_uppercase()) {
                        found.push(Inheritance {
                            child: local.to_string(),
                            parent_file: file.clone(),
                            parent: alias.name.to_string(),
                        });
                    }
                }
            }
            Stmt::ClassDef(class) => {
                for base in class.bases() {
                    let Expr::Name(base) = base else { continue };
                    if let Some((file, parent)) = imported.get(base.id.as_str()) {
                        found.push(Inheritance {
                            child: class.name.to_string(),
                            parent_file: file.clone(),
                            parent: (*parent).to_owned(),
                        });
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// The modeling file that `from ..llama.modeling_llama import` names, relative to the models' folder.
fn model_file(level: u32, module: &str) -> Option<String> {
    let path = match level {
        0 => module.strip_prefix("transformers.models.")?,
        2 => module,
        3 => module.strip_prefix("models.")?,
        _ => return None,
    };
    let (folder, file) = path.rsplit_once('.')?;
    file.starts_with("modeling_")
        .then(|| format!("{}/{file}.py", folder.replace('.', "/")))
}
