//! The engine's promises: order on the producer's stream, no waiting, slots, memory, errors.

use burnscope::summary::{
    DType, Summary,
    cuda::{CudaError, DeviceTensor, Elements, Engine, ProducerStream},
};

use crate::{
    reference::{self, Random, assert_agrees, encode},
    standin::{Memory, Standin, standin},
};

/// `CUDA_ERROR_ILLEGAL_ADDRESS` and `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`.
const ILLEGAL_ADDRESS: i32 = 700;
const OUT_OF_RESOURCES: i32 = 701;

fn f32_tensor(address: u64, count: usize) -> DeviceTensor {
    DeviceTensor {
        data: address,
        elements: Elements::Plain(DType::F32),
        shape: vec![count],
        strides: vec![1],
    }
}

/// Random elements and their bytes.
fn f32_data(count: usize, random: &mut Random) -> (Vec<u64>, Vec<u8>) {
    let elements: Vec<u64> = (0..count)
        .map(|_| encode(&DType::F32, random.normal()))
        .collect();
    let bytes = reference::bytes(&DType::F32, &elements);
    (elements, bytes)
}

fn summarise(engine: &mut Engine, stream: ProducerStream, number: u64, tensor: DeviceTensor) {
    // SAFETY: the tests keep the memory, or free it on the stream.
    unsafe { engine.summarise(stream, &[(number, tensor)]) }.unwrap();
}

fn flush_in_order(engine: &mut Engine) -> Vec<(u64, Summary)> {
    let mut done: Vec<(u64, Summary)> = engine
        .flush()
        .into_iter()
        .map(|(number, summary)| (number, summary.unwrap()))
        .collect();
    done.sort_by_key(|(number, _)| *number);
    done
}

#[test]
fn a_tensor_is_read_after_its_producer_wrote_it_and_before_the_next_write() {
    let Some(standin) = standin() else { return };
    let mut random = Random(41);
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let memory = standin.allocate(40_000);
    standin.delay(2000);
    let mut wanted = Vec::new();
    for number in 0..5 {
        let (elements, bytes) = f32_data(10_000, &mut random);
        stream.write(memory.address, &bytes);
        summarise(
            &mut engine,
            stream.producer(),
            number,
            f32_tensor(memory.address, 10_000),
        );
        wanted.push(reference::summary(&DType::F32, &elements));
    }
    for (number, found) in flush_in_order(&mut engine) {
        assert_agrees(&found, &wanted[number as usize], &format!("write {number}"));
    }
}

#[test]
fn memory_freed_on_the_stream_right_after_is_summarised_still() {
    let Some(standin) = standin() else { return };
    let mut random = Random(43);
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    standin.delay(2000);
    let mut wanted = Vec::new();
    for number in 0..4 {
        let (elements, bytes) = f32_data(5000, &mut random);
        let memory = standin.memory(&bytes);
        summarise(
            &mut engine,
            stream.producer(),
            number,
            f32_tensor(memory.address, 5000),
        );
        stream.free(memory);
        wanted.push(reference::summary(&DType::F32, &elements));
    }
    for (number, found) in flush_in_order(&mut engine) {
        assert_agrees(
            &found,
            &wanted[number as usize],
            &format!("tensor {number}"),
        );
    }
}

#[test]
fn the_host_never_waits_before_the_flush() {
    let Some(standin) = standin() else { return };
    let mut random = Random(47);
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let (_, bytes) = f32_data(64, &mut random);
    let memory = standin.memory(&bytes);
    // Far more than a ring of slots, with a device that lags behind.
    standin.delay(300);
    let before = standin.host_waits();
    for number in 0..1500 {
        summarise(
            &mut engine,
            stream.producer(),
            number,
            f32_tensor(memory.address, 64),
        );
        for (_, summary) in engine.collect().unwrap() {
            summary.unwrap();
        }
    }
    assert_eq!(standin.host_waits(), before);
    standin.delay(0);
    engine.flush();
    assert!(standin.host_waits() > before, "the flush does wait");
}

