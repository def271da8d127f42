//! A text as the inputs of a model, by the checkpoint's own tokenizer.

use std::{error::Error, path::Path};

use burnscope::models::{IntMatrix, ModelInputs};
use tokenizers::Tokenizer;

/// Turns a text into inputs with the checkpoint's own tokenizer.
///
/// # Errors
/// If the folder has no readable `tokenizer.json` or the text gives no token.
pub fn tokenize(
    folder: &Path,
    text: &str,
    token_types: bool,
) -> Result<ModelInputs, Box<dyn Error>> {
    if text.trim().is_empty() {
        return Err("the text is empty".into());
    }
    let path = folder.join("tokenizer.json");
    if !path.is_file() {
        return Err(format!(
            "{} does not exist: --text needs the checkpoint's tokenizer; give the tokens with --inputs instead",
            path.display()
        )
        .into());
    }
    let mut tokenizer = Tokenizer::from_file(&path)
        .map_err(|error| format!("cannot read the tokenizer {}: {error}", path.display()))?;
    // The file may ask for a fixed length, as one of a batch: a trace of padding helps nobody, and a
    // text that is too long is an error rather than another text.
    tokenizer.with_padding(None);
    tokenizer
        .with_truncation(None)
        .map_err(|error| format!("cannot tokenize the text: {error}"))?;
    let encoding = tokenizer
        .encode(text, true)
        .map_err(|error| format!("cannot tokenize the text: {error}"))?;
    let row = |ids: &[u32]| IntMatrix::from_rows(&[ids.iter().map(|id| i64::from(*id)).collect()]);
    let ids = row(encoding.get_ids()).ok_or("the text has no tokens")?;
    let mut inputs = ModelInputs::new(ids);
    inputs.attention_mask = row(encoding.get_attention_mask());
    if token_types {
        inputs.token_type_ids = row(encoding.get_type_ids());
    }
    Ok(inputs)
}
