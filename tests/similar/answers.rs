//! What is answered for a model of the grove, and why.

use burnscope::similar::{analysis::Options, compat, definitions::Kind, report, source::Layout};
use serde_json::{Map, Value};

use crate::support::{Grove, best, data, finding};

#[test]
fn a_twin_under_another_name_is_found_first_with_score_one() {
    let answer = Grove::new().ask("yew");
    let norm = finding(&answer, "YewTextNorm");
    assert_eq!(norm.best[0].name, "oak/modeling_oak.py:OakNorm");
    assert!(norm.best[0].score > 0.8, "{}", norm.best[0].score);
    assert!(
        norm.difference.as_ref().is_some_and(|d| d.lines.is_empty()),
        "{:?}",
        norm.difference
    );
    let mlp = finding(&answer, "YewMLP");
    assert_eq!(
        (mlp.best[0].name.as_str(), mlp.best[0].score),
        ("oak/modeling_oak.py:OakMLP", 1.0)
    );
    assert!(mlp.best[0].identical);
}

#[test]
fn a_twin_with_the_same_name_is_found() {
    let answer = Grove::new().ask("yew");
    let rotate = finding(&answer, "rotate_half");
    assert_eq!(rotate.kind, Kind::Function);
    assert_eq!(rotate.best[0].name, "oak/modeling_oak.py:rotate_half");
    assert_eq!(rotate.best[0].score, 1.0);
    assert_eq!(rotate.jaccard[0].name, "oak/modeling_oak.py:rotate_half");
}

#[test]
fn the_file_has_one_parent() {
    let answer = Grove::new().ask("yew");
    let parent = answer.parent.expect("a parent");
    assert_eq!(
        (parent.model.as_str(), parent.file.as_str()),
        ("oak", "oak/modeling_oak.py")
    );
}

#[test]
fn a_later_model_is_no_parent_but_may_be_similar() {
    let grove = Grove::new();
    let answer = grove.ask("yew");
    assert!(
        answer
            .findings
            .iter()
            .all(|f| f.best.iter().all(|m| !m.name.starts_with("ash/")))
    );
    assert!(
        finding(&answer, "YewMLP")
            .jaccard
            .iter()
            .any(|s| s.name.starts_with("ash/"))
    );
    let any_date = grove.ask_with(
        "yew",
        Options {
            only_older: false,
            ..Options::default()
        },
    );
    assert!(best(&any_date, "YewMLP").contains(&"ash/modeling_ash.py:AshMLP"));
}

#[test]
fn equal_answers_are_ordered_by_age() {
    let grove = Grove::new();
    // Without statements of inheritance nothing but the dates tells the clones apart.
    std::fs::remove_file(grove.model_file("elm/modular_elm.py")).expect("is removed");
    let scores = finding(&grove.ask("ash"), "rotate_half").jaccard.clone();
    let names: Vec<&str> = scores.iter().take(3).map(|s| s.name.as_str()).collect();
    assert!(scores.iter().take(3).all(|s| s.score == 1.0));
    assert_eq!(
        names,
        [
            "oak/modeling_oak.py:rotate_half",
            "elm/modeling_elm.py:rotate_half",
            "yew/modeling_yew.py:rotate_half"
        ]
    );
}

#[test]
fn the_statements_of_the_asked_model_itself_do_not_count() {
    let grove = Grove::new();
    let before = report::to_json(&grove.ask("yew"));
    grove.write(
        "yew/modular_yew.py",
        "from ..elm.modeling_elm import ElmMLP, ElmNorm, rotate_half\n\nclass YewMLP(ElmMLP):\n    pass\n\nclass YewTextNorm(ElmNorm):\n    pass\n",
    );
    assert_eq!(report::to_json(&grove.ask("yew")), before);
    // Another model's statement does count.
    let elm_before = likelihood(&grove.ask("ash"), "AshMLP", "elm/modeling_elm.py:ElmMLP");
    std::fs::remove_file(grove.model_file("yew/modular_yew.py")).expect("is removed");
    assert!(elm_before > likelihood(&grove.ask("ash"), "AshMLP", "elm/modeling_elm.py:ElmMLP"));
}

fn likelihood(answer: &burnscope::similar::analysis::Analysis, name: &str, parent: &str) -> f32 {
    let found = finding(answer, name)
        .best
        .iter()
        .find(|found| found.name == parent);
    found.expect("the candidate is among the best").probability
}