#[test]
fn no_slot_is_overwritten_before_it_was_copied_and_read() {
    let Some(standin) = standin() else { return };
    let mut random = Random(53);
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let count = 3000;
    let (elements, bytes) = f32_data(count + 50, &mut random);
    let memory = standin.memory(&bytes);
    for delay in [0, 50] {
        standin.delay(delay);
        let mut done = Vec::new();
        for number in 0..count {
            let tensor = f32_tensor(memory.address + 4 * number as u64, 50);
            summarise(&mut engine, stream.producer(), number as u64, tensor);
            if number % 777 == 776 {
                done.extend(engine.collect().unwrap());
            }
        }
        done.extend(engine.flush());
        done.sort_by_key(|(number, _)| *number);
        assert_eq!(done.len(), count);
        for (number, summary) in done {
            let wanted = reference::summary(&DType::F32, &elements[number as usize..][..50]);
            assert_agrees(&summary.unwrap(), &wanted, &format!("tensor {number}"));
        }
    }
}

#[test]
fn batches_that_reach_across_the_end_of_the_ring_are_split_there() {
    let Some(standin) = standin() else { return };
    let mut random = Random(57);
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let (elements, bytes) = f32_data(2000, &mut random);
    let memory = standin.memory(&bytes);
    let mut number = 0;
    for length in [70, 70, 200, 1, 128, 127, 2] {
        let tensors: Vec<(u64, DeviceTensor)> = (number..number + length)
            .map(|number| (number, f32_tensor(memory.address + 4 * number, 40)))
            .collect();
        number += length;
        // SAFETY: the memory lives until the flush is over.
        unsafe { engine.summarise(stream.producer(), &tensors) }.unwrap();
    }
    let done = flush_in_order(&mut engine);
    assert_eq!(done.len() as u64, number);
    for (number, found) in done {
        // Addresses off a vector take another kernel, whose slots come later.
        let wanted = reference::summary(&DType::F32, &elements[number as usize..][..40]);
        assert_agrees(&found, &wanted, &format!("tensor {number}"));
    }
}

#[test]
fn the_engine_keeps_bounded_memory_when_the_device_keeps_up() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let memory = standin.memory(&[0; 256]);
    let mut run = |count: u64| {
        for number in 0..count {
            summarise(
                &mut engine,
                stream.producer(),
                number,
                f32_tensor(memory.address, 64),
            );
            if number % 100 == 99 {
                stream.synchronize();
                engine.collect().unwrap();
            }
        }
        (standin.live_bytes(), standin.pinned_bytes())
    };
    let early = run(500);
    assert_eq!(run(20_000), early);
}

#[test]
fn dropping_an_engine_gives_everything_back_and_disturbs_nothing_under_way() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let memory = standin.memory(&[0; 4000]);
    let before = (standin.live_bytes(), standin.pinned_bytes());
    standin.delay(5000);
    let mut engine = Engine::new(0).unwrap();
    for number in 0..200 {
        summarise(
            &mut engine,
            stream.producer(),
            number,
            f32_tensor(memory.address, 1000),
        );
        if number == 20 {
            standin.delay(500);
        }
    }
    drop(engine);
    assert_eq!((standin.live_bytes(), standin.pinned_bytes()), before);
    stream.synchronize();
    assert!(
        standin.freed_memory_untouched(),
        "a kernel wrote after the drop"
    );
}

#[test]
fn two_streams_share_no_ring_and_no_scratch_memory() {
    let Some(standin) = standin() else { return };
    let mut random = Random(59);
    let streams = [standin.stream(), standin.stream()];
    let mut engine = Engine::new(0).unwrap();
    let (elements, bytes) = f32_data(150_000, &mut random);
    let memory = standin.memory(&bytes);
    standin.delay(1000);
    // The second stream lags behind the first.
    let lag = standin.allocate(64);
    for _ in 0..40 {
        streams[1].write(lag.address, &[0; 64]);
    }
    for number in 0..20 {
        let stream = streams[number as usize % 2].producer();
        let tensor = f32_tensor(memory.address, 150_000 - number as usize);
        summarise(&mut engine, stream, number, tensor);
    }
    for (number, found) in flush_in_order(&mut engine) {
        let wanted = reference::summary(&DType::F32, &elements[..150_000 - number as usize]);
        assert_agrees(&found, &wanted, &format!("tensor {number}"));
    }
}

