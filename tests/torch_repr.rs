//! Printed tensors and their statistics are PyTorch's, character for character.

use base64::{Engine, engine::general_purpose::STANDARD};
use burnscope::format::torch_repr;
use burnscope::summary::{DType, EdgeItems, Number, TensorView, edge_runs, torch};
use serde::Deserialize;

/// What PyTorch printed for 141 tensors; `meta` in the file says which version.
const REFERENCE: &str = include_str!("data/torch_repr.json");

#[derive(Deserialize)]
struct Reference {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: String,
    lines: Vec<String>,
    mean: Option<Statistic>,
    std: Option<Statistic>,
    min: Option<Statistic>,
    max: Option<Statistic>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Statistic {
    Value { repr: String, f64: String },
    Error { error: String },
}

impl Case {
    fn dtype(&self) -> DType {
        format!("torch.{}", self.dtype).parse().unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.bytes).unwrap()
    }
}

fn cases() -> Vec<Case> {
    let reference: Reference = serde_json::from_str(REFERENCE).unwrap();
    assert_eq!(reference.cases.len(), 141);
    reference.cases
}

#[test]
fn lines_are_those_of_print() {
    for case in cases() {
        let (dtype, bytes) = (case.dtype(), case.bytes());
        let items = match TensorView::contiguous(dtype.clone(), &case.shape, &bytes) {
            Ok(view) => {
                assert_eq!(torch_repr::lines(&view, None), case.lines, "{}", case.id);
                continue;
            }
            // Complex tensors cannot be summarised, but their shown elements can be printed.
            Err(_) => EdgeItems::new(dtype, &case.shape, &bytes).unwrap(),
        };
        assert_eq!(
            torch_repr::edge_lines(&items, None),
            case.lines,
            "{}",
            case.id
        );
    }
}

#[test]
fn lines_need_only_the_bytes_of_the_shown_elements() {
    let mut shortened = 0;
    for case in cases() {
        let (dtype, bytes) = (case.dtype(), case.bytes());
        let count: usize = case.shape.iter().product();
        let size = bytes.len().checked_div(count).unwrap_or(1);
        let mut shown = Vec::new();
        for run in edge_runs(&case.shape) {
            shown.extend_from_slice(&bytes[run.start * size..run.end * size]);
        }
        shortened += usize::from(shown.len() < bytes.len());
        let items = EdgeItems::new(dtype, &case.shape, &shown).unwrap();
        assert_eq!(
            torch_repr::edge_lines(&items, None),
            case.lines,
            "{}",
            case.id
        );
    }
    assert!(shortened >= 10, "{shortened} of the tensors are shortened");
}

#[test]
fn mean_std_min_and_max_are_those_of_torch() {
    let mut compared = 0;
    for case in cases() {
        let (dtype, bytes) = (case.dtype(), case.bytes());
        let Ok(view) = TensorView::contiguous(dtype.clone(), &case.shape, &bytes) else {
            continue;
        };
        let (summary, statistics) = torch::summarise(&view);
        assert_eq!(summary.count, view.count() as u64);
        let Some(mean) = &case.mean else {
            assert!(statistics.is_none(), "{}", case.id);
            continue;
        };
        let ours = statistics.unwrap_or_else(|| panic!("{} has statistics", case.id));
        for (name, ours, theirs) in [
            ("mean", Some(ours.mean), Some(mean)),
            ("std", Some(ours.std), case.std.as_ref()),
            ("min", ours.min, case.min.as_ref()),
            ("max", ours.max, case.max.as_ref()),
        ] {
            let id = format!("{name} of {}", case.id);
            match (ours, theirs.unwrap()) {
                (Some(ours), Statistic::Value { repr, f64: value }) => {
                    assert_eq!(&torch_repr::scalar(ours, &dtype, None), repr, "{id}");
                    let value: f64 = value.parse().unwrap();
                    let close = match (name, &dtype) {
                        // In double precision the order in which squares are added shows.
                        ("std", DType::F64) => (ours - value).abs() <= 1e-14 * value.abs(),
                        _ => false,
                    };
                    let same =
                        ours.to_bits() == value.to_bits() || (ours.is_nan() && value.is_nan());
                    assert!(same || close, "{id}: {ours:e} is not {value:e}");
                    compared += 1;
                }
                (None, Statistic::Error { error }) => assert!(error.contains("numel() == 0")),
                (ours, _) => panic!("{id}: {ours:?}"),
            }
        }
    }
    assert!(compared > 400, "{compared} values were compared");
}

#[test]
fn a_device_other_than_the_cpu_stands_before_the_dtype() {
    // `_str_intern` appends the device first, then the size of an empty tensor, then the dtype.
    assert_eq!(
        torch_repr::scalar(1.0, &DType::BF16, Some("cuda:0")),
        "tensor(1.0000e+00, device='cuda:0', dtype=torch.bfloat16)"
    );
    assert_eq!(
        torch_repr::scalar(-0.0, &DType::F32, Some("cuda:1")),
        "tensor(-0., device='cuda:1')"
    );
    let view = TensorView::contiguous(DType::F16, &[0, 2], &[]).unwrap();
    assert_eq!(
        torch_repr::lines(&view, Some("cuda:0")),
        ["tensor([], device='cuda:0', size=(0, 2), dtype=torch.float16)"]
    );
    let bytes = [0u8; 8 * 4];
    let view = TensorView::contiguous(DType::F32, &[8], &bytes).unwrap();
    assert_eq!(
        torch_repr::lines(&view, Some("cuda:0")),
        ["tensor([0., 0., 0., 0., 0., 0., 0., 0.], device='cuda:0')"]
    );
}

