//! The engine on CubeCL's real CUDA runtime, over the stand-in driver: see `scripts/test-cubecl.sh`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[cfg(feature = "cuda")]
mod operations;
#[allow(dead_code)]
#[path = "../cuda/reference.rs"]
mod reference;
#[allow(dead_code)]
#[path = "../cuda/standin.rs"]
mod standin;

use std::{
    io,
    sync::{Arc, mpsc},
};

use burnscope::summary::{
    DType, Summary,
    cuda::{CubeclEngine, DeviceTensor, DumpError, DumpOptions, DumpSink, Dumper, Elements},
};
use cubecl::{
    client::Client,
    cuda::{CudaDevice, CudaRuntime},
};
use cubecl_server::runtime::Runtime;
use reference::{Random, assert_agrees, encode};
use standin::standin;

type Server = <CudaRuntime as Runtime>::Server;

fn f32_data(count: usize, random: &mut Random) -> (Vec<u64>, Vec<u8>) {
    let elements: Vec<u64> = (0..count)
        .map(|_| encode(&DType::F32, random.normal()))
        .collect();
    let bytes = reference::bytes(&DType::F32, &elements);
    (elements, bytes)
}

fn f32_tensor(data: u64, count: usize) -> DeviceTensor {
    DeviceTensor {
        data,
        elements: Elements::Plain(DType::F32),
        shape: vec![count],
        strides: vec![1],
    }
}

fn client() -> (CudaDevice, Client) {
    let device = CudaDevice::default();
    let client = CudaRuntime::client(&device);
    (device, client)
}

fn in_order(engine: &CubeclEngine) -> Vec<(u64, Summary)> {
    let mut done: Vec<_> = engine
        .flush()
        .unwrap()
        .into_iter()
        .map(|(number, summary)| (number, summary.unwrap()))
        .collect();
    done.sort_by_key(|(number, _)| *number);
    done
}

#[test]
fn a_tensor_that_cubecl_uploads_and_drops_is_summarised_on_its_own_stream() {
    let Some(standin) = standin() else { return };
    let (device, client) = client();
    let engine = CubeclEngine::new(&device).unwrap();
    let mut random = Random(83);
    standin.delay(500);
    let waits = standin.host_waits();
    let mut wanted = Vec::new();
    for number in 0..40 {
        let count = 10_000 + number as usize;
        let (elements, bytes) = f32_data(count, &mut random);
        let handle = client.create_from_slice(&bytes);
        // SAFETY: the handle holds that many floats.
        unsafe {
            engine.summarise(number, vec![handle.clone()], move |addresses| {
                f32_tensor(addresses[0], count)
            });
        }
        drop(handle);
        wanted.push(reference::summary(&DType::F32, &elements));
    }
    assert_eq!(standin.host_waits(), waits, "nobody waits before the flush");
    let done = in_order(&engine);
    assert_eq!(done.len(), 40);
    for ((number, found), wanted) in done.iter().zip(&wanted) {
        assert_agrees(found, wanted, &format!("tensor {number}"));
    }
}

#[test]
fn a_handle_stays_free_to_be_written_and_keeps_its_bytes() {
    let Some(_standin) = standin() else { return };
    let (device, client) = client();
    let engine = CubeclEngine::new(&device).unwrap();
    let (elements, bytes) = f32_data(5000, &mut Random(89));
    let handle = client.create_from_slice(&bytes);
    let before = handle.can_mut();
    // SAFETY: the handle holds 5000 floats.
    unsafe {
        engine.summarise(3, vec![handle.clone()], |addresses| {
            f32_tensor(addresses[0], 5000)
        })
    };
    let done = in_order(&engine);
    assert_agrees(
        &done[0].1,
        &reference::summary(&DType::F32, &elements),
        "the tensor",
    );
    assert_eq!(handle.can_mut(), before);
    let back = client.read_one_unchecked(handle);
    assert!(back[..] == bytes[..]);
}

#[test]
fn a_tensor_from_another_thread_s_stream_is_written_before_it_is_read() {
    let Some(standin) = standin() else { return };
    let (device, client) = client();
    let engine = CubeclEngine::new(&device).unwrap();
    let (elements, bytes) = f32_data(30_000, &mut Random(97));
    standin.delay(2000);
    let handle = std::thread::scope(|scope| {
        let upload = scope.spawn(|| client.create_from_slice(&bytes));
        upload.join().unwrap()
    });
    // SAFETY: the handle holds 30,000 floats.
    unsafe {
        engine.summarise(0, vec![handle], |addresses| {
            f32_tensor(addresses[0], 30_000)
        })
    };
    let done = in_order(&engine);
    assert_agrees(
        &done[0].1,
        &reference::summary(&DType::F32, &elements),
        "the tensor",
    );
}

