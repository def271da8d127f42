//! Sizes around the edges of tiles, and strides.

use burnscope::summary::cube::{CubeSummariser, DeviceTensor, Storage};
use burnscope::summary::{TensorView, summarise};

use crate::support::{
    Case, STORAGES, TILE, assert_agree, check, client, elements, on_device, summary,
};

#[test]
fn every_type_and_size_around_the_edges_of_tiles() {
    let mut cases = Vec::new();
    for storage in STORAGES {
        for count in [0, 1, 2, 3, TILE - 1, TILE, TILE + 1, 5 * TILE + 3] {
            let bytes = elements(storage, count, count as u64);
            cases.push(Case::contiguous("random", storage, &[count], bytes));
        }
    }
    check(&cases);
}

#[test]
fn a_million_elements() {
    let cases: Vec<Case> = [Storage::F32, Storage::BF16, Storage::I64, Storage::U8]
        .map(|storage| {
            let bytes = elements(storage, 1_000_000, 7);
            Case::contiguous("random", storage, &[1000, 1000], bytes)
        })
        .into();
    check(&cases);
}

#[test]
fn more_tiles_than_one_row_of_the_grid_has() {
    let count = 2050 * TILE + 1;
    let bytes = elements(Storage::U8, count, 5);
    check(&[Case::contiguous("rows", Storage::U8, &[count], bytes)]);
}

#[test]
fn every_layout() {
    let mut cases = Vec::new();
    // Each size and class of element once: a kernel takes a software device seconds to compile.
    for storage in [
        Storage::F64,
        Storage::F32,
        Storage::BF16,
        Storage::F8E4M3,
        Storage::I16,
        Storage::U8,
        Storage::Bool32,
    ] {
        for (shape, strides, offset) in [
            // Padded rows.
            (vec![100, 100], vec![128, 1], 0),
            (vec![3, 50, 33], vec![3200, 64, 1], 0),
            // Permuted.
            (vec![70, 90], vec![1, 70], 0),
            (vec![20, 30, 11], vec![1, 220, 20], 0),
            // Broadcast along the first, a middle, the last and every dimension.
            (vec![50, 90], vec![0, 1], 0),
            (vec![9, 40, 30], vec![30, 0, 1], 0),
            (vec![90, 50], vec![1, 0], 0),
            (vec![90, 50], vec![0, 0], 0),
            // From an offset that splits words of narrow elements.
            (vec![5000], vec![1], 3),
            (vec![61, 67], vec![67, 1], 13),
            // Steps, odd rows, single items with odd strides, no dimension.
            (vec![4500], vec![2], 1),
            (vec![40, 41], vec![123, 3], 5),
            (vec![1, 70, 1, 60], vec![5, 60, 999, 1], 0),
            (vec![], vec![], 0),
            (vec![], vec![], 5),
            (vec![3, 0, 2], vec![0, 2, 1], 0),
        ] {
            cases.push(Case::random(storage, &shape, &strides, offset));
        }
    }
    check(&cases);
}

#[test]
fn a_handle_may_begin_inside_its_memory() {
    let Some(client) = client() else { return };
    for storage in STORAGES {
        let case = Case::contiguous("whole", storage, &[6000], elements(storage, 6000, 3));
        let handle = case.upload(&client);
        for first in [1usize, 2, 64, 1001] {
            let part = handle
                .clone()
                .offset_start((first * storage.size()) as u64)
                .offset_end((3 * storage.size()) as u64);
            let tensor = DeviceTensor {
                handle: &part,
                storage,
                shape: &[5990 - first],
                strides: &[1],
                offset: 2,
            };
            let mut summariser = CubeSummariser::new(&client);
            summariser.enqueue(&tensor).unwrap();
            let readings = summariser.flush().wait().unwrap();
            let view = TensorView::strided(
                storage.dtype(),
                &[5990 - first],
                &[1],
                first + 2,
                &case.bytes,
            );
            let name = format!("{storage:?} from {first}");
            let device = summary(readings.into_iter().next().unwrap().1);
            assert_agree(&device, &summarise(&view.unwrap()), &name);
        }
    }
}

#[test]
fn a_repeat_and_another_layout_give_the_same_bits() {
    let Some(client) = client() else { return };
    let (rows, columns) = (300, 200);
    let bytes = elements(Storage::F32, rows * columns, 1);
    let plain = Case::contiguous("plain", Storage::F32, &[rows, columns], bytes.clone());
    let mut transposed = vec![0; bytes.len()];
    for (k, element) in bytes.as_chunks::<4>().0.iter().enumerate() {
        let at = (k % columns) * rows + k / columns;
        transposed[4 * at..4 * at + 4].copy_from_slice(element);
    }
    let permuted = Case {
        strides: vec![1, rows],
        bytes: transposed,
        ..plain.clone()
    };
    let all = on_device(&client, &[plain.clone(), plain.clone(), permuted, plain]);
    for summary in &all[1..] {
        // All digits of every number, signs and NaNs included.
        assert_eq!(format!("{summary:?}"), format!("{:?}", all[0]));
    }
}
