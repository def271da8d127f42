//! The elements themselves: the printed few, and copies.

use burnscope::summary::cube::{CubeSummariser, Reading, Storage};
use burnscope::summary::{EdgeItems, EdgeValues, edge_runs};

use crate::support::{Case, STORAGES, client};

/// Shape, strides and offset.
fn shapes_with_edges() -> Vec<(Vec<usize>, Vec<usize>, usize)> {
    vec![
        (vec![], vec![], 3),
        (vec![7], vec![1], 0),
        (vec![1000], vec![1], 1),
        (vec![1001], vec![1], 1),
        (vec![1001], vec![3], 0),
        (vec![6, 200], vec![200, 1], 0),
        (vec![7, 200], vec![256, 1], 0),
        (vec![200, 7], vec![1, 200], 2),
        (vec![5, 1, 40, 30], vec![1200, 77, 30, 1], 0),
        (vec![40, 30, 20], vec![1, 0, 40], 0),
        (vec![3, 4, 5, 6, 5], vec![600, 150, 30, 5, 1], 0),
        (vec![9, 8, 7, 6, 5], vec![1680, 210, 30, 5, 1], 0),
        (vec![4, 0, 9], vec![0, 9, 1], 0),
    ]
}

#[test]
fn edge_items_are_those_of_the_host() {
    let Some(client) = client() else { return };
    for storage in STORAGES {
        let cases: Vec<Case> = shapes_with_edges()
            .iter()
            .map(|(shape, strides, offset)| Case::random(storage, shape, strides, *offset))
            .collect();
        let mut summariser = CubeSummariser::with_buffer_bytes(&client, 4096);
        for case in &cases {
            let handle = case.upload(&client);
            summariser.enqueue_edges(&case.tensor(&handle)).unwrap();
        }
        let readings = summariser.flush().wait().unwrap();
        assert_eq!(readings.len(), cases.len());
        for ((_, reading), case) in readings.into_iter().zip(&cases) {
            let host = EdgeItems::gather(&case.view());
            assert_eq!(reading, Reading::Edges(host), "{}", case.name);
        }
    }
}

#[test]
fn edge_items_keep_every_bit_of_wide_integers() {
    let Some(client) = client() else { return };
    let values: Vec<i64> = (0..1500).map(|k| i64::MIN + k * 0x0123_4567_89ab).collect();
    let bytes = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let case = Case::contiguous("wide", Storage::I64, &[30, 50], bytes);
    let handle = case.upload(&client);
    let mut summariser = CubeSummariser::new(&client);
    summariser.enqueue_edges(&case.tensor(&handle)).unwrap();
    let readings = summariser.flush().wait().unwrap();
    let Reading::Edges(items) = &readings[0].1 else {
        panic!("no edge items");
    };
    let expected: Vec<i128> = edge_runs(&[30, 50])
        .into_iter()
        .flatten()
        .map(|k| values[k].into())
        .collect();
    assert_eq!(expected.len(), 36);
    assert_eq!(items.values(), &EdgeValues::Int(expected));
}

#[test]
fn copies_are_row_major() {
    let Some(client) = client() else { return };
    let summariser = CubeSummariser::new(&client);
    for storage in STORAGES {
        for (shape, strides, offset) in shapes_with_edges() {
            let case = Case::random(storage, &shape, &strides, offset);
            let handle = case.upload(&client);
            let copy = summariser.enqueue_copy(&case.tensor(&handle)).unwrap();
            let view = case.view();
            let expected = view.to_row_major_bytes();
            assert_eq!(copy.bytes(), expected.len(), "{}", case.name);
            assert_eq!(copy.shape(), shape, "{}", case.name);
            assert_eq!(copy.dtype(), storage.dtype());
            assert_eq!(copy.wait().unwrap(), expected.as_ref(), "{}", case.name);
        }
    }
}
