//! Vectors from the built-in models: a sentence-transformers folder run on a Burn device.
//!
//! Pooling, padding side and length come from the checkpoint's own configuration. Texts are batched by
//! length; a text longer than the model takes is divided at its statements and gets the mean of its
//! windows' vectors, weighted by their tokens.

use std::path::Path;

use burn::tensor::Device;
use serde_json::Value;
use tokenizers::Tokenizer;

use super::windows::divide;
use super::{EmbedError, Embedder, Embeddings};
use crate::bounded_file;
use crate::models::{self, IntMatrix, LoadedModel, Model, ModelInputs, Pooling, normalize};

/// The longest window in tokens, whatever the model takes: the original script's limit.
const MOST_TOKENS: usize = 4096;
/// The most tokens of one batch, padding included.
const BATCH_TOKENS: usize = 8192;
/// The most texts of one batch.
const BATCH_TEXTS: usize = 64;
/// The largest file of the configuration or the tokenizer that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A model with its tokenizer and what the checkpoint says about their use.
pub struct ModelEmbedder {
    model: LoadedModel,
    tokenizer: Tokenizer,
    pooling: Pooling,
    pad_left: bool,
    pad_token: i64,
    most_tokens: usize,
    dimensions: usize,
}

/// One window of a text, tokenized.
struct Window {
    text: usize,
    tokens: Vec<i64>,
}

