//! A method with `#[burnscope::trace]` is the same method: it evaluates in the same order and takes
//! every form that Rust allows, with a session and without.

#![cfg(feature = "flex")]

use burn::{module::Module, nn, tensor::Tensor};
use burnscope::Session;

/// Layers that say who was called with what.
#[derive(Clone, Debug)]
struct Layer(&'static str);

impl Layer {
    fn forward(&self, a: i32, b: i32) -> String {
        format!("{} {a} {b}", self.0)
    }

    fn forward_next(&self, other: &Layer) -> String {
        format!("{} {}", self.0, other.0)
    }

    fn forward_text(&self, text: &str) -> usize {
        text.len()
    }

    fn forward_slice<'a>(&self, items: &'a mut [u8]) -> &'a mut u8 {
        &mut items[0]
    }

    fn forward_both(&self, cache: &mut Vec<i32>, value: i32) -> usize {
        cache.push(value);
        cache.len()
    }
}

struct Model {
    layers: [Layer; 2],
    ticks: i32,
}

impl Model {
    fn tick(&mut self) -> i32 {
        self.ticks += 1;
        self.ticks
    }

    fn pick(&mut self) -> Layer {
        let tick = self.tick();
        self.layers[usize::from(tick > 1)].clone()
    }
}

#[burnscope::trace]
impl Model {
    fn forward_changed_argument(&mut self) -> String {
        let mut i = 0;
        self.layers[0].forward(i, {
            i += 1;
            i
        })
    }

    fn forward_receiver_first(&mut self) -> String {
        let layers = self.layers.clone();
        let mut layers = layers.iter();
        layers.next().unwrap().forward_next(layers.next().unwrap())
    }

    fn forward_all_in_order(&mut self) -> String {
        self.pick().forward(self.tick(), self.tick())
    }

    fn forward_temporaries(&self) -> usize {
        self.layers[0].forward_text(&String::from("abc")).pow(2)
    }

    fn forward_mutable_result<'a>(&self, items: &'a mut [u8]) -> &'a mut u8 {
        self.layers[0].forward_slice(items)
    }

    fn forward_mutable_self(&mut self) -> &mut i32 {
        &mut self.ticks
    }

    fn forward_reborrows(&self, cache: &mut Vec<i32>) -> usize {
        for value in 0..3 {
            self.layers[0].forward_both(cache, value.max(1));
        }
        cache.len()
    }

    fn forward_conditional(&self, #[cfg(any())] never: u8, x: u8) -> u8 {
        x
    }

    fn forward_macros(&self) -> usize {
        let texts = vec![self.layers[0].forward(1, 2); 2];
        texts.len()
    }

    #[burnscope(skip)]
    fn forward_skipped(&self, #[burnscope(positional)] x: u8) -> u8 {
        x
    }
}

/// Runs every method and says what came of it.
fn outcomes() -> Vec<String> {
    let mut model = Model {
        layers: [Layer("L0"), Layer("L1")],
        ticks: 0,
    };
    let mut results = vec![
        model.forward_changed_argument(),
        model.forward_receiver_first(),
        model.forward_all_in_order(),
        model.forward_temporaries().to_string(),
    ];
    let mut items = [1, 2];
    *model.forward_mutable_result(&mut items) += 5;
    *model.forward_mutable_self() += 10;
    results.push(format!("{items:?} {}", model.ticks));
    let mut cache = Vec::new();
    results.push(format!("{} {cache:?}", model.forward_reborrows(&mut cache)));
    results.push(format!(
        "{} {} {}",
        model.forward_conditional(3),
        model.forward_macros(),
        model.forward_skipped(4)
    ));
    results
}

const EXPECTED: [&str; 7] = [
    "L0 0 1",
    "L0 L1",
    "L0 2 3",
    "9",
    "[6, 2] 13",
    "3 [1, 1, 2]",
    "3 2 4",
];

#[test]
fn without_a_session_everything_is_as_written() {
    assert_eq!(outcomes(), EXPECTED);
}

#[test]
fn with_a_session_everything_is_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path())
        .name("Model")
        .start()
        .unwrap();
    let results = session.run(outcomes);
    assert_eq!(results, EXPECTED);
    let trace = session.finish().unwrap();
    assert_eq!(trace.roots.len(), 9);
    // `vec![element; count]` is looked into, too.
    assert_eq!(trace.roots[8].children.len(), 1);
}

#[derive(Debug)]
struct Explosive;

impl std::fmt::Display for Explosive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fine")
    }
}

struct Panics;

impl std::fmt::Debug for Panics {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no text for this")
    }
}

#[derive(Module, Debug)]
enum Either {
    Left(nn::Linear),
    Right(nn::Relu),
}

#[burnscope::trace]
impl Either {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Left(linear) => linear.forward(x),
            Self::Right(relu) => relu.forward(x),
        }
    }

    fn forward_odd(&self, odd: Panics) -> Explosive {
        let _ = odd;
        Explosive
    }
}

#[test]
fn an_enum_module_is_one_module_and_a_debug_that_panics_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let either = Either::Right(nn::Relu::new());
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Either", &either);
    let device = burn::tensor::Device::flex();
    session.run(|| {
        either.forward(Tensor::ones([1, 2], &device));
        assert_eq!(either.forward_odd(Panics).to_string(), "fine");
    });
    let trace = session.finish().unwrap();
    assert!(trace.complete);
    assert!(trace.roots.iter().all(|root| root.children.is_empty()));
    assert!(trace.roots[0].outputs.is_some());
}

#[test]
fn two_sessions_cannot_write_one_record() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model {
        layers: [Layer("L0"), Layer("L1")],
        ticks: 0,
    };
    let session = || {
        Session::builder(folder.path())
            .name("Model")
            .start()
            .unwrap()
    };
    let (first, second) = (session(), session());
    first.run(|| model.forward_temporaries());
    second.run(|| model.forward_temporaries());
    let error = second.finish().unwrap_err().to_string();
    assert!(
        error.contains("is being written by another session"),
        "{error}"
    );
    assert_eq!(first.finish().unwrap().roots.len(), 1);
    assert_eq!(
        burnscope::format::read(folder.path()).unwrap().roots.len(),
        1
    );
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_the_record_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("precious");
    std::fs::write(&target, "precious").unwrap();
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::os::unix::fs::symlink(&target, out.join("Model.burnscope.jsonl")).unwrap();
    let model = Model {
        layers: [Layer("L0"), Layer("L1")],
        ticks: 0,
    };
    let session = Session::builder(&out).name("Model").start().unwrap();
    session.run(|| model.forward_temporaries());
    session.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
}
