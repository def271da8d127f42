//! Embeddings: the original script's files, the search, the seam for models, and the built-in models.

use std::{collections::BTreeMap, path::Path};

use burnscope::similar::{
    dense::{DenseError, DenseIndex, EMBEDDINGS_FILE, MAP_FILE, TOKENS_FILE},
    embed::{self, EmbedError, Embedder, Embeddings},
    hub,
};
use safetensors::SafeTensors;

use crate::support::{Grove, data};

/// The index as the original script's libraries wrote it.
fn script_index() -> DenseIndex {
    DenseIndex::read(&data().join("script_index")).expect("reads")
}

#[test]
fn the_scripts_files_are_read() {
    let index = script_index();
    assert_eq!((index.len(), index.dimensions()), (5, 3));
    assert_eq!(index.names()[2], "oak/modeling_oak.py:OakMLP");
    assert_eq!(index.vector(2), [0.0, 0.6, 0.8]);
    assert_eq!(
        index.tokens()["oak/modeling_oak.py:OakMLP"],
        ["torch", "x", "x1"]
    );
    assert_eq!(index.note("pooling"), None);
}

#[test]
fn the_files_are_written_in_the_scripts_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let index = script_index().with_note("pooling", "mean");
    index.write(folder.path()).expect("writes");
    assert_eq!(DenseIndex::read(folder.path()).expect("reads"), index);
    let bytes = std::fs::read(folder.path().join(EMBEDDINGS_FILE)).expect("reads");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    assert_eq!(file.names(), ["embeddings"]);
    let tensor = file.tensor("embeddings").expect("the matrix");
    assert_eq!(
        (tensor.shape(), tensor.dtype()),
        (&[5, 3][..], safetensors::Dtype::F32)
    );
    let json = |name: &str| -> serde_json::Value {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(name)).expect("reads");
        let (ours, script) = (read(folder.path()), read(&data().join("script_index")));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&ours).expect("JSON"),
            serde_json::from_str::<serde_json::Value>(&script).expect("JSON")
        );
        serde_json::from_str(&ours).expect("JSON")
    };
    assert!(json(MAP_FILE)["4"].is_string());
    assert!(json(TOKENS_FILE).is_object());
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 3, "nothing half-written is left");
}

#[test]
fn the_nearest_keep_the_querys_own_name_and_are_ordered_by_age() {
    let index = script_index();
    let age = |name: &str| {
        ["oak", "elm", "yew", "ash"]
            .iter()
            .position(|model| name.starts_with(model))
    };
    let found = index
        .nearest(&[6.0, 8.0, 0.0], "yew", 3, age)
        .expect("fits");
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "oak/modeling_oak.py:rotate_half",
            "ash/modeling_ash.py:rotate_half",
            "elm/modeling_elm.py:rotate_half"
        ]
    );
    let scores: Vec<f32> = found.iter().map(|(_, score)| *score).collect();
    for (score, expected) in scores.iter().zip([1.0, 1.0, 0.6]) {
        assert!((score - expected).abs() < 1e-6, "{scores:?}");
    }
    let error = index
        .nearest(&[1.0; 4], "yew", 3, age)
        .expect_err("another size");
    assert!(
        matches!(error, DenseError::Dimensions { index: 3, model: 4 }),
        "{error}"
    );
}