impl ModelEmbedder {
    /// Loads a checkpoint with its `tokenizer.json`; `pooling` overrides the checkpoint's own.
    ///
    /// # Errors
    ///
    /// A folder without a supported model, tokenizer or pooling.
    pub fn load(
        folder: &Path,
        device: &Device,
        pooling: Option<Pooling>,
    ) -> Result<Self, EmbedError> {
        let model = models::load(folder, device).map_err(|e| load_error(folder, e))?;
        let path = folder.join("tokenizer.json");
        let mut tokenizer =
            Tokenizer::from_bytes(read_bounded(&path)?).map_err(|e| load_error(&path, e))?;
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|e| load_error(&path, e))?;
        let tokenizer_config = read_optional(&folder.join("tokenizer_config.json"))?;
        let pad_left = tokenizer_config["padding_side"] == "left";
        let pad_token = token_text(&tokenizer_config["pad_token"])
            .and_then(|token| tokenizer.token_to_id(token));
        let model_max = tokenizer_config["model_max_length"]
            .as_f64()
            .filter(|length| *length >= 1.0);
        let sentence_max =
            read_optional(&folder.join("sentence_bert_config.json"))?["max_seq_length"].as_u64();
        let most_tokens = [
            Some(MOST_TOKENS),
            Some(model.limits().max_positions),
            model_max.map(|length| length.min(MOST_TOKENS as f64) as usize),
            sentence_max.and_then(|length| usize::try_from(length).ok()),
        ];
        let most_tokens = most_tokens
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(MOST_TOKENS);
        let mut embedder = Self {
            pooling: match pooling {
                Some(pooling) => pooling,
                None => checkpoint_pooling(folder)?,
            },
            pad_token: pad_token.map_or(0, i64::from),
            model,
            tokenizer,
            pad_left,
            most_tokens,
            dimensions: 0,
        };
        if embedder.window_tokens() == 0 {
            return Err(load_error(
                folder,
                format!("takes only {most_tokens} tokens, fewer than its tokenizer adds"),
            ));
        }
        // The width is what the model gives, whatever its configuration calls it.
        let probe = embedder.tokens("x")?;
        let vectors = embedder.run(&[&Window {
            text: 0,
            tokens: probe,
        }])?;
        embedder.dimensions = vectors.len();
        Ok(embedder)
    }

    /// The most tokens of a window.
    pub fn most_tokens(&self) -> usize {
        self.most_tokens
    }

    /// The tokens that are left for a window's text once the tokenizer has added its own.
    fn window_tokens(&self) -> usize {
        let added = self.tokens("").map_or(0, |tokens| tokens.len());
        self.most_tokens.saturating_sub(added)
    }

    fn tokens(&self, text: &str) -> Result<Vec<i64>, EmbedError> {
        let encoding = self
            .tokenizer
            .encode(text, true)
            .map_err(|e| EmbedError::Run(e.to_string()))?;
        let mut tokens: Vec<i64> = encoding.get_ids().iter().map(|&id| i64::from(id)).collect();
        if tokens.is_empty() {
            tokens.push(self.pad_token);
        }
        Ok(tokens)
    }

    /// The windows of a text, whether there is more than one, and whether one was cut off.
    fn windows(&self, at: usize, text: &str) -> Result<(Vec<Window>, bool, bool), EmbedError> {
        let whole = self.tokens(text)?;
        if whole.len() <= self.most_tokens {
            return Ok((
                vec![Window {
                    text: at,
                    tokens: whole,
                }],
                false,
                false,
            ));
        }
        let count = |piece: &str| {
            self.tokenizer
                .encode(piece, false)
                .map_or(usize::MAX / 2, |encoding| encoding.get_ids().len())
        };
        let mut cut = false;
        let mut windows = Vec::new();
        for piece in divide(text, self.window_tokens(), &count) {
            let encoding = self
                .tokenizer
                .encode(piece, true)
                .map_err(|e| EmbedError::Run(e.to_string()))?;
            let mut tokens: Vec<i64> = encoding.get_ids().iter().map(|&id| i64::from(id)).collect();
            if tokens.len() > self.most_tokens {
                // The tokens that the tokenizer adds at the end stay at the end.
                let special = encoding.get_special_tokens_mask();
                let closing = special.iter().rev().take_while(|&&mask| mask == 1).count();
                let end = tokens.split_off(tokens.len() - closing);
                tokens.truncate(self.most_tokens - closing);
                tokens.extend(end);
                cut = true;
            }
            if !tokens.is_empty() {
                windows.push(Window { text: at, tokens });
            }
        }
        let divided = windows.len() > 1;
        Ok((windows, divided, cut))
    }

    /// The vectors of one batch, one after the other.
    fn run(&self, batch: &[&Window]) -> Result<Vec<f32>, EmbedError> {
        let longest = batch
            .iter()
            .map(|window| window.tokens.len())
            .max()
            .unwrap_or(0);
        let mut ids = Vec::with_capacity(batch.len());
        let mut mask = Vec::with_capacity(batch.len());
        for window in batch {
            let padding = longest - window.tokens.len();
            let (before, after) = if self.pad_left {
                (padding, 0)
            } else {
                (0, padding)
            };
            let row = |pad: i64, inside: &mut dyn Iterator<Item = i64>| -> Vec<i64> {
                std::iter::repeat_n(pad, before)
                    .chain(inside)
                    .chain(std::iter::repeat_n(pad, after))
                    .collect()
            };
            ids.push(row(self.pad_token, &mut window.tokens.iter().copied()));
            mask.push(row(0, &mut std::iter::repeat_n(1, window.tokens.len())));
        }
        let matrix = |rows: &[Vec<i64>]| {
            IntMatrix::from_rows(rows)
                .ok_or_else(|| EmbedError::Run("a batch without tokens".to_owned()))
        };
        let mut inputs = ModelInputs::new(matrix(&ids)?);
        inputs.attention_mask = Some(matrix(&mask)?);
        inputs
            .check(self.model.class_name(), self.model.limits())
            .map_err(|e| EmbedError::Run(e.to_string()))?;
        let tensors = inputs.to_tensors(self.model.device());
        let mask = tensors.attention_mask.clone();
        let state = last_hidden_state(self.model.model(), tensors)
            .ok_or_else(|| EmbedError::Run("the model gives no hidden states".to_owned()))?;
        let pooled = normalize(self.pooling.pool(state, mask));
        pooled
            .into_data()
            .try_to_vec::<f32>()
            .map_err(|e| EmbedError::Run(format!("{e:?}")))
    }
}

impl Embedder for ModelEmbedder {
    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn pooling(&self) -> &str {
        pooling_name(self.pooling)
    }