#[test]
fn the_asked_model_is_no_answer_to_itself() {
    let answer = Grove::new().ask("oak");
    for finding in &answer.findings {
        let jaccard = finding.jaccard.iter().map(|s| &s.name);
        assert!(
            finding
                .best
                .iter()
                .map(|m| &m.name)
                .chain(jaccard)
                .all(|name| !name.starts_with("oak/"))
        );
    }
}

#[test]
fn definitions_under_a_condition_and_decorators_count() {
    let grove = Grove::new();
    let index = grove.index();
    let entry = index
        .find("oak/modeling_oak.py:OakFastNorm")
        .expect("a conditional class");
    assert!(index.definition(entry).conditional);
    let mask = index
        .find("samara/modeling_samara.py:samara_mask")
        .expect("a decorated function");
    assert_eq!(
        index.definition(mask).line,
        17,
        "the line is that of the name"
    );
    let before = index.exact(mask);
    grove.edit("samara/modeling_samara.py", "@torch.compile\n", "");
    let index = grove.index();
    let mask = index
        .find("samara/modeling_samara.py:samara_mask")
        .expect("still there");
    assert_ne!(
        index.exact(mask),
        before,
        "a decorator is part of the definition"
    );
}

#[test]
fn methods_are_compared_on_request() {
    let grove = Grove::new();
    let index = burnscope::similar::index::Index::build(grove.root(), true, &|| ());
    let query =
        burnscope::similar::analysis::QueryFile::open("yew", grove.root(), index.layout(), true)
            .expect("opens");
    let answer = burnscope::similar::analysis::analyse(&index, &query, Options::default());
    let forward = finding(&answer, "YewMLP.forward");
    assert_eq!(forward.kind, Kind::Method);
    assert_eq!(forward.best[0].name, "oak/modeling_oak.py:OakMLP.forward");
    assert!(
        grove
            .ask("yew")
            .findings
            .iter()
            .all(|f| f.kind != Kind::Method)
    );
}

#[test]
fn one_answer_for_a_group_of_clones() {
    let grove = Grove::new();
    let options = Options {
        only_older: false,
        one_per_group: true,
        ..Options::default()
    };
    let rotate = grove.ask_with("yew", options);
    let names = best(&rotate, "rotate_half");
    assert_eq!(
        names
            .iter()
            .filter(|name| name.ends_with("rotate_half"))
            .count(),
        1,
        "{names:?}"
    );
    let all = grove.ask_with(
        "yew",
        Options {
            one_per_group: false,
            ..options
        },
    );
    assert_eq!(
        best(&all, "rotate_half")
            .iter()
            .filter(|name| name.ends_with("rotate_half"))
            .count(),
        3
    );
    assert_eq!(
        finding(&all, "rotate_half").best[0].clones,
        3,
        "oak, elm, ash and yew are one group"
    );
}

