//! The index on disk: the same answers, rebuilt in part, refused when damaged.

use std::path::Path;

use burnscope::similar::{
    analysis::{Options, QueryFile, analyse},
    corpus::Refreshed,
    error::Error,
    index::Index,
    report, store,
};
use safetensors::SafeTensors;

use crate::support::{Grove, settle};

fn load(grove: &Grove, path: &Path) -> Result<(Index, Refreshed), Error> {
    store::load(
        path,
        burnscope::similar::source::Layout::of(grove.root()),
        false,
        &|| (),
    )
}

fn answer(grove: &Grove, index: &Index) -> serde_json::Value {
    let query = QueryFile::open("yew", grove.root(), index.layout(), false).expect("opens");
    report::to_json(&analyse(index, &query, Options::default()))
}

#[test]
fn a_kept_index_answers_as_a_fresh_one_and_reads_nothing() {
    let grove = Grove::new();
    settle(grove.root());
    let path = grove.root().join("cache/index.safetensors");
    let fresh = grove.index();
    store::save(&fresh, &path).expect("saves");
    let (kept, refreshed) = load(&grove, &path).expect("loads");
    assert_eq!(refreshed.read, 0);
    assert!(!refreshed.changed());
    assert_eq!(answer(&grove, &kept), answer(&grove, &fresh));
    let left: Vec<_> = std::fs::read_dir(grove.root().join("cache"))
        .expect("a folder")
        .collect();
    assert_eq!(left.len(), 1, "nothing half-written is left");
}

#[test]
fn only_what_changed_is_read_again() {
    let grove = Grove::new();
    settle(grove.root());
    let path = grove.root().join("index.safetensors");
    store::save(&grove.index(), &path).expect("saves");
    grove.edit("oak/modeling_oak.py", "class OakMLP", "class OakOtherMLP");
    std::fs::remove_file(grove.model_file("ash/modeling_ash.py")).expect("is removed");
    grove.write("fir/modeling_fir.py", "class FirNorm:\n    pass\n");
    let (index, refreshed) = load(&grove, &path).expect("loads");
    assert_eq!((refreshed.read, refreshed.gone), (2, 1), "{refreshed:?}");
    assert!(index.find("oak/modeling_oak.py:OakOtherMLP").is_some());
    assert!(index.find("fir/modeling_fir.py:FirNorm").is_some());
    assert!(index.find("ash/modeling_ash.py:AshMLP").is_none());
    assert_eq!(answer(&grove, &index), answer(&grove, &grove.index()));
    // A page or a statement of inheritance that changes is noticed as well.
    store::save(&index, &path).expect("saves");
    grove.edit("elm/modular_elm.py", "ElmMLP(OakMLP)", "ElmMLP(OakNorm)");
    let (index, refreshed) = load(&grove, &path).expect("loads");
    assert!(refreshed.changed());
    assert_eq!(answer(&grove, &index), answer(&grove, &grove.index()));
}

#[test]
fn a_file_changed_while_it_was_read_is_read_again() {
    let grove = Grove::new();
    let path = grove.root().join("index.safetensors");
    // Nothing has settled: the files are as new as the index.
    store::save(&grove.index(), &path).expect("saves");
    let (_, refreshed) = load(&grove, &path).expect("loads");
    assert_eq!(refreshed.kept, 0, "{refreshed:?}");
}

#[test]
fn an_index_of_another_folder_is_refused() {
    let (grove, other) = (Grove::new(), Grove::new());
    let path = grove.root().join("index.safetensors");
    store::save(&other.index(), &path).expect("saves");
    let error = load(&grove, &path).err().expect("refused").to_string();
    assert!(error.contains("another folder"), "{error}");
}

#[test]
fn a_damaged_index_is_refused_and_never_a_panic() {
    let grove = Grove::new();
    settle(grove.root());
    let path = grove.root().join("index.safetensors");
    store::save(&grove.index(), &path).expect("saves");
    let whole = std::fs::read(&path).expect("reads");
    for cut in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).expect("writes");
        assert!(load(&grove, &path).is_err(), "cut to {cut}");
    }
    let mut state = 7u64;
    for _ in 0..1500 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut bytes = whole.clone();
        let at = (state >> 33) as usize % bytes.len();
        bytes[at] ^= 1 << (state & 7);
        std::fs::write(&path, &bytes).expect("writes");
        if let Ok((index, _)) = load(&grove, &path) {
            answer(&grove, &index);
        }
    }
}

#[test]
fn an_index_cannot_name_files_outside_its_folder() {
    let grove = Grove::new();
    settle(grove.root());
    let path = grove.root().join("index.safetensors");
    store::save(&grove.index(), &path).expect("saves");
    let bytes = std::fs::read(&path).expect("reads");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let corpus =
        String::from_utf8(file.tensor("corpus").expect("corpus").data().to_vec()).expect("JSON");
    let changed = corpus.replace("oak/modeling_oak.py", "../modeling_oak.py.");
    assert_eq!(
        changed.len(),
        corpus.len(),
        "the replacement keeps the length"
    );
    let at = bytes
        .windows(corpus.len())
        .position(|window| window == corpus.as_bytes())
        .expect("is in the file");
    let mut forged = bytes.clone();
    forged[at..at + corpus.len()].copy_from_slice(changed.as_bytes());
    std::fs::write(&path, forged).expect("writes");
    let error = load(&grove, &path).err().expect("refused").to_string();
    assert!(error.contains("damaged"), "{error}");
}
