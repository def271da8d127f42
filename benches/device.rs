//! What tracing costs on a GPU device: an operation, a Llama's forward pass, memory.
//!
//! Whether Burn fuses operations is settled once in a process, so that every row is one of its own: this
//! program starts itself again for each. Runs on a software Vulkan device or on the machine's own.
//! Give a word to run only the tables whose name has it.

mod llama;

use std::{
    env, fs,
    path::Path,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use ::cpu_time::ProcessTime;
use burn::tensor::{Device, DeviceKind, Int, Tensor};
use burnscope::{Dump, Session, models::llama::LlamaForCausalLM};

/// Names the row to a process that measures it.
const ROW: &str = "BURNSCOPE_BENCH_ROW";

/// What a process does with the operations that it measures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Burn as it is.
    Fusers,
    /// Burn with none of its fusers.
    NoFuser,
    /// `install()`, and no session.
    Inactive,
    /// A session without `install()`.
    Modules(Dump),
    /// A session after `install()`.
    Operations(Dump),
}

use Dump::{None as Summaries, Repr, Safetensors};

const OPERATIONS: &str = "operations";
const LLAMA: &str = "llama";
const MEMORY: &str = "memory";

/// Tables, rows, and how each is measured; the first row of a table is what the others are compared with.
const TABLES: [(&str, &[(&str, Mode)]); 3] = [
    (
        OPERATIONS,
        &[
            ("Burn without fusers", Mode::NoFuser),
            ("Burn with its own fusers", Mode::Fusers),
            ("`install()`, no session", Mode::Inactive),
            ("a session", Mode::Operations(Summaries)),
        ],
    ),
    (
        LLAMA,
        &[
            ("Burn without fusers", Mode::NoFuser),
            ("Burn with its own fusers", Mode::Fusers),
            ("`install()`, no session", Mode::Inactive),
            (
                "operations and modules: summaries",
                Mode::Operations(Summaries),
            ),
            ("operations and modules: and text", Mode::Operations(Repr)),
            (
                "operations and modules: and files",
                Mode::Operations(Safetensors),
            ),
            (
                "modules alone, Burn's fusers on: summaries",
                Mode::Modules(Summaries),
            ),
        ],
    ),
    (
        MEMORY,
        &[
            ("`install()`, no session", Mode::Inactive),
            ("summaries", Mode::Operations(Summaries)),
            (
                "files, 32 MiB of them in memory",
                Mode::Operations(Safetensors),
            ),
        ],
    ),
];

fn main() -> ExitCode {
    if let Ok(row) = env::var(ROW) {
        let found = TABLES.iter().find_map(|(table, rows)| {
            let name = row.strip_prefix(table)?.strip_prefix('/')?;
            let row = rows.iter().find(|(known, _)| *known == name)?;
            Some((*table, row.1))
        });
        let (table, mode) = found.expect("a row of a table");
        measure(table, mode);
        return ExitCode::SUCCESS;
    }
    if device().is_none() {
        eprintln!("skipped: this machine has no adapter (install mesa-vulkan-drivers for one)");
        return ExitCode::SUCCESS;
    }
    let filter = env::args().skip(1).find(|word| !word.starts_with('-'));
    for (table, rows) in TABLES {
        if filter
            .as_ref()
            .is_some_and(|filter| !table.contains(filter.as_str()))
        {
            continue;
        }
        let mut first = None;
        println!("\n| {table} | measured | times the first |\n| --- | --- | --- |");
        for (name, _) in rows {
            let run = Command::new(env::current_exe().expect("this program"))
                .env(ROW, format!("{table}/{name}"))
                .output()
                .expect("this program starts");
            let told = String::from_utf8_lossy(&run.stdout);
            let Some((number, text)) = told.trim().split_once(' ') else {
                eprintln!("{name}: {}", String::from_utf8_lossy(&run.stderr));
                return ExitCode::FAILURE;
            };
            let number: f64 = number.parse().expect("a number first");
            let first = *first.get_or_insert(number);
            println!("| {name} | {text} | {:.2} |", number / first);
        }
    }
    ExitCode::SUCCESS
}

fn device() -> Option<Device> {
    use cubecl::device::WgpuDeviceKind;
    cubecl::Device::wgpu(WgpuDeviceKind::DefaultDevice)
        .is_ok()
        .then(|| Device::wgpu(DeviceKind::DefaultDevice))
}

