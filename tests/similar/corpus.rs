//! On transformers itself, where `scripts/fetch-transformers.sh` has fetched it.

use std::path::{Path, PathBuf};

use burnscope::similar::{
    compat,
    index::Index,
    quality::{Pair, Shares, measure},
    source::Layout,
};
use serde_json::{Map, Value};

use crate::support::data;

/// The checkout, or `None` with a word about it.
fn checkout() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/downloads/transformers");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: transformers is not there; scripts/fetch-transformers.sh fetches it");
    None
}

fn read_json<T: serde::de::DeserializeOwned>(name: &str) -> T {
    serde_json::from_str(&std::fs::read_to_string(data().join(name)).expect("data")).expect("JSON")
}

#[test]
fn compat_gives_the_scripts_jaccard_on_three_models() {
    let Some(root) = checkout() else { return };
    let layout = Layout::of(&root);
    let (files, faults) = compat::read_all(&layout, &|| ());
    assert!(faults.is_empty(), "{faults:?}");
    let expected: Map<String, Value> = read_json("script_jaccard_top5.json");
    assert_eq!(expected.len(), 3);
    for (file, definitions) in expected {
        let query = layout.root.join(&file);
        let model = compat::query_model(&query, &layout);
        let answers = compat::jaccard(&query, &model, &files, usize::MAX).expect("reads");
        let definitions = definitions.as_object().expect("a map");
        assert_eq!(answers.len(), definitions.len(), "{file}");
        for (name, scored) in &answers {
            let wanted: Vec<(String, f64)> =
                serde_json::from_value(definitions[name].clone()).expect("pairs");
            let scores: Vec<f64> = scored
                .iter()
                .take(wanted.len())
                .map(|(_, score)| *score)
                .collect();
            assert_eq!(
                scores,
                wanted.iter().map(|(_, score)| *score).collect::<Vec<_>>(),
                "{file}:{name}"
            );
            for pair in &wanted {
                assert!(scored.contains(pair), "{file}:{name}: {pair:?}");
            }
        }
    }
}

#[test]
fn known_parents_are_found_as_often_as_promised() {
    let Some(root) = checkout() else { return };
    let index = Index::build(&root, false, &|| ());
    let pairs: Vec<Pair> = read_json("inheritance_pairs.json");
    let (quality, _) = measure(&index, &pairs, false, &|| ());
    println!("{quality}");
    assert_eq!(quality.unknown, 0);
    let shares = |name: &str| -> Shares {
        quality
            .rows
            .iter()
            .find(|row| row.name == name)
            .unwrap_or_else(|| panic!("no row {name}"))
            .shares
    };
    for part in ["all", "fitted on", "kept aside"] {
        let shares = shares(&format!("default, {part}"));
        assert!(shares.exact_at_1 >= 0.65, "{part}: {shares:?}");
        assert!(shares.exact_at_5 >= 0.92, "{part}: {shares:?}");
        assert!(shares.clone_at_1 >= 0.77, "{part}: {shares:?}");
        assert!(shares.clone_at_5 >= 0.94, "{part}: {shares:?}");
    }
    let shingles = shares("TF-IDF cosine alone, all");
    assert!(shares("default, all").exact_at_1 > shingles.exact_at_1);
}