#[test]
fn a_suffix_without_room_gets_its_own_line() {
    // 8 elements of 10 characters reach column 104: 15 more for a dtype are too many.
    let bytes: Vec<u8> = (1..=8u16)
        .flat_map(|k| (k << 8 | 0x3c00).to_ne_bytes())
        .collect();
    let view = TensorView::contiguous(DType::F16, &[8], &bytes).unwrap();
    let lines = torch_repr::lines(&view, None);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].ends_with("],"));
    assert_eq!(lines[1], "       dtype=torch.float16)");
}

#[test]
fn room_for_a_suffix_is_counted_as_pytorch_counts_it() {
    // Seven elements of 11 characters end at column 98. A comma, a blank, 19 characters of dtype and
    // the parenthesis would end at column 120, but `_add_suffixes` begins from two columns more.
    let values = [-1f64; 7];
    let view = TensorView::contiguous(DType::F64, &[7], bytemuck::cast_slice(&values)).unwrap();
    let lines = torch_repr::lines(&view, None);
    assert_eq!(lines[0].len(), 98 + ",".len());
    assert_eq!(lines[1], "       dtype=torch.float64)");
    // 23 elements of two characters end at column 99: 17 of dtype just fit.
    let values = [10i32; 23];
    let view = TensorView::contiguous(DType::I32, &[23], bytemuck::cast_slice(&values)).unwrap();
    let lines = torch_repr::lines(&view, None);
    assert_eq!(
        (lines.len(), lines[0].len()),
        (1, 99 + ", dtype=torch.int32)".len())
    );
}

#[test]
fn a_view_prints_as_its_row_major_copy() {
    let values: Vec<f32> = (0..2400).map(|k| (k as f32 * 0.37).sin()).collect();
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let transposed = TensorView::strided(DType::F32, &[60, 40], &[1, 60], 0, bytes).unwrap();
    let copy: Vec<f32> = (0..60)
        .flat_map(|i| (0..40).map(move |j| j * 60 + i))
        .map(|k: usize| values[k])
        .collect();
    let copy = TensorView::contiguous(DType::F32, &[60, 40], bytemuck::cast_slice(&copy)).unwrap();
    assert_eq!(
        torch_repr::lines(&transposed, None),
        torch_repr::lines(&copy, None)
    );

    let flipped = TensorView::strided(DType::F32, &[5], &[-1], 4, bytes).unwrap();
    let broadcast = TensorView::strided(DType::F32, &[2, 3], &[0, 1], 0, bytes).unwrap();
    assert_eq!(
        torch_repr::lines(&flipped, None)[0].matches(", ").count(),
        4
    );
    let rows = torch_repr::lines(&broadcast, None);
    assert_eq!(
        rows[0].trim_start_matches("tensor([["),
        format!("{},", &rows[1][9..rows[1].len() - 2])
    );
}

#[test]
fn bytes_that_are_not_the_shown_elements_are_refused() {
    let error = EdgeItems::new(DType::F32, &[2, 2], &[0; 12]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("prints 4 elements, but 3 are given"),
        "{error}"
    );
    let unknown = DType::Other("torch.qint32".into());
    let error = EdgeItems::new(unknown, &[1], &[0; 4]).unwrap_err();
    assert!(error.to_string().contains("torch.qint32"), "{error}");
}

#[test]
fn statistics_of_a_known_summary_are_rounded_to_the_dtype() {
    let values = [0.25f32, 0.5, 3.0];
    let view = TensorView::contiguous(DType::F32, &[3], bytemuck::cast_slice(&values)).unwrap();
    let summary = burnscope::summary::summarise(&view);
    assert_eq!(summary.min, Some(Number::Float(0.25)));
    let rounded = torch::Statistics::from_summary(&summary, &DType::F32).unwrap();
    let (_, exact) = torch::summarise(&view);
    assert_eq!(rounded, exact.unwrap());
    assert!(torch::Statistics::from_summary(&summary, &DType::I64).is_none());
}

#[test]
fn edge_runs_name_the_first_and_last_three_of_each_dimension() {
    let whole = |shape: &[usize]| edge_runs(shape).into_iter().flatten().count();
    assert_eq!((edge_runs(&[]).len(), whole(&[])), (1, 1));
    assert_eq!((edge_runs(&[1000]).len(), whole(&[1000])), (1, 1000));
    assert!(edge_runs(&[0, 5]).is_empty());
    assert_eq!(edge_runs(&[1001]), [0..3, 998..1001]);
    assert_eq!(edge_runs(&[2, 600]), [0..3, 597..603, 1197..1200]);
    assert_eq!(edge_runs(&[600, 2]), [0..6, 1194..1200]);
    let cube: Vec<usize> = edge_runs(&[20, 20, 20]).into_iter().flatten().collect();
    let plain: Vec<usize> = (0..8000)
        .filter(|k| {
            [k / 400, k / 20 % 20, k % 20]
                .iter()
                .all(|i| *i < 3 || *i > 16)
        })
        .collect();
    assert_eq!(cube, plain);
}