/// One row: a number to compare, and the text for the table.
fn measure(table: &str, mode: Mode) {
    match mode {
        Mode::NoFuser => {
            for name in burn_cubecl::fusion::BUILTIN_NAMES {
                burn_cubecl::fusion::remove(name).expect("no device was at work yet");
            }
        }
        Mode::Inactive | Mode::Operations(_) => {
            let _installed = burnscope::install().expect("no device was at work yet");
        }
        Mode::Fusers | Mode::Modules(_) => {}
    }
    let device = device().expect("an adapter");
    match table {
        OPERATIONS => operations(mode, &device),
        LLAMA => forward(mode, &device),
        _ => memory(mode, &device),
    }
}

/// Runs in a session if the mode has one: its start and its end, the files written, belong to it.
fn in_session<R>(mode: Mode, prepare: impl FnOnce(&Session), run: impl FnOnce() -> R) -> R {
    let (Mode::Operations(dump) | Mode::Modules(dump)) = mode else {
        return run();
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let builder = Session::builder(folder.path()).dump(dump);
    let session = builder.dump_memory(32 << 20).start().expect("a session");
    prepare(&session);
    let result = session.run(run);
    session.finish().expect("the files");
    result
}

/// The median of several rounds after the first ones: CPU time of the process, and by the clock.
fn median(rounds: usize, mut round: impl FnMut()) -> (Duration, Duration) {
    (0..2).for_each(|_| round());
    let mut cpu = Vec::new();
    let mut wall = Vec::new();
    for _ in 0..rounds {
        let (process, clock) = (ProcessTime::now(), Instant::now());
        round();
        cpu.push(process.elapsed());
        wall.push(clock.elapsed());
    }
    cpu.sort();
    wall.sort();
    (cpu[rounds / 2], wall[rounds / 2])
}

/// A chain of small operations: what is measured is the way to the kernels.
fn operations(mode: Mode, device: &Device) {
    const COUNT: u32 = 1000;
    let x = Tensor::<1>::ones([64], device);
    let (cpu, wall) = median(15, || {
        in_session(
            mode,
            |_| (),
            || {
                let mut y = x.clone();
                for step in 0..COUNT / 2 {
                    y = (y + step as f32) * 0.5;
                }
                y.into_data()
            },
        );
    });
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(COUNT);
    let (cpu, wall) = (each(cpu), each(wall));
    println!("{cpu} {cpu:.1} µs of CPU time, {wall:.1} µs by the clock");
}

fn forward(mode: Mode, device: &Device) {
    let model = LlamaForCausalLM::init(&llama::config(), device);
    let tokens = llama::TOKENS as i64;
    let ids = Tensor::<1, Int>::arange(0..tokens, device).reshape([1, tokens]) * 3;
    let (cpu, wall) = median(5, || {
        in_session(
            mode,
            |session| session.attach("LlamaForCausalLM", &model),
            || {
                model
                    .forward(ids.clone(), None, None, None)
                    .logits
                    .into_data()
            },
        );
    });
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let (cpu, wall) = (milliseconds(cpu), milliseconds(wall));
    println!("{cpu} {cpu:.0} ms of CPU time, {wall:.0} ms by the clock");
}

struct Step;

#[burnscope::trace]
impl Step {
    fn forward(&self, x: Tensor<1>) -> Tensor<1> {
        x + 1.0
    }
}

/// 128 tensors of 8 MiB one after the other, each given to a traced method.
fn memory(mode: Mode, device: &Device) {
    let mut x = Tensor::<1>::zeros([2 << 20], device);
    x.clone().into_data();
    let before = kibibytes("VmRSS");
    in_session(
        mode,
        |_| (),
        || {
            for _ in 0..128 {
                x = Step.forward(x.clone());
            }
            x.clone().into_data()
        },
    );
    let grown = kibibytes("VmHWM").saturating_sub(before) as f64 / 1024.0;
    println!("{grown} {grown:.0} MiB more than before the run");
}

/// A line of the process's own status; 0 where there is none.
fn kibibytes(line: &str) -> u64 {
    let status = fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|known| known.strip_prefix(line));
    let number = line.map(|line| line.trim_start_matches(':').trim().trim_end_matches(" kB"));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
