//! Tracing changes nothing on a CubeCL device; what Burn's fusion changes is told between two runs.

use burn::tensor::{Distribution, Tensor};
use burnscope::{Session, capture::Differs};

use super::support::device;

#[test]
fn a_traced_run_is_the_same() {
    let Some(device) = device() else { return };
    let x = Tensor::<2>::random([4, 8], Distribution::Normal(0.0, 1.0), &device);
    let w = Tensor::<2>::random([8, 8], Distribution::Normal(0.0, 1.0), &device);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    let verification = session.verify(|| x.clone().matmul(w.clone()).exp().sum_dim(1));
    assert!(verification.changed_nothing(), "{verification}");
    assert_eq!(verification.one_by_one, Some(true));
    assert_eq!(verification.fusion, None);
    let trace = session.finish().unwrap();
    // Of the traced run alone.
    assert_eq!(super::support::names(&trace), ["Matmul", "Exp", "SumDim"]);
}

/// What a process with fusion on would have saved is made here from what this one saves.
#[test]
fn a_saved_run_of_the_other_setting_is_compared() {
    let Some(device) = device() else { return };
    let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
    let other = tempfile::tempdir().unwrap();
    let verify = |bias: f32| {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::builder(folder.path()).start().unwrap();
        let result = session.verify_against(other.path(), || {
            let made = x.clone() * 2.0;
            let bias = Tensor::<1>::from_floats([0.0, 0.0, 0.0, bias], &device);
            (made.clone() + bias, made)
        });
        (result, folder)
    };
    let (alone, saved) = verify(0.0);
    assert_eq!(alone.fusion, None);
    std::fs::copy(
        saved.path().join("verify.one_by_one.safetensors"),
        other.path().join("verify.fused.safetensors"),
    )
    .unwrap();
    let (same, _) = verify(0.0);
    let fusion = same.fusion.as_ref().unwrap();
    assert!(fusion.identical(), "{same}");
    assert_eq!((fusion.outputs, fusion.not_compared), (2, 0));

    let (different, _) = verify(2.0);
    assert!(different.changed_nothing());
    let fusion = different.fusion.as_ref().unwrap();
    let [difference] = fusion.differences.as_slice() else {
        panic!("{fusion:?}")
    };
    assert_eq!(difference.output, "output.0");
    let expected = Differs::Elements {
        count: 4,
        different: 1,
        largest_absolute: 2.0,
        largest_relative: 0.2,
    };
    assert_eq!(difference.how, expected);
    assert!(
        different.to_string().contains("Burn's fusion changes"),
        "{different}"
    );

    // A file that is none is said to be so.
    std::fs::write(
        other.path().join("verify.fused.safetensors"),
        b"no such thing",
    )
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    let broken = session.verify_against(other.path(), || x.clone() * 2.0);
    assert_eq!(broken.fusion, None);
    let notes = session.finish().unwrap().notes;
    assert!(
        notes.iter().any(|note| note.contains("cannot be read")),
        "{notes:?}"
    );
}
