//! The names a model gives itself, and their replacement by one neutral word.
//!
//! `Qwen3MoeAttention` and `LlamaAttention` are the same thing under two names. What is replaced must
//! stand at the boundaries of a word: the model `sam` is not in `downsample`.

use rustc_hash::FxHashSet;

use ruff_python_ast::{ModModule, Stmt};
use serde::{Deserialize, Serialize};

/// What a model's name becomes where it is written like a class.
pub const CLASS_WORD: &str = "Model";
/// What a model's name becomes where it is written like a variable.
pub const SNAKE_WORD: &str = "model";

/// The names of one modeling file's model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelNames {
    /// As in class names (`Qwen3Moe`), longest first.
    class: Vec<String>,
    /// As in variables, lower case (`qwen3_moe`), longest first.
    snake: Vec<String>,
}

/// A text in lower case without anything but letters and digits: `xlm-roberta`, `XLMRoberta` and
/// `xlm_roberta` are one model.
pub fn normalised(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// The model that a file is about by its own name: `modeling_NAME.py` is `NAME`, `NAME.py` is `NAME`.
pub fn file_model(file_name: &str) -> &str {
    let stem = file_name.strip_suffix(".py").unwrap_or(file_name);
    stem.strip_prefix("modeling_")
        .filter(|rest| !rest.is_empty())
        .unwrap_or(stem)
}

impl ModelNames {
    /// Collects the names from the folder, the file's own name and the classes of the file.
    ///
    /// Class names count where they spell the folder or file, or stand before `PreTrainedModel`;
    /// the names before `Config` count if nothing shorter covers them, so that `CLIPTextConfig`
    /// beside `CLIPPreTrainedModel` leaves the word `Text` alone.
    pub fn of(model: &str, file_name: &str, module: &ModModule) -> Self {
        let stem = file_model(file_name);
        let spelled = [normalised(stem), normalised(model)];
        let mut class = FxHashSet::default();
        let mut configs = Vec::new();
        let mut see = |name: &str| {
            for spelled in spelled.iter().filter(|s| s.len() >= 2) {
                if let Some(prefix) = spelled_prefix(name, spelled) {
                    class.insert(prefix.to_owned());
                }
            }
            if let Some(head) = name
                .strip_suffix("PreTrainedModel")
                .filter(|h| h.len() >= 2)
            {
                class.insert(head.to_owned());
            }
            if let Some(head) = name.strip_suffix("Config").filter(|h| h.len() >= 2) {
                configs.push(head.to_owned());
            }
        };
        for statement in &module.body {
            match statement {
                Stmt::ClassDef(class) => see(&class.name),
                Stmt::ImportFrom(import) => {
                    let own = import.level == 1
                        && import
                            .module
                            .as_ref()
                            .is_some_and(|m| m.starts_with("configuration_"));
                    if own {
                        import.names.iter().for_each(|alias| see(&alias.name));
                    }
                }
                _ => {}
            }
        }
        let all: Vec<String> = class.iter().cloned().collect();
        class.retain(|name| {
            normalised(name) == spelled[0]
                || !all
                    .iter()
                    .any(|shorter| shorter != name && starts_as_word(name, shorter))
        });
        for head in configs {
            if !class
                .iter()
                .any(|name| *name == head || starts_as_word(&head, name))
            {
                class.retain(|name| {
                    !starts_as_word(name, &head) || spelled.contains(&normalised(name))
                });
                class.insert(head);
            }
        }
        let mut snake: FxHashSet<String> = class.iter().map(|name| name.to_lowercase()).collect();
        for name in [model, stem] {
            snake.insert(name.to_lowercase());
            snake.insert(normalised(name));
        }
        snake.retain(|name| name.len() >= 2);
        Self {
            class: longest_first(class),
            snake: longest_first(snake),
        }
    }

    /// Names given by hand, for code that stands in no file.
    pub fn from_parts(class: &[&str], snake: &[&str]) -> Self {
        Self {
            class: longest_first(class.iter().map(|s| (*s).to_owned()).collect()),
            snake: longest_first(snake.iter().map(|s| s.to_lowercase()).collect()),
        }
    }

    /// The class spellings, longest first.
    pub fn class_names(&self) -> &[String] {
        &self.class
    }

    /// The part of a class name after the model's own name, or the whole name.
    pub fn role<'a>(&self, name: &'a str) -> &'a str {
        self.class
            .iter()
            .find(|own| name.len() > own.len() && starts_as_word(name, own))
            .map_or(name, |own| &name[own.len()..])
    }

    /// The text with every name of the model replaced, as a person would read it.
    pub fn rename(&self, text: &str) -> String {
        let mut renamed = String::with_capacity(text.len());
        self.rename_into(text, CLASS_WORD, SNAKE_WORD, &mut renamed);
        renamed
    }

    /// The text with class spellings replaced by `class_word` and variable spellings by `snake_word`.
    pub fn rename_into(&self, text: &str, class_word: &str, snake_word: &str, out: &mut String) {
        let bytes = text.as_bytes();
        let mut copied = 0;
        let mut at = 0;
        while at < bytes.len() {
            let replaced = self.match_at(bytes, at);
            match replaced {
                Some((length, is_class)) => {
                    out.push_str(&text[copied..at]);
                    let shouted = bytes[at..at + length]
                        .iter()
                        .all(|b| !b.is_ascii_lowercase());
                    match (is_class, shouted) {
                        (true, _) => out.push_str(class_word),
                        (false, true) => out.push_str(&snake_word.to_uppercase()),
                        (false, false) => out.push_str(snake_word),
                    }
                    at += length;
                    copied = at;
                }
                None => at += 1,
            }
        }
        out.push_str(&text[copied..]);
    }

    /// The length of the name that stands at a byte, and whether it is written like a class.
    fn match_at(&self, bytes: &[u8], at: usize) -> Option<(usize, bool)> {
        let before = at.checked_sub(1).map(|i| bytes[i]);
        if before.is_some_and(|b| !b.is_ascii()) {
            return None;
        }
        let here = bytes[at];
        if here.is_ascii_uppercase() && !before.is_some_and(|b| b.is_ascii_uppercase()) {
            for name in &self.class {
                if bytes[at..].starts_with(name.as_bytes()) && word_ends(bytes, at + name.len()) {
                    return Some((name.len(), true));
                }
            }
        }
        if here.is_ascii_alphanumeric() && !before.is_some_and(|b| b.is_ascii_alphanumeric()) {
            for name in &self.snake {
                let end = at + name.len();
                let same = bytes
                    .get(at..end)
                    .is_some_and(|part| part.eq_ignore_ascii_case(name.as_bytes()));
                let ends = !bytes
                    .get(end)
                    .is_some_and(|b| b.is_ascii_alphanumeric() || !b.is_ascii());
                if same && ends {
                    return Some((name.len(), false));
                }
            }
        }
        None
    }
}