#[test]
fn several_tensors_of_many_tiles_share_a_launch_and_its_scratch_memory() {
    let Some(standin) = standin() else { return };
    let mut random = Random(61);
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let (elements, bytes) = f32_data(400_000, &mut random);
    let memory = standin.memory(&bytes);
    let lengths = [100_001, 1, 399_000, 16_385, 250_000];
    let tensors: Vec<(u64, DeviceTensor)> = (0..)
        .zip(lengths.map(|length| f32_tensor(memory.address, length)))
        .collect();
    // Twice, so that tickets left behind would show.
    for round in 0..2 {
        let launches = standin.calls("cuLaunchKernel");
        // SAFETY: the memory lives until the flush is over.
        unsafe { engine.summarise(stream.producer(), &tensors) }.unwrap();
        assert_eq!(standin.calls("cuLaunchKernel"), launches + 1);
        for (number, found) in flush_in_order(&mut engine) {
            let wanted = reference::summary(&DType::F32, &elements[..lengths[number as usize]]);
            assert_agrees(&found, &wanted, &format!("round {round}, tensor {number}"));
        }
    }
}

#[test]
fn summaries_arrive_without_a_flush_once_their_ring_was_copied() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let memory = standin.memory(&[0; 256]);
    for number in 0..300 {
        summarise(
            &mut engine,
            stream.producer(),
            number,
            f32_tensor(memory.address, 64),
        );
    }
    stream.synchronize();
    let early = engine.collect().unwrap().len();
    assert!((200..300).contains(&early), "{early} of 300");
    assert_eq!(early + engine.flush().len(), 300);
}

#[test]
fn what_the_kernels_cannot_read_is_an_error_before_anything_is_launched() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let memory = standin.memory(&[0; 256]);
    let good = f32_tensor(memory.address, 64);
    let unknown = DeviceTensor {
        elements: Elements::Plain(DType::Other("torch.complex64".to_owned())),
        ..good.clone()
    };
    let mismatched = DeviceTensor {
        strides: vec![1, 1],
        ..good.clone()
    };
    let launches = standin.calls("cuLaunchKernel");
    for (bad, message) in [
        (unknown, "torch.complex64"),
        (mismatched, "1 dimensions but 2 strides"),
    ] {
        // SAFETY: the memory lives until the end.
        let error = unsafe { engine.summarise(stream.producer(), &[(0, good.clone()), (1, bad)]) };
        assert!(error.unwrap_err().to_string().contains(message));
    }
    assert_eq!(standin.calls("cuLaunchKernel"), launches);
    assert!(engine.flush().is_empty());
}

#[test]
fn a_refused_launch_is_an_error_and_the_engine_goes_on() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let memory = standin.memory(&[0; 256]);
    let tensor = f32_tensor(memory.address, 64);
    summarise(&mut engine, stream.producer(), 0, tensor.clone());
    standin.fail("cuLaunchKernel", OUT_OF_RESOURCES, 0);
    // SAFETY: the memory lives until the end.
    let error = unsafe { engine.summarise(stream.producer(), &[(1, tensor.clone())]) };
    let Err(CudaError::Driver { call, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(call, "cuLaunchKernel");
    standin.heal();
    summarise(&mut engine, stream.producer(), 2, tensor);
    let numbers: Vec<u64> = flush_in_order(&mut engine)
        .iter()
        .map(|done| done.0)
        .collect();
    assert_eq!(numbers, [0, 2]);
}

#[test]
fn a_device_that_fails_later_turns_every_summary_into_an_error() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let memory = standin.memory(&[0; 256]);
    for number in 0..300 {
        summarise(
            &mut engine,
            stream.producer(),
            number,
            f32_tensor(memory.address, 64),
        );
    }
    stream.synchronize();
    standin.fail("cuEventSynchronize", ILLEGAL_ADDRESS, 0);
    let mut done = engine.flush();
    done.sort_by_key(|(number, _)| *number);
    let numbers: Vec<u64> = done.iter().map(|(number, _)| *number).collect();
    assert_eq!(
        numbers,
        (0..300).collect::<Vec<_>>(),
        "each is handed out once"
    );
    assert!(done.iter().any(|(_, summary)| summary.is_err()));
    assert!(engine.flush().is_empty());
}