#[test]
fn files_that_do_not_fit_are_refused_in_one_line() {
    let refused = |change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().expect("a folder");
        script_index().write(folder.path()).expect("writes");
        change(folder.path());
        let error = DenseIndex::read(folder.path())
            .expect_err("refused")
            .to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let write = |folder: &Path, name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("writes")
    };
    assert!(
        refused(&|folder| std::fs::remove_file(folder.join(MAP_FILE)).expect("is removed"))
            .contains(MAP_FILE)
    );
    assert!(refused(&|folder| write(folder, MAP_FILE, r#"{"0": "a"}"#)).contains("5 rows"));
    assert!(refused(&|folder| write(folder, MAP_FILE, r#"{"7": "a"}"#)).contains("no row"));
    assert!(refused(&|folder| write(folder, MAP_FILE, "[")).contains(MAP_FILE));
    assert!(refused(&|folder| write(folder, TOKENS_FILE, "3")).contains(TOKENS_FILE));
    assert!(refused(&|folder| write(folder, EMBEDDINGS_FILE, "")).contains(EMBEDDINGS_FILE));
    let nan = refused(&|folder| {
        let path = folder.join(EMBEDDINGS_FILE);
        let mut bytes = std::fs::read(&path).expect("reads");
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(path, bytes).expect("writes");
    });
    assert!(nan.contains("row 4"), "{nan}");
}

#[test]
fn any_bytes_of_a_vector_file_are_read_without_a_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    script_index().write(folder.path()).expect("writes");
    for name in [EMBEDDINGS_FILE, MAP_FILE, TOKENS_FILE] {
        let path = folder.path().join(name);
        let whole = std::fs::read(&path).expect("reads");
        for at in 0..whole.len() {
            for bit in [0, 3, 6] {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                std::fs::write(&path, bytes).expect("writes");
                let _ = DenseIndex::read(folder.path());
            }
        }
        std::fs::write(&path, whole).expect("writes");
    }
}

/// Counts letters: similar texts have similar vectors.
struct Letters;

impl Embedder for Letters {
    fn dimensions(&self) -> usize {
        26
    }

    fn pooling(&self) -> &str {
        "mean"
    }

    fn embed(&self, texts: &[&str], done: &dyn Fn(usize)) -> Result<Embeddings, EmbedError> {
        let mut vectors = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let mut counts = [0.0f32; 26];
            for byte in text.bytes().filter(u8::is_ascii_lowercase) {
                counts[usize::from(byte - b'a')] += 1.0;
            }
            vectors.extend(counts);
            done(at + 1);
        }
        Ok(Embeddings {
            vectors,
            ..Embeddings::default()
        })
    }
}

#[test]
fn an_index_is_built_by_any_embedder_under_the_scripts_names() {
    let grove = Grove::new();
    let layout = burnscope::similar::source::Layout::of(grove.root());
    let (index, embeddings, faults) = embed::build(&layout, &Letters, &|_, _| ()).expect("builds");
    assert!(faults.is_empty());
    assert_eq!((embeddings.divided, embeddings.truncated), (0, 0));
    let names: BTreeMap<&str, usize> = index
        .names()
        .iter()
        .enumerate()
        .map(|(at, name)| (name.as_str(), at))
        .collect();
    assert_eq!(names.len(), index.len(), "names are unique");
    assert!(
        names.contains_key("oak/modeling_oak.py:OakFastNorm"),
        "conditional definitions are there"
    );
    let query = index.vector(names["yew/modeling_yew.py:YewMLP"]).to_vec();
    let found = index
        .nearest(&query, "yew", 2, |name| name.to_owned())
        .expect("fits");
    assert_eq!(found[0].0, "ash/modeling_ash.py:AshMLP");
    assert!(
        (found[0].1 - 1.0).abs() < 1e-6,
        "the model's name is replaced before embedding: {found:?}"
    );
    assert_eq!(index.note("pooling"), Some("mean"));
    let norm = &index.tokens()["oak/modeling_oak.py:OakNorm"];
    assert!(
        norm.is_sorted() && norm.contains(&"ModelNorm".to_owned()),
        "{norm:?}"
    );
}

#[test]
fn a_data_set_that_is_no_name_is_refused() {
    assert!(hub::fetch("../../etc").is_err());
    assert!(hub::push("nowhere", Path::new(".")).is_err());
}

#[cfg(all(feature = "embed", feature = "flex"))]
mod built_in_models {
    use burn::tensor::Device;
    use burnscope::{models::Pooling, similar::embed::model::ModelEmbedder};

    use super::*;

    fn manifest() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
    }

    fn floats(path: &Path, name: &str) -> Vec<f32> {
        let bytes = std::fs::read(path).expect("reads");
        let file = SafeTensors::deserialize(&bytes).expect("safetensors");
        let data = file.tensor(name).expect("a tensor").data().to_vec();
        data.as_chunks()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect()
    }

    fn distance(a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        a.iter()
            .zip(b)
            .map(|(a, b)| (a - b).powi(2))
            .sum::<f32>()
            .sqrt()
    }

    fn unit(vector: &[f32]) -> Vec<f32> {
        let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
        vector.iter().map(|v| v / length).collect()
    }

    /// A tiny Qwen3 checkpoint as sentence-transformers keeps one: `t5 t7` is the tokens 5 and 7.
    fn qwen3(pooling: &str, most_tokens: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoint = manifest().join("tests/data/traces/qwen3_embed_f32/checkpoint");
        for name in ["config.json", "model.safetensors"] {
            std::fs::copy(checkpoint.join(name), folder.path().join(name)).expect("is copied");
        }
        let vocabulary: BTreeMap<String, usize> =
            (0..48).map(|at| (format!("t{at}"), at)).collect();
        let tokenizer = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"}
        });
        let write = |name: &str, value: serde_json::Value| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
            std::fs::write(path, value.to_string()).expect("writes");
        };
        write("tokenizer.json", tokenizer);
        write(
            "tokenizer_config.json",
            serde_json::json!({"padding_side": "left", "pad_token": "t0"}),
        );
        write(
            "1_Pooling/config.json",
            serde_json::json!({"word_embedding_dimension": 16, pooling: true}),
        );
        write(
            "sentence_bert_config.json",
            serde_json::json!({"max_seq_length": most_tokens}),
        );
        folder
    }

    #[test]
    fn qwen3_pools_its_last_token_under_left_padding_as_pytorch_does() {
        let folder = qwen3("pooling_mode_lasttoken", 32);
        let embedder = ModelEmbedder::load(folder.path(), &Device::flex(), None).expect("loads");
        assert_eq!(
            (embedder.dimensions(), embedder.pooling()),
            (16, "last-token")
        );
        let found = embedder
            .embed(&["t16 t25 t37 t14", "t14 t9 t47"], &|_| ())
            .expect("embeds")
            .vectors;
        // `[2, 4, 16]`: the second text is padded on the left there too.
        let states = floats(
            &manifest().join("tests/data/traces/qwen3_embed_f32/outputs.safetensors"),
            "last_hidden_state",
        );
        for (text, vector) in found.chunks_exact(16).enumerate() {
            let last = &states[(text * 4 + 3) * 16..(text * 4 + 4) * 16];
            assert!(distance(vector, &unit(last)) < 1e-5, "text {text}");
        }
    }

    #[test]
    fn qwen3_pools_the_mean_without_padding_as_pytorch_does() {
        let folder = qwen3("pooling_mode_lasttoken", 32);
        let embedder = ModelEmbedder::load(folder.path(), &Device::flex(), Some(Pooling::Mean))
            .expect("loads");
        assert_eq!(embedder.pooling(), "mean");
        let found = embedder
            .embed(&["t16 t25 t37 t14", "t14 t9 t47"], &|_| ())
            .expect("embeds")
            .vectors;
        let states = floats(
            &manifest().join("tests/data/traces/qwen3_embed_f32/outputs.safetensors"),
            "last_hidden_state",
        );
        for (text, from) in [(0, 0), (1, 1)] {
            let mut mean = vec![0.0; 16];
            for position in from..4 {
                let state = &states[(text * 4 + position) * 16..(text * 4 + position + 1) * 16];
                mean.iter_mut()
                    .zip(state)
                    .for_each(|(sum, value)| *sum += value);
            }
            assert!(
                distance(&found[text * 16..(text + 1) * 16], &unit(&mean)) < 1e-5,
                "text {text}"
            );
        }
    }

    #[test]
    fn a_long_text_is_the_weighted_mean_of_its_windows_and_a_cut_is_counted() {
        let folder = qwen3("pooling_mode_mean_tokens", 4);
        let embedder = ModelEmbedder::load(folder.path(), &Device::flex(), None).expect("loads");
        let embed = |text: &str| embedder.embed(&[text], &|_| ()).expect("embeds");
        let long = embed("t1 t2 t3\nt4 t5\nt6\n");
        assert_eq!((long.divided, long.truncated), (1, 0));
        let (first, second) = (embed("t1 t2 t3\n").vectors, embed("t4 t5\nt6\n").vectors);
        let weighted: Vec<f32> = first
            .iter()
            .zip(&second)
            .map(|(a, b)| 3.0 * a + 3.0 * b)
            .collect();
        assert!(distance(&long.vectors, &unit(&weighted)) < 1e-5);
        let cut = embed("t1 t2 t3 t4 t5 t6\n");
        assert_eq!(cut.truncated, 1);
        assert!(distance(&cut.vectors, &embed("t1 t2 t3 t4\n").vectors) < 1e-6);
    }

    #[test]
    fn a_checkpoint_that_asks_for_something_unknown_is_refused() {
        let folder = qwen3("pooling_mode_weightedmean_tokens", 32);
        let error = ModelEmbedder::load(folder.path(), &Device::flex(), None)
            .err()
            .expect("refused")
            .to_string();
        assert!(
            error.contains("pooling_mode_weightedmean_tokens"),
            "{error}"
        );
        std::fs::remove_file(folder.path().join("tokenizer.json")).expect("is removed");
        let error = ModelEmbedder::load(folder.path(), &Device::flex(), None)
            .err()
            .expect("refused")
            .to_string();
        assert!(error.contains("tokenizer.json"), "{error}");
    }

    #[test]
    fn minilm_embeds_as_its_reference_does_whatever_else_is_in_the_batch() {
        let folder = manifest().join("tests/data/downloads/minilm");
        if !folder.join("model.safetensors").is_file() {
            println!("skipped: the weights are not there; scripts/fetch-minilm.sh fetches them");
            return;
        }
        let embedder = ModelEmbedder::load(&folder, &Device::flex(), None).expect("loads");
        assert_eq!(
            (
                embedder.dimensions(),
                embedder.pooling(),
                embedder.most_tokens()
            ),
            (384, "mean", 256)
        );
        let texts = [
            "def forward(self, hidden_states): return self.norm(hidden_states)",
            "Hello world",
            "",
        ];
        let found = embedder.embed(&texts, &|_| ()).expect("embeds").vectors;
        let expected = floats(
            &manifest().join("tests/data/traces/minilm/embedding.safetensors"),
            "sentence_embedding",
        );
        let error = distance(&found[384..768], &expected);
        assert!(error < 1e-5, "{error:e}");
    }
}