    fn embed(&self, texts: &[&str], done: &dyn Fn(usize)) -> Result<Embeddings, EmbedError> {
        let mut embeddings = Embeddings {
            vectors: vec![0.0; texts.len() * self.dimensions],
            ..Embeddings::default()
        };
        let mut windows = Vec::with_capacity(texts.len());
        for (at, text) in texts.iter().enumerate() {
            let (of_text, divided, cut) = self.windows(at, text)?;
            embeddings.divided += usize::from(divided);
            embeddings.truncated += usize::from(cut);
            windows.extend(of_text);
        }
        // Texts of one length need no padding; the longest come first, so that what needs the most
        // memory fails at once if at all.
        windows.sort_by_key(|window| std::cmp::Reverse(window.tokens.len()));
        let mut through = 0;
        let mut rest = windows.as_slice();
        while let Some(longest) = rest.first() {
            let size = (BATCH_TOKENS / longest.tokens.len().max(1))
                .clamp(1, BATCH_TEXTS)
                .min(rest.len());
            let (batch, after) = rest.split_at(size);
            let vectors = self.run(&batch.iter().collect::<Vec<_>>())?;
            for (window, vector) in batch.iter().zip(vectors.chunks_exact(self.dimensions)) {
                let start = window.text * self.dimensions;
                let sum = &mut embeddings.vectors[start..start + self.dimensions];
                for (sum, value) in sum.iter_mut().zip(vector) {
                    *sum += value * window.tokens.len() as f32;
                }
            }
            through += size;
            done(through * texts.len() / windows.len());
            rest = after;
        }
        for vector in embeddings.vectors.chunks_exact_mut(self.dimensions) {
            let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            if length > 0.0 {
                vector.iter_mut().for_each(|value| *value /= length);
            }
        }
        Ok(embeddings)
    }
}

/// The hidden states, without the head that a causal model would put on them.
fn last_hidden_state(
    model: &Model,
    tensors: models::InputTensors,
) -> Option<burn::tensor::Tensor<3>> {
    use crate::models::Architecture;
    let outputs = match model {
        Model::BertModel(model) => model.run(tensors),
        Model::LlamaModel(model) => model.run(tensors),
        Model::LlamaForCausalLM(model) => model.model.run(tensors),
        Model::Qwen3Model(model) => model.run(tensors),
        Model::Qwen3ForCausalLM(model) => model.model.run(tensors),
    };
    outputs.last_hidden_state
}

/// The name of a pooling on the command line and in an index.
pub fn pooling_name(pooling: Pooling) -> &'static str {
    match pooling {
        Pooling::Mean => "mean",
        Pooling::LastToken => "last-token",
        Pooling::Cls => "cls",
    }
}

/// The pooling of a name, see [`pooling_name`].
pub fn pooling_of_name(name: &str) -> Option<Pooling> {
    [Pooling::Mean, Pooling::LastToken, Pooling::Cls]
        .into_iter()
        .find(|&pooling| pooling_name(pooling) == name)
}

/// What the checkpoint's sentence-transformers configuration says; without one the mean, as the
/// original script does.
fn checkpoint_pooling(folder: &Path) -> Result<Pooling, EmbedError> {
    let path = folder.join("1_Pooling").join("config.json");
    let config = read_optional(&path)?;
    if config.is_null() {
        return Ok(Pooling::Mean);
    }
    let known = [
        ("pooling_mode_mean_tokens", Pooling::Mean),
        ("pooling_mode_lasttoken", Pooling::LastToken),
        ("pooling_mode_cls_token", Pooling::Cls),
    ];
    let chosen: Vec<&str> = config
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| key.starts_with("pooling_mode_") && value.as_bool() == Some(true))
        .map(|(key, _)| key.as_str())
        .collect();
    match chosen.as_slice() {
        [one] => known
            .iter()
            .find(|(key, _)| key == one)
            .map(|&(_, pooling)| pooling),
        _ => None,
    }
    .ok_or_else(|| {
        load_error(
            &path,
            format!("asks for the pooling {chosen:?}; mean, last token and cls are known"),
        )
    })
}

/// The text of a token, written plainly or as an object with its properties.
fn token_text(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}

fn load_error(path: &Path, reason: impl ToString) -> EmbedError {
    EmbedError::Load {
        path: path.to_path_buf(),
        reason: reason.to_string(),
    }
}

/// A JSON file, or `null` if there is none.
fn read_optional(path: &Path) -> Result<Value, EmbedError> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&read_bounded(path)?).map_err(|e| load_error(path, e))
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, EmbedError> {
    bounded_file::read(path, MAX_FILE_BYTES).map_err(|refusal| load_error(path, refusal))
}