#[test]
fn a_failure_on_the_device_thread_comes_out_as_a_value() {
    let Some(standin) = standin() else { return };
    let (device, client) = client();
    let engine = CubeclEngine::new(&device).unwrap();
    let handle = client.create_from_slice(&[0; 256]);
    standin.fail("cuModuleLoadData", 2, 0);
    // SAFETY: the handle holds 64 floats.
    unsafe { engine.summarise(9, vec![handle], |addresses| f32_tensor(addresses[0], 64)) };
    let done = engine.flush().unwrap();
    standin.heal();
    assert_eq!(done.len(), 1);
    assert!(done[0].0 == 9 && done[0].1.is_err());
}

#[test]
fn a_panic_while_a_tensor_is_described_comes_out_as_a_value() {
    let Some(_standin) = standin() else { return };
    let (device, client) = client();
    let engine = CubeclEngine::new(&device).unwrap();
    let handle = client.create_from_slice(&[0; 256]);
    // SAFETY: nothing is described.
    unsafe { engine.summarise(4, vec![handle], |_| panic!("a shape that cannot be")) };
    let done = engine.flush().unwrap();
    assert_eq!(done.len(), 1);
    let (4, Err(error)) = &done[0] else {
        panic!("{done:?}");
    };
    assert!(error.to_string().contains("a shape that cannot be"));
}

/// The device's thread would wait for the device, too, if the waiting thread kept the engine.
#[test]
fn work_goes_on_while_another_thread_waits_for_results() {
    let Some(standin) = standin() else { return };
    let (device, client) = client();
    let engine = CubeclEngine::new(&device).unwrap();
    let (elements, bytes) = f32_data(1000, &mut Random(103));
    let wanted = reference::summary(&DType::F32, &elements);
    let add = |number| {
        let handle = client.create_from_slice(&bytes);
        // SAFETY: the handle holds 1000 floats.
        unsafe {
            engine.summarise(number, vec![handle], |addresses| {
                f32_tensor(addresses[0], 1000)
            });
        }
    };
    // Kernels and all are loaded.
    add(0);
    engine.flush().unwrap();
    standin.delay(50_000);
    for number in 0..4 {
        add(number);
    }
    let waits = standin.host_waits();
    let (early, done) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| engine.flush().unwrap());
        while standin.host_waits() == waits {
            std::thread::yield_now();
        }
        add(4);
        engine.submitted().unwrap();
        let early = !waiting.is_finished();
        (early, waiting.join().unwrap())
    });
    assert!(early, "the device's thread waited for the device");
    let rest = in_order(&engine);
    assert_eq!((done.len(), rest.len()), (4, 1));
    let done = done.into_iter().map(|(_, summary)| summary.unwrap());
    for found in done.chain([rest[0].1.clone()]) {
        assert_agrees(&found, &wanted, "a tensor");
    }
}

struct Collect(Vec<u8>, mpsc::Sender<(Vec<u8>, Result<(), DumpError>)>);

impl DumpSink for Collect {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn close(self: Box<Self>, outcome: Result<(), DumpError>) {
        let _ = self.1.send((self.0, outcome));
    }
}

#[test]
fn a_dump_holds_what_cubecl_uploaded() {
    let Some(standin) = standin() else { return };
    let (device, client) = client();
    let engine = CubeclEngine::new(&device).unwrap();
    let dumper = Arc::new(Dumper::new(0, DumpOptions::default()).unwrap());
    standin.delay(1000);
    let (_, bytes) = f32_data(20_000, &mut Random(101));
    let handle = client.create_from_slice(&bytes);
    let (sender, done) = mpsc::channel();
    let sink = Box::new(Collect(Vec::new(), sender));
    // SAFETY: the handle holds 20,000 floats.
    unsafe { engine.dump(dumper, handle, |address| f32_tensor(address, 20_000), sink) };
    engine.flush().unwrap();
    let (found, outcome) = done.recv().unwrap();
    outcome.unwrap();
    assert!(found == bytes);
}
