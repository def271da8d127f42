//! The stand-in driver seen from Rust: built once, loaded in place of `libcuda.so`, and asked for
//! memory, streams and trouble.

use std::{
    collections::hash_map::DefaultHasher,
    ffi::{CString, c_char, c_int, c_long, c_uint, c_ulong, c_void},
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use burnscope::summary::cuda::ProducerStream;
use libloading::Library;

/// The stand-in, this test's alone as long as it is held.
pub struct Standin {
    library: &'static Library,
    _alone: MutexGuard<'static, ()>,
}

/// Takes the stand-in in its ordinary state: no delay, no failure, blocks and threads in order.
///
/// `None` on a machine without a C++ compiler, where the test that asked is skipped with a message.
pub fn standin() -> Option<Standin> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Loaded first, it is what `cudarc` gets for `libcuda.so`: that is its name to the loader.
    // SAFETY: the library's initialisers only register kernels.
    let library = LIBRARY
        .get_or_init(|| build().map(|path| unsafe { Library::new(path) }.unwrap()))
        .as_ref()?;
    let standin = Standin {
        library,
        _alone: alone,
    };
    standin.order(0, 0);
    standin.delay(0);
    standin.heal();
    Some(standin)
}

/// Compiles the stand-in with the kernels, unless these sources were compiled before.
fn build() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("tests/cuda/standin.cc");
    let mut hasher = DefaultHasher::new();
    for folder in ["tests/cuda", "kernels"] {
        let mut files: Vec<_> = fs::read_dir(root.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        for file in files {
            fs::read(&file).unwrap().hash(&mut hasher);
        }
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{:016x}", hasher.finish()));
    let library = folder.join("libcuda.so");
    if library.exists() {
        return Some(library);
    }
    fs::create_dir_all(&folder).unwrap();
    let target = "x86_64-unknown-linux-gnu";
    let unfinished = folder.join(format!("libcuda.{}.tmp", std::process::id()));
    let mut compiler = cc::Build::new()
        .cpp(true)
        .std("c++17")
        .target(target)
        .host(target)
        .opt_level(2)
        .debug(false)
        .cargo_metadata(false)
        .out_dir(&folder)
        .try_get_compiler()
        .ok()?
        .to_command();
    let status = compiler
        // As the PTX is: no multiply and add may become one operation by itself.
        .arg("-ffp-contract=off")
        .args(["-shared", "-fPIC", "-fvisibility=hidden", "-Wall"])
        .args(["-Wno-unknown-pragmas", "-Wl,-soname,libcuda.so"])
        .arg(&source)
        .arg("-o")
        .arg(&unfinished)
        .arg("-lpthread")
        .status();
    // `cc` names a compiler whether or not it is there.
    let Ok(status) = status else {
        eprintln!("skipped: no C++ compiler builds the stand-in driver");
        return None;
    };
    assert!(status.success(), "the stand-in driver does not compile");
    fs::rename(unfinished, &library).unwrap();
    Some(library)
}

/// Calls a function of the library with these argument types.
macro_rules! call {
    ($self:expr, $name:literal, ($($argument:expr => $kind:ty),*) -> $result:ty) => {{
        // SAFETY: the signatures are those of standin.cc and cuda.h.
        unsafe {
            let function = $self
                .library
                .get::<unsafe extern "C" fn($($kind),*) -> $result>($name.as_bytes())
                .unwrap();
            function($($argument),*)
        }
    }};
}

impl Standin {
    /// Chooses the orders in which blocks and threads run, and how many OS threads share blocks.
    pub fn order(&self, seed: u32, workers: u32) {
        call!(self, "standin_order", (seed => c_uint, workers => c_uint) -> ());
    }

    /// Delays every task of every stream.
    pub fn delay(&self, microseconds: u32) {
        call!(self, "standin_delay", (microseconds => c_uint) -> ());
    }

    /// Makes a call of the driver fail with `code` once it has succeeded `after` more times.
    pub fn fail(&self, name: &str, code: i32, after: i64) {
        let name = CString::new(name).unwrap();
        call!(self, "standin_fail",
            (name.as_ptr() => *const c_char, code => c_int, after => c_long) -> ());
    }

    /// Ends what [`fail`](Self::fail) began.
    pub fn heal(&self) {
        self.fail("", 0, 0);
    }

    /// Makes the next launches succeed and do nothing.
    pub fn lose_launches(&self, count: i64) {
        call!(self, "standin_lose_launches", (count => c_long) -> ());
    }

    /// How often the host has been made to wait so far.
    pub fn host_waits(&self) -> i64 {
        call!(self, "standin_host_waits", () -> c_long)
    }

    /// How often a function of the driver was called so far.
    pub fn calls(&self, name: &str) -> i64 {
        let name = CString::new(name).unwrap();
        call!(self, "standin_calls", (name.as_ptr() => *const c_char) -> c_long)
    }

    /// Bytes of device memory that are allocated.
    pub fn live_bytes(&self) -> u64 {
        call!(self, "standin_live_bytes", () -> c_ulong)
    }

    /// Whether nothing has been written to device memory after it was freed.
    pub fn freed_memory_untouched(&self) -> bool {
        call!(self, "standin_freed_memory_untouched", () -> bool)
    }

    /// Bytes of pinned memory that are allocated.
    pub fn pinned_bytes(&self) -> u64 {
        call!(self, "standin_pinned_bytes", () -> c_ulong)
    }

    /// Device memory with these contents. It ends where the process may not read.
    pub fn memory(&self, bytes: &[u8]) -> Memory<'_> {
        let memory = self.allocate(bytes.len());
        let code = call!(self, "cuMemcpyHtoD_v2",
            (memory.address => u64, bytes.as_ptr().cast() => *const c_void, bytes.len() => usize) -> c_int);
        assert_eq!(code, 0);
        memory
    }

    /// Device memory full of poison.
    pub fn allocate(&self, bytes: usize) -> Memory<'_> {
        let mut address = 0u64;
        let code = call!(self, "cuMemAlloc_v2",
            (&raw mut address => *mut u64, bytes.max(1) => usize) -> c_int);
        assert_eq!(code, 0);
        Memory {
            standin: self,
            address,
        }
    }

    /// A stream, as a tensor's producer would have it.
    pub fn stream(&self) -> TestStream<'_> {
        let mut handle: *mut c_void = std::ptr::null_mut();
        let code = call!(self, "cuStreamCreate",
            (&raw mut handle => *mut *mut c_void, 1 => c_uint) -> c_int);
        assert_eq!(code, 0);
        TestStream {
            standin: self,
            handle,
        }
    }
}

