//! What is wrong with a model's inputs is said before it runs.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;

use burnscope::models::{InputError, IntMatrix, ModelInputs};
use safetensors::Dtype;
use tempfile::TempDir;

use crate::support::{Stored, load, write_tensors};

#[test]
fn inputs_a_model_cannot_take_are_refused_before_it_runs() {
    let bert = load("bert_f32");
    let llama = load("llama_f32");
    let rows = |rows: &[&[i64]]| {
        let rows: Vec<Vec<i64>> = rows.iter().map(|row| row.to_vec()).collect();
        IntMatrix::from_rows(&rows).expect("equal rows")
    };
    let with = |ids: &[&[i64]], change: &dyn Fn(&mut ModelInputs)| {
        let mut inputs = ModelInputs::new(rows(ids));
        change(&mut inputs);
        inputs
    };
    let too_long: &[i64] = &[1; 17];
    for (inputs, expected) in [
        (with(&[], &|_| ()), "nothing to run"),
        (with(&[&[]], &|_| ()), "nothing to run"),
        (
            with(&[&[1, 48]], &|_| ()),
            "`input_ids` holds 48 at [0, 1]; it must be from 0 to 47",
        ),
        (
            with(&[&[1], &[-1]], &|_| ()),
            "`input_ids` holds -1 at [1, 0]",
        ),
        (
            with(&[too_long], &|_| ()),
            "17 tokens; the model has 16 positions",
        ),
        (
            with(&[&[1, 2]], &|i| i.attention_mask = Some(rows(&[&[1]]))),
            "`attention_mask` has shape [1, 1]",
        ),
        (
            with(&[&[1, 2]], &|i| i.attention_mask = Some(rows(&[&[1, 2]]))),
            "`attention_mask` holds 2",
        ),
        (
            with(&[&[1, 2]], &|i| i.token_type_ids = Some(rows(&[&[0, 2]]))),
            "`token_type_ids` holds 2",
        ),
        (
            with(&[&[1, 2]], &|i| i.position_ids = Some(rows(&[&[0, 16]]))),
            "`position_ids` holds 16",
        ),
        (
            with(&[&[1], &[2]], &|i| {
                i.position_ids = Some(rows(&[&[0], &[0], &[0]]))
            }),
            "`position_ids` has shape [3, 1]",
        ),
    ] {
        let message = bert.forward(&inputs).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message}");
    }
    let typed = with(&[&[1]], &|i| i.token_type_ids = Some(rows(&[&[0]])));
    let message = llama.forward(&typed).expect_err("no types").to_string();
    assert_eq!(message, "LlamaForCausalLM takes no `token_type_ids`");
    assert_eq!(IntMatrix::from_rows(&[vec![1], vec![]]), None);
}

#[test]
fn a_file_of_inputs_says_what_is_wrong_with_it() -> Result<(), Box<dyn Error>> {
    let folder = TempDir::new()?;
    let path = folder.path().join("inputs.safetensors");
    let read = |tensors: &[(&str, Dtype, &[usize], usize)]| {
        let tensors: BTreeMap<String, Stored> = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                (
                    (*name).to_owned(),
                    (*dtype, shape.to_vec(), vec![0; *bytes]),
                )
            })
            .collect();
        write_tensors(&path, &tensors);
        ModelInputs::read(&path)
    };
    let ids = ("input_ids", Dtype::I64, &[1, 2][..], 16);
    assert!(read(&[ids]).is_ok());
    let error = read(&[("input_ids", Dtype::F32, &[1, 2], 8)]).expect_err("a float");
    assert_eq!(
        error.to_string(),
        "`input_ids` is F32; it must be int64 (safetensors I64)"
    );
    let error = read(&[("input_ids", Dtype::I64, &[2], 16)]).expect_err("a vector");
    assert!(matches!(error, InputError::Rank { .. }), "{error}");
    let error = read(&[("attention_mask", Dtype::I64, &[1, 2], 16)]).expect_err("no ids");
    assert!(matches!(error, InputError::NoInputIds), "{error}");
    let error = read(&[ids, ("pixel_values", Dtype::F32, &[1], 4)]).expect_err("pixels");
    assert!(error.to_string().contains("`pixel_values`"), "{error}");
    for bytes in [&b""[..], b"12345678", &[0xff; 64]] {
        fs::write(&path, bytes)?;
        let error = ModelInputs::read(&path).expect_err("garbage");
        assert!(matches!(error, InputError::Format { .. }), "{error}");
    }
    let error = ModelInputs::read(folder.path()).expect_err("a folder");
    assert!(matches!(error, InputError::File(_)), "{error}");
    Ok(())
}