#[test]
fn the_difference_shows_what_changed_after_renaming() {
    let answer = Grove::new().ask("yew");
    let layer = finding(&answer, "YewLayer");
    assert_eq!(layer.best[0].name, "oak/modeling_oak.py:OakLayer");
    let lines = &layer.difference.as_ref().expect("a difference").lines;
    assert!(
        lines.contains(&"+ return self.output_norm(hidden_states) + residual".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"- return self.output_norm(hidden_states + residual)".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .all(|line| !line.contains("Oak") && !line.contains("Yew")),
        "{lines:?}"
    );
}

#[test]
fn the_skeleton_inherits_what_is_repeated_and_keeps_what_is_not() {
    let answer = Grove::new().ask("yew");
    let expected = "\
from ..oak.modeling_oak import OakLayer, OakMLP, OakNorm, OakPreTrainedModel, rotate_half


class YewTextNorm(OakNorm):
    pass


class YewMLP(OakMLP):
    pass


class YewLayer(OakLayer):
    def forward(self, hidden_states, position_embeddings=None):
        residual = hidden_states
        hidden_states = self.mlp(self.input_norm(hidden_states))
        return self.output_norm(hidden_states) + residual

    def reset(self):
        self.mlp = None

    def extra_repr(self):
        raise AttributeError(\"not part of this model\")


class YewPreTrainedModel(OakPreTrainedModel):
    pass


__all__ = [\"YewPreTrainedModel\"]
";
    assert_eq!(answer.skeleton, expected, "\n{}", answer.skeleton);
    burnscope::similar::source::parse(&answer.skeleton).expect("the skeleton is Python");
}

#[test]
fn the_json_has_the_promised_form() {
    let json = report::to_json(&Grove::new().ask("yew"));
    assert_eq!(json["parent"], "oak");
    let definitions = json["definitions"].as_object().expect("a map");
    assert_eq!(
        definitions.keys().collect::<Vec<_>>(),
        [
            "YewTextNorm",
            "rotate_half",
            "YewMLP",
            "YewLayer",
            "YewPreTrainedModel"
        ]
    );
    for (name, definition) in definitions {
        assert!(definition.get("embedding").is_none(), "no model was used");
        for list in ["best", "jaccard"] {
            let list = definition[list].as_array().expect("a list");
            let scores: Vec<f64> = list
                .iter()
                .map(|entry| entry["score"].as_f64().expect("a score"))
                .collect();
            assert!(scores.is_sorted_by(|a, b| a >= b), "{name}: {scores:?}");
            assert!(
                scores.iter().all(|score| (0.0..=1.0).contains(score)),
                "{name}: {scores:?}"
            );
            assert!(list.iter().all(|entry| {
                entry["name"]
                    .as_str()
                    .is_some_and(|name| name.contains(".py:"))
            }));
        }
    }
}

#[test]
fn jaccard_is_that_of_the_identifiers_after_renaming() {
    let grove = Grove::new();
    grove.write(
        "fir/modeling_fir.py",
        "def fir_sum(a, b):\n    return a + b.fir\n",
    );
    grove.write(
        "yew/modeling_yew.py",
        "def yew_sum(a, c):\n    # b\n    return a + c.yew + a\n",
    );
    let answer = grove.ask("yew");
    let scored = &finding(&answer, "yew_sum").jaccard[0];
    assert_eq!(scored.name, "fir/modeling_fir.py:fir_sum");
    // {model_sum, a, b, model} and {model_sum, a, c, model}: three of five.
    assert_eq!(scored.score, 0.6);
}

#[test]
fn compat_gives_the_scripts_scores() {
    let expected: Map<String, Value> = serde_json::from_str(
        &std::fs::read_to_string(data().join("script_jaccard_tree.json")).expect("data"),
    )
    .expect("JSON");
    let root = data().join("tree");
    let layout = Layout::of(&root);
    let (files, faults) = compat::read_all(&layout, &|| ());
    assert_eq!((files.len(), faults.len()), (5, 0));
    assert_eq!(expected.len(), 5);
    for (file, definitions) in &expected {
        let query = layout.root.join(file);
        let model = compat::query_model(&query, &layout);
        let answers = compat::jaccard(&query, &model, &files, 1000).expect("reads");
        let definitions = definitions.as_object().expect("a map");
        assert_eq!(answers.len(), definitions.len(), "{file}");
        for (name, scored) in answers {
            let mut found: Vec<(String, f64)> = scored;
            let mut wanted: Vec<(String, f64)> =
                serde_json::from_value(definitions[&name].clone()).expect("pairs");
            // Ties come in the order of the directory, which differs between machines.
            for list in [&mut found, &mut wanted] {
                list.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            }
            assert_eq!(found, wanted, "{file}:{name}");
        }
    }
}

#[test]
fn a_plain_folder_of_python_files_is_an_index_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let norm =
        "class Norm:\n    def forward(self, x):\n        return x * self.weight + self.bias\n";
    std::fs::write(folder.path().join("first.py"), norm).expect("writes");
    std::fs::write(folder.path().join("second.py"), norm).expect("writes");
    let index = burnscope::similar::index::Index::build(folder.path(), false, &|| ());
    let path = folder.path().join("second.py");
    let given = path.to_str().expect("a name");
    let query =
        burnscope::similar::analysis::QueryFile::open(given, folder.path(), index.layout(), false)
            .expect("opens");
    let answer = burnscope::similar::analysis::analyse(&index, &query, Options::default());
    assert_eq!(best(&answer, "Norm"), ["first.py:Norm"]);
    assert_eq!(
        answer.parent.map(|parent| parent.model).as_deref(),
        Some("first")
    );
}