/// Device memory; freed, and poisoned, when dropped.
pub struct Memory<'a> {
    standin: &'a Standin,
    pub address: u64,
}

impl Memory<'_> {
    /// An owner that can be sent away, as a dump's keep-alive must be.
    pub fn into_owner(self) -> Owner {
        let free = *unsafe {
            // SAFETY: the signature is that of cuda.h.
            self.standin
                .library
                .get::<unsafe extern "C" fn(u64) -> c_int>(b"cuMemFree_v2")
        }
        .unwrap();
        let address = self.address;
        std::mem::forget(self);
        Owner { address, free }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        call!(self.standin, "cuMemFree_v2", (self.address => u64) -> c_int);
    }
}

/// Device memory without a lifetime.
pub struct Owner {
    pub address: u64,
    free: unsafe extern "C" fn(u64) -> c_int,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: allocated by `Standin::allocate`, freed once.
        unsafe { (self.free)(self.address) };
    }
}

/// A stream of the stand-in.
pub struct TestStream<'a> {
    standin: &'a Standin,
    handle: *mut c_void,
}

impl TestStream<'_> {
    /// As the engine takes it.
    pub fn producer(&self) -> ProducerStream {
        // SAFETY: the tests drop engines before streams.
        unsafe { ProducerStream::new(self.handle.cast()) }
    }

    /// Adds a copy of pageable host memory to device memory.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        call!(self.standin, "cuMemcpyHtoDAsync_v2",
            (address => u64, bytes.as_ptr().cast() => *const c_void, bytes.len() => usize,
             self.handle => *mut c_void) -> c_int);
    }

    /// Adds the freeing of memory.
    pub fn free(&self, memory: Memory<'_>) {
        let address = memory.address;
        std::mem::forget(memory);
        call!(self.standin, "cuMemFreeAsync", (address => u64, self.handle => *mut c_void) -> c_int);
    }

    /// Waits for all work.
    pub fn synchronize(&self) {
        call!(self.standin, "cuStreamSynchronize", (self.handle => *mut c_void) -> c_int);
    }
}

impl Drop for TestStream<'_> {
    fn drop(&mut self) {
        call!(self.standin, "cuStreamDestroy_v2", (self.handle => *mut c_void) -> c_int);
    }
}
