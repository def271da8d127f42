//! Buffers, order, threads and refusals.

use burnscope::summary::cube::{
    CubeSummariser, DeviceTensor, NotSummarised, Reading, Slot, Storage,
};
use burnscope::summary::{DType, EdgeItems, summarise};

use crate::support::{Case, TILE, assert_agree, client, elements, summary};

#[test]
fn full_buffers_are_kept_until_the_flush() {
    let Some(client) = client() else { return };
    // Room for three tiles and the stamps of three tensors; that of five tiles needs its own buffer.
    let buffer = 3 * 80 + 3 * 4;
    let mut summariser = CubeSummariser::with_buffer_bytes(&client, buffer);
    let counts = [100, TILE + 1, 5, 5 * TILE, 0, 1, 2 * TILE, 2 * TILE, 7];
    let cases = counts.map(|count| {
        let bytes = elements(Storage::F32, count, count as u64);
        Case::contiguous("random", Storage::F32, &[count], bytes)
    });
    for round in 0..2u64 {
        for case in &cases {
            let handle = case.upload(&client);
            summariser.enqueue(&case.tensor(&handle)).unwrap();
        }
        let large = 5 * 80 + 4;
        assert_eq!(summariser.pending_bytes(), u64::from(4 * buffer + large));
        let readings = summariser.flush().wait().unwrap();
        assert_eq!(summariser.pending_bytes(), 0);
        assert_eq!(readings.len(), cases.len());
        for (index, (slot, reading)) in readings.into_iter().enumerate() {
            assert_eq!(slot, Slot(round * cases.len() as u64 + index as u64));
            let case = &cases[index];
            assert_agree(&summary(reading), &summarise(&case.view()), &case.name);
        }
    }
    assert!(summariser.flush().wait().unwrap().is_empty());
}

#[test]
fn results_are_of_the_time_of_the_request_and_read_on_another_thread() {
    let Some(client) = client() else { return };
    let case = Case::contiguous(
        "before",
        Storage::F32,
        &[900],
        elements(Storage::F32, 900, 8),
    );
    let handle = case.upload(&client);
    let mut summariser = CubeSummariser::new(&client);
    summariser.enqueue(&case.tensor(&handle)).unwrap();
    summariser.enqueue_edges(&case.tensor(&handle)).unwrap();
    let copy = summariser.enqueue_copy(&case.tensor(&handle)).unwrap();
    client.write(
        &handle,
        cubecl::bytes::Bytes::from_bytes_vec(vec![0xff; 3600]),
    );
    let pending = summariser.flush();
    let (readings, bytes) = std::thread::spawn(move || {
        let readings = cubecl::future::block_on(pending.read()).unwrap();
        (readings, cubecl::future::block_on(copy.read()).unwrap())
    })
    .join()
    .unwrap();
    let [first, second] = readings.try_into().unwrap();
    assert_agree(&summary(first.1), &summarise(&case.view()), "before");
    assert_eq!(second.1, Reading::Edges(EdgeItems::gather(&case.view())));
    assert_eq!(bytes, case.bytes);
    // The write did take place.
    assert_eq!(&client.read_one(handle).unwrap()[..], [0xff; 3600]);
}

#[test]
fn tensors_that_cannot_be_read_say_why() {
    let Some(client) = client() else { return };
    let handle = client.create_from_slice(&[0; 64]);
    let mut summariser = CubeSummariser::new(&client);
    let mut refuse = |shape: &[usize], strides: &[usize], offset: usize| {
        let tensor = DeviceTensor {
            handle: &handle,
            storage: Storage::F32,
            shape,
            strides,
            offset,
        };
        let error = summariser.enqueue(&tensor).unwrap_err();
        assert_eq!(summariser.enqueue_edges(&tensor).unwrap_err(), error);
        assert_eq!(summariser.enqueue_copy(&tensor).unwrap_err(), error);
        error
    };
    let out_of_bounds = |shape: &[usize]| NotSummarised::OutOfBounds {
        shape: shape.to_vec(),
        bytes: 64,
    };
    assert_eq!(refuse(&[17], &[1], 0), out_of_bounds(&[17]));
    assert_eq!(refuse(&[16], &[1], 1), out_of_bounds(&[16]));
    assert_eq!(refuse(&[4, 4], &[5, 1], 0), out_of_bounds(&[4, 4]));
    let rank = NotSummarised::Rank {
        shape: 2,
        strides: 1,
    };
    assert_eq!(refuse(&[4, 4], &[1], 0), rank);
    for (shape, strides) in [
        (vec![1 << 32], vec![0]),
        (vec![1 << 20, 1 << 20, 1 << 30], vec![0, 0, 0]),
        (vec![2, 2], vec![usize::MAX, 1]),
        (vec![3], vec![usize::MAX / 2]),
    ] {
        let error = refuse(&shape, &strides, 0);
        assert_eq!(error, NotSummarised::TooLarge { shape });
    }
    assert!(summariser.flush().wait().unwrap().is_empty());

    let quantised = DType::Quantized("q8s".into());
    let error = Storage::try_from(&quantised).unwrap_err();
    assert!(error.to_string().contains("quantized.q8s"), "{error}");
}