#[test]
fn a_kernel_that_never_wrote_its_slot_is_noticed() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let memory = standin.memory(&[0; 256]);
    let tensor = f32_tensor(memory.address, 64);
    // Once in a fresh slot, once in one that an older result is in.
    for round in 0..2 {
        standin.lose_launches(1);
        summarise(&mut engine, stream.producer(), 7, tensor.clone());
        summarise(&mut engine, stream.producer(), 8, tensor.clone());
        let done = engine.flush();
        assert!(
            matches!(done[0], (7, Err(CudaError::MissingResult { .. }))),
            "round {round}"
        );
        assert!(matches!(done[1], (8, Ok(_))), "round {round}");
    }
}

#[test]
fn a_copy_that_cannot_be_started_fails_the_summaries_it_would_bring() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let memory = standin.memory(&[0; 256]);
    standin.fail("cuMemcpyDtoHAsync_v2", ILLEGAL_ADDRESS, 0);
    summarise(
        &mut engine,
        stream.producer(),
        7,
        f32_tensor(memory.address, 64),
    );
    let done = engine.flush();
    assert_eq!(done.len(), 1);
    assert!(matches!(
        &done[0],
        (
            7,
            Err(CudaError::Driver {
                call: "cuMemcpyDtoHAsync",
                ..
            })
        )
    ));
}

#[test]
fn each_call_at_the_start_that_fails_is_named() {
    let Some(standin) = standin() else { return };
    let calls = [
        "cuInit",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuModuleLoadData",
    ];
    for call in calls {
        standin.fail(call, 100, 0);
        let error = Engine::new(0).err().unwrap();
        assert!(error.to_string().starts_with(call), "{call}: {error}");
    }
    standin.heal();
    assert!(matches!(
        Engine::new(5),
        Err(CudaError::Driver {
            call: "cuDeviceGet",
            ..
        })
    ));
    let stream = standin.stream();
    let memory = standin.memory(&[0; 256]);
    standin.delay(5000);
    for call in [
        "cuMemAlloc",
        "cuMemHostAlloc",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuEventCreate",
    ] {
        let mut engine = Engine::new(0).unwrap();
        let name = if call == "cuMemAlloc" {
            "cuMemAlloc_v2"
        } else {
            call
        };
        standin.fail(name, 2, 0);
        // SAFETY: the memory lives until the end.
        let error =
            unsafe { engine.summarise(stream.producer(), &[(0, f32_tensor(memory.address, 64))]) };
        assert!(error.unwrap_err().to_string().starts_with(call), "{call}");
        standin.heal();
    }
    stream.synchronize();
    assert!(
        standin.freed_memory_untouched(),
        "half an engine was freed while the stream wrote to it"
    );
}

#[test]
fn results_survive_any_order_of_blocks_while_the_device_lags() {
    let Some(standin) = standin() else { return };
    let mut random = Random(67);
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let (elements, bytes) = f32_data(90_000, &mut random);
    let wanted = reference::summary(&DType::F32, &elements);
    standin.delay(200);
    for seed in 0..12 {
        standin.order(seed, 2);
        let memory: Memory = standin.memory(&bytes);
        summarise(
            &mut engine,
            stream.producer(),
            seed.into(),
            f32_tensor(memory.address, 90_000),
        );
        let done = flush_in_order(&mut engine);
        assert_agrees(&done[0].1, &wanted, &format!("seed {seed}"));
        poison(&standin, memory);
    }
}

/// Frees memory on the host: what still read it would see poison.
fn poison(_: &Standin, memory: Memory<'_>) {
    drop(memory);
}