fn longest_first(names: FxHashSet<String>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    names
}

/// Whether a word of a class name may end before `at`: the rest starts with no lower-case letter or digit.
fn word_ends(bytes: &[u8], at: usize) -> bool {
    !bytes
        .get(at)
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || !b.is_ascii())
}

fn starts_as_word(name: &str, prefix: &str) -> bool {
    name.starts_with(prefix) && word_ends(name.as_bytes(), prefix.len())
}

/// The part of a class name that spells a model, letters and digits alone compared.
fn spelled_prefix<'a>(name: &'a str, spelled: &str) -> Option<&'a str> {
    let mut rest = spelled.bytes();
    let mut expected = rest.next();
    for (at, byte) in name.bytes().enumerate() {
        if expected.is_none() {
            return word_ends(name.as_bytes(), at).then(|| &name[..at]);
        }
        if byte == b'_' {
            continue;
        }
        if Some(byte.to_ascii_lowercase()) != expected {
            return None;
        }
        expected = rest.next();
    }
    expected.is_none().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(model: &str, file: &str, source: &str) -> ModelNames {
        let parsed = crate::similar::source::parse(source).expect("test source parses");
        ModelNames::of(model, file, parsed.syntax())
    }

    #[test]
    fn a_name_inside_a_word_stays() {
        let sam = names("sam", "modeling_sam.py", "class SamModel: pass\n");
        assert_eq!(
            sam.rename("downsample(sample, sam_mask, SamEncoder, Same, SAM_DOC, self.sam)"),
            "downsample(sample, model_mask, ModelEncoder, Same, MODEL_DOC, self.model)"
        );
    }

    #[test]
    fn the_shortest_family_name_leaves_the_role_alone() {
        let clip = names(
            "clip",
            "modeling_clip.py",
            "from .configuration_clip import CLIPConfig, CLIPTextConfig\nclass CLIPPreTrainedModel: pass\n",
        );
        assert_eq!(
            clip.rename("CLIPTextEmbeddings(config: CLIPTextConfig)"),
            "ModelTextEmbeddings(config: ModelTextConfig)"
        );
        assert_eq!(clip.role("CLIPTextEmbeddings"), "TextEmbeddings");
    }

    #[test]
    fn a_class_name_that_is_not_spelled_like_its_folder_is_found() {
        let ast = names(
            "audio_spectrogram_transformer",
            "modeling_audio_spectrogram_transformer.py",
            "class ASTPreTrainedModel: pass\nclass ASTMLP: pass\n",
        );
        assert_eq!(ast.rename("ASTMLP(ASTConfig)"), "ModelMLP(ModelConfig)");
    }

    #[test]
    fn another_model_of_the_family_is_not_renamed() {
        let llama = names("llama", "modeling_llama.py", "class LlamaModel: pass\n");
        assert_eq!(
            llama.rename("Llama4Attention llama4 LlamaAttention"),
            "Llama4Attention llama4 ModelAttention"
        );
    }

    #[test]
    fn text_that_is_not_ascii_survives() {
        let llama = names("llama", "modeling_llama.py", "class LlamaModel: pass\n");
        assert_eq!(
            llama.rename("é Llama ñllama «llama»"),
            "é Model ñllama «llama»"
        );
    }
}
