//! The operations that known types of modules make: one pattern of data flow for each type, as text.
//!
//! `y = Matmul(x, $weight)` is a step: an operation by Burn's name (or several names, `A|B`) and what it
//! reads. A name that no step before made is an input of the module, `$name` one of its parameters in
//! any form, `#name` a tensor that is neither. `Cast?` may be missing, its operand then stands for its
//! result; so may an argument with `?`. The last step makes the result, or what `->` names; after `|`
//! stand other steps that nothing reads. `Add` and `Mul` read their operands in either order.

use std::sync::OnceLock;

/// What a module's first input and its result have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alike {
    /// Shape and element type. The module may compute in another type: a cast before the pattern and
    /// one after it are part of it.
    Tensor,
    /// Every dimension but the last.
    Rows,
    /// The number of dimensions.
    Rank,
    /// Nothing.
    No,
}

/// The operations of the modules of some types.
struct Template {
    /// The types; none for a pattern that any module with parameters may have.
    kinds: &'static [&'static str],
    alike: Alike,
    pattern: &'static str,
}

const fn template(kinds: &'static [&'static str], alike: Alike, pattern: &'static str) -> Template {
    Template {
        kinds,
        alike,
        pattern,
    }
}

/// `s`, the sigmoid of `$of`.
macro_rules! sigmoid {
    ($of:literal) => {
        concat!(
            "s = Cast?(",
            $of,
            "); s = MulScalar(s); s = Exp(s); s = AddScalar(s); s = Log(s); s = MulScalar(s); ",
            "s = Exp(s); s = Cast?(s)"
        )
    };
}

/// The table. A new type of module is one more entry; `tests::every_pattern_is_sound` reads all.
#[rustfmt::skip]
const TABLE: &[Template] = &[
    // Parameters.
    template(&["Linear"], Alike::Rows, "m = Matmul(x, $weight); y = Add?(m, $bias)"),
    // Few rows a batch: Burn multiplies all of them as one matrix.
    template(&["Linear"], Alike::Rows, "r = Reshape(x); m = Matmul(r, $weight); b = Add?(m, $bias); y = Reshape(b)"),
    template(&["Linear"], Alike::Rows, "y = Linear(x, $weight, $bias?)"),
    template(&["Embedding"], Alike::No, "i = Reshape(x); s = Select($weight, i); y = Reshape(s)"),
    template(&["Embedding"], Alike::No, "y = Embedding($weight, x)"),
    template(&["Conv1d"], Alike::No, "y = Conv1d(x, $weight, $bias?)"),
    template(&["Conv2d"], Alike::No, "y = Conv2d(x, $weight, $bias?)"),
    template(&["Conv3d"], Alike::No, "y = Conv3d(x, $weight, $bias?)"),
    template(&["ConvTranspose1d"], Alike::No, "y = ConvTranspose1d(x, $weight, $bias?)"),
    template(&["ConvTranspose2d"], Alike::No, "y = ConvTranspose2d(x, $weight, $bias?)"),
    template(&["ConvTranspose3d"], Alike::No, "y = ConvTranspose3d(x, $weight, $bias?)"),
    template(&["DeformConv2d"], Alike::No, "y = DeformableConv2d(x, offset, $weight, mask?, $bias?)"),
    template(&["RmsNorm"], Alike::Tensor, "w = Cast?(x); v = Mul(w, w); v = MeanDim(v); v = AddScalar(v); v = Sqrt(v); v = Cast?(v); d = Div(x, v); y = Mul(d, $gamma)"),
    // transformers' order of operations.
    template(&[], Alike::Tensor, "v = Mul(x, x); v = MeanDim(v); v = AddScalar(v); v = Sqrt(v); v = Recip(v); n = Mul(x, v); n = Cast?(n); y = Mul($weight, n)"),
    template(&["LayerNorm"], Alike::Tensor, "m = MeanDim(x); c = Sub(x, m); v = Mul(c, c); v = MeanDim(v); v = AddScalar(v); v = Sqrt(v); d = Div(c, v); g = Mul(d, $gamma); y = Add?(g, $beta)"),
    template(&["LayerNorm"], Alike::Tensor, "y = LayerNorm(x, $gamma, $beta?)"),
    template(&["GroupNorm", "InstanceNorm"], Alike::Tensor, "f = Reshape(x); f = Cast?(f); m = MeanDim(f); c = Sub(f, m); v = Mul(c, c); v = MeanDim(v); v = AddScalar(v); v = Sqrt(v); d = Div(c, v); d = Cast?(d); d = Reshape(d); g = Mul?(d, $gamma); y = Add?(g, $beta)"),
    template(&["BatchNorm"], Alike::Tensor, "v = AddScalar($running_var); v = Sqrt(v); c = Sub(x, $running_mean); d = Div(c, v); g = Mul(d, $gamma); y = Add(g, $beta)"),
    template(&["BatchNorm"], Alike::Tensor, "y = BatchNorm(x, $gamma, $beta, $running_mean, $running_var)"),
    // Training: the running statistics are brought up to date beside the result.
    template(&["BatchNorm"], Alike::Rank, concat!(
        "m = SwapDims(x); m = Reshape(m); m = MeanDim(m); m = Reshape(m); c = Sub(x, m); v = Mul(c, c); v = SwapDims(v); v = Reshape(v); v = MeanDim(v); ",
        "mean = Reshape(m); var = Reshape(v); m = Reshape(mean); v = Reshape(var); v = AddScalar(v); v = Sqrt(v); c = Sub(x, m); d = Div(c, v); g = Mul(d, $gamma); y = Add(g, $beta); ",
        "a = MulScalar($running_mean); b = MulScalar(mean); a = Add(a, b); c = MulScalar($running_var); d = MulScalar(var); c = Add(c, d) -> y | a, c",
    )),
    template(&["PRelu"], Alike::Tensor, "l = LowerElem(x); m = Mul(x, $alpha); y = MaskWhere(x, l, m)"),
    template(&["PRelu"], Alike::Tensor, "y = PRelu(x, $alpha)"),
    // Activations.
    template(&["Gelu"], Alike::Tensor, "d = DivScalar(x); e = Erf(d); e = AddScalar(e); m = Mul(x, e); y = DivScalar(m)"),
    template(&["Gelu"], Alike::Tensor, "y = Gelu(x)"),
    template(&["Gelu", "GeluTanh"], Alike::Tensor, "p = PowfScalar(x); p = MulScalar(p); p = Add(x, p); p = MulScalar(p); t = Tanh(p); t = AddScalar(t); m = Mul(x, t); y = MulScalar(m)"),
    template(&["QuickGelu"], Alike::Tensor, concat!("q = MulScalar(x); ", sigmoid!("q"), "; y = Mul(x, s)")),
    template(&["Silu", "Swish"], Alike::Tensor, concat!(sigmoid!("x"), "; y = Mul(x, s)")),
    template(&["Silu", "Swish"], Alike::Tensor, "s = Sigmoid(x); y = Mul(x, s)"),
    template(&["Sigmoid"], Alike::Tensor, sigmoid!("x")),
    template(&["Sigmoid"], Alike::Tensor, "y = Sigmoid(x)"),
    template(&["LogSigmoid"], Alike::Tensor, "y = LogSigmoid(x)"),
    template(&["Tanh"], Alike::Tensor, "y = Tanh(x)"),
    template(&["Tanhshrink"], Alike::Tensor, "t = Tanh(x); y = Sub(x, t)"),
    template(&["Relu", "ThresholdedRelu", "Threshold"], Alike::Tensor, "l = LowerEqualElem(x); y = MaskFill(x, l)"),
    template(&["Relu"], Alike::Tensor, "y = Relu(x)"),
    template(&["Relu6", "HardTanh", "Hardtanh"], Alike::Tensor, "y = Clamp(x)"),
    template(&["LeakyRelu", "RRelu"], Alike::Tensor, "l = LowerElem(x); m = MulScalar(x); y = MaskWhere(x, l, m)"),
    template(&["LeakyRelu", "RRelu"], Alike::Tensor, "y = LeakyRelu(x)"),
    template(&["HardSigmoid"], Alike::Tensor, "c = Cast?(x); c = MulScalar(c); c = AddScalar(c); c = Clamp(c); y = Cast?(c)"),
    template(&["HardSwish"], Alike::Tensor, "c = Cast?(x); c = MulScalar(c); c = AddScalar(c); c = Clamp(c); c = Cast?(c); y = Mul(x, c)"),
    template(&["Softplus"], Alike::Tensor, "b = MulScalar(x); g = GreaterElem(b); f = MaskFill(b, g); f = Exp(f); f = Log1p(f); f = DivScalar(f); y = MaskWhere(f, g, x)"),
    template(&["Mish"], Alike::Tensor, "b = MulScalar(x); g = GreaterElem(b); f = MaskFill(b, g); f = Exp(f); f = Log1p(f); f = DivScalar(f); f = MaskWhere(f, g, x); f = Tanh(f); y = Mul(x, f)"),
    template(&["Selu"], Alike::Tensor, "g = GreaterEqualElem(x); p = MulScalar(x); n = Exp(x); n = SubScalar(n); n = MulScalar(n); y = MaskWhere(n, g, p)"),
    template(&["Elu"], Alike::Tensor, "l = LowerEqualElem(x); n = Exp(x); n = SubScalar(n); n = MulScalar(n); y = MaskWhere(x, l, n)"),
    template(&["Celu"], Alike::Tensor, "l = LowerEqualElem(x); n = DivScalar(x); n = Exp(n); n = SubScalar(n); n = MulScalar(n); y = MaskWhere(x, l, n)"),
    template(&["Softsign"], Alike::Tensor, "a = Abs(x); a = AddScalar(a); y = Div(x, a)"),
    template(&["HardShrink"], Alike::Tensor, "a = Abs(x); l = LowerEqualElem(a); y = MaskFill(x, l)"),
    template(&["Shrink", "SoftShrink"], Alike::Tensor, "a = Abs(x); z = Zeros(); l = LowerElem(x); g = GreaterElem(x); z = MaskFill(z, l); z = MaskFill(z, g); z = MulScalar(z); s = Sub(x, z); l = LowerEqualElem(a); y = MaskFill(s, l)"),
    template(&["GLU"], Alike::Rank, concat!("a = Slice(x); b = Slice(x); ", sigmoid!("b"), "; y = Mul(a, s)")),
    // Others without parameters.
    template(&["Dropout"], Alike::Tensor, "r = Random(); m = Mul(x, r); y = MulScalar(m)"),
    template(&["MaxPool1d"], Alike::Rank, "y = MaxPool1d(x)"),
    template(&["MaxPool2d"], Alike::Rank, "y = MaxPool2d(x)"),
    template(&["AvgPool1d"], Alike::Rank, "y = AvgPool1d(x)"),
    template(&["AvgPool2d"], Alike::Rank, "y = AvgPool2d(x)"),
    template(&["AdaptiveAvgPool1d"], Alike::Rank, "y = AdaptiveAvgPool1d(x)"),
    template(&["AdaptiveAvgPool2d"], Alike::Rank, "y = AdaptiveAvgPool2d(x)"),
    template(&["AdaptiveAvgPool3d"], Alike::Rank, "y = AdaptiveAvgPool3d(x)"),
    template(&["Interpolate2d"], Alike::Rank, "y = Interpolate(x)"),
    template(&["PositionalEncoding"], Alike::Tensor, "s = Slice(#sinusoids); y = Add(x, s)"),
    template(&["RotaryEncoding"], Alike::Rank, "u = Init(); r = Reshape(x); u = Reshape(u); m = Matmul(r, u); m = Reshape(m); f = Slice(#freq_complex); f = Reshape(f); m = Mul(m, f); m = SumDim(m); y = Reshape(m)"),
    // Cosines and sines of the positions (transformers' modules of this name).
    template(&["RotaryEmbedding"], Alike::No, "i = Init(); p = IntoFloat?(positions); p = Cast?(p); p = Reshape(p); f = Mul(p, i); e = Cat(f, f); c = Cos(e); s = Sin(e); cos = Cast?(c); sin = Cast?(s) -> cos, sin"),
];

/// Types whose parameter is only ever looked up in; whatever else reads it is no call of theirs.
pub(super) const LOOKUPS: &[&str] = &["Embedding"];

/// Types that call their parts once for each step of a sequence, in one call of their own.
pub(super) const LOOPS: &[&str] = &["BiGru", "BiLstm", "BiRnn", "Gru", "Lstm", "Rnn"];

/// A tensor of a call of a module with parts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pick {
    /// What the flow tells and no other pick names.
    Passing,
    /// An operand of the last operation of this name outside the parts.
    Operand(&'static str, usize),
    /// The same before it was reshaped for that.
    Relaid(&'static str, usize),
    /// What the part of this name was last given.
    InputOf(&'static str),
}

/// What a module with parts is given and returns, where the flow does not tell all: a tensor may be
/// returned that was used inside only, or given more than once.
pub(super) struct Signature {
    kind: &'static str,
    pub(super) inputs: &'static [Pick],
    pub(super) outputs: &'static [Pick],
}

const SIGNATURES: &[Signature] = &[
    // Query, key, value, masks; weights and context.
    Signature {
        kind: "MultiHeadAttention",
        inputs: &[
            Pick::InputOf("query"),
            Pick::InputOf("key"),
            Pick::InputOf("value"),
            Pick::Passing,
        ],
        outputs: &[Pick::Operand("Matmul", 0), Pick::Passing],
    },
    // All hidden states; the last cell and hidden state.
    Signature {
        kind: "Lstm",
        inputs: &[Pick::Passing],
        outputs: &[
            Pick::Passing,
            Pick::InputOf("hidden_activation"),
            Pick::Relaid("SliceAssign", 1),
        ],
    },
];

/// The signature of a type, where it has one of its own.
pub(super) fn signature(kind: &str) -> Option<&'static Signature> {
    SIGNATURES.iter().find(|signature| signature.kind == kind)
}

/// What a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Input(usize),
    Parameter(usize),
    Buffer,
    Step(usize),
}

/// A step's argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    pub(super) source: Source,
    pub(super) optional: bool,
}

/// One operation of a pattern.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) names: Vec<String>,
    pub(super) arguments: Vec<Argument>,
    /// Whether the operation may be missing.
    pub(super) optional: bool,
}

impl Step {
    /// What stands for the result where the operation is missing.
    pub(super) fn through(&self) -> Option<Source> {
        let mut sources = self.arguments.iter().map(|argument| argument.source);
        sources.find(|source| matches!(source, Source::Input(_) | Source::Step(_)))
    }
}

/// A template, parsed.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) kinds: &'static [&'static str],
    pub(super) alike: Alike,
    pub(super) steps: Vec<Step>,
    /// The steps whose results no other step reads: what is returned, then the others.
    pub(super) results: Vec<usize>,
    /// How many of them are returned.
    pub(super) returned: usize,
    pub(super) inputs: usize,
    pub(super) parameters: usize,
}

impl Pattern {
    /// Whether an operation of this name may read one of the module's parameters.
    pub(super) fn reads_parameter_by(&self, name: &str) -> bool {
        self.steps.iter().any(|step| {
            step.names.iter().any(|known| known == name)
                && step
                    .arguments
                    .iter()
                    .any(|argument| matches!(argument.source, Source::Parameter(_)))
        })
    }

    /// Whether an operation of this name may make a result.
    pub(super) fn may_end_with(&self, name: &str) -> bool {
        let mut at = self.results.first().copied();
        while let Some(index) = at {
            let step = &self.steps[index];
            if step.names.iter().any(|known| known == name) {
                return true;
            }
            at = match step.through() {
                Some(Source::Step(before)) if step.optional => Some(before),
                _ => None,
            };
        }
        false
    }
}

/// Every pattern of the table, in its order.
pub(super) fn patterns() -> &'static [Pattern] {
    static PATTERNS: OnceLock<Vec<Pattern>> = OnceLock::new();
    PATTERNS.get_or_init(|| TABLE.iter().filter_map(parse).collect())
}

/// The patterns of a type.
pub(super) fn of_kind(kind: &str) -> impl Iterator<Item = &'static Pattern> {
    patterns()
        .iter()
        .filter(move |pattern| pattern.kinds.contains(&kind))
}

/// `None` for a pattern that is no pattern; the tests see that there is none.
fn parse(template: &Template) -> Option<Pattern> {
    let (steps, results) = match template.pattern.split_once("->") {
        Some((steps, results)) => (steps, Some(results)),
        None => (template.pattern, None),
    };
    let mut names = Names::default();
    let mut pattern = Pattern {
        kinds: template.kinds,
        alike: template.alike,
        steps: Vec::new(),
        results: Vec::new(),
        returned: 1,
        inputs: 0,
        parameters: 0,
    };
    let wrapped = template.alike == Alike::Tensor;
    let cast = |name: &str| format!("{name} = Cast?({name})");
    let before = wrapped.then(|| cast("x"));
    for step in before.iter().map(String::as_str).chain(steps.split(';')) {
        pattern.steps.push(names.step(step)?);
    }
    if wrapped {
        let last = names.made.last()?.0.clone();
        pattern.steps.push(names.step(&cast(&last))?);
    }
    match results {
        None => pattern.results.push(pattern.steps.len() - 1),
        Some(results) => {
            let (returned, others) = results.split_once('|').unwrap_or((results, ""));
            pattern.returned = returned.split(',').count();
            for name in returned.split(',').chain(others.split(',')).map(str::trim) {
                if !name.is_empty() {
                    pattern.results.push(names.made(name)?);
                }
            }
        }
    }
    pattern.inputs = names.inputs.len();
    pattern.parameters = names.parameters.len();
    Some(pattern)
}

/// The names that a pattern's text has used so far.
#[derive(Default)]
struct Names {
    made: Vec<(String, usize)>,
    inputs: Vec<String>,
    parameters: Vec<String>,
}

impl Names {
    fn made(&self, name: &str) -> Option<usize> {
        let made = self.made.iter().rev().find(|(made, _)| made == name);
        made.map(|(_, step)| *step)
    }

    /// `y = Add?(m, $bias)`.
    fn step(&mut self, text: &str) -> Option<Step> {
        let (name, call) = text.split_once('=')?;
        let (operation, arguments) = call.trim().strip_suffix(')')?.split_once('(')?;
        let arguments = arguments
            .split(',')
            .map(str::trim)
            .filter(|argument| !argument.is_empty())
            .map(|argument| {
                let named = argument.strip_suffix('?');
                Argument {
                    source: self.source(named.unwrap_or(argument)),
                    optional: named.is_some(),
                }
            })
            .collect();
        let required = operation.strip_suffix('?');
        let step = Step {
            names: required
                .unwrap_or(operation)
                .split('|')
                .map(str::to_owned)
                .collect(),
            arguments,
            optional: required.is_some(),
        };
        let index = self.made.last().map_or(0, |(_, last)| last + 1);
        self.made.push((name.trim().to_owned(), index));
        (!step.optional || step.through().is_some()).then_some(step)
    }

    fn source(&mut self, name: &str) -> Source {
        let number = |known: &mut Vec<String>, name: &str| {
            known
                .iter()
                .position(|known| known == name)
                .unwrap_or_else(|| {
                    known.push(name.to_owned());
                    known.len() - 1
                })
        };
        if let Some(name) = name.strip_prefix('$') {
            Source::Parameter(number(&mut self.parameters, name))
        } else if name.starts_with('#') {
            Source::Buffer
        } else if let Some(step) = self.made(name) {
            Source::Step(step)
        } else {
            Source::Input(number(&mut self.inputs, name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_sound() {
        assert_eq!(patterns().len(), TABLE.len());
        for pattern in patterns() {
            for (index, step) in pattern.steps.iter().enumerate() {
                let read = pattern.steps[index..]
                    .iter()
                    .flat_map(|step| &step.arguments)
                    .any(|argument| argument.source == Source::Step(index));
                assert!(
                    read || pattern.results.contains(&index),
                    "{:?}: nothing reads step {index}, {:?}",
                    pattern.kinds,
                    step.names
                );
                for name in &step.names {
                    assert!(
                        name.chars().all(char::is_alphanumeric) && !name.is_empty(),
                        "{name:?}"
                    );
                }
            }
            assert!(
                pattern.inputs > 0 && (!pattern.kinds.is_empty() || pattern.parameters > 0),
                "{:?}",
                pattern.kinds
            );
        }
    }

    #[test]
    fn a_missing_operation_stands_for_its_first_operand() {
        let linear = of_kind("Linear").next().unwrap();
        assert_eq!(linear.steps[1].through(), Some(Source::Step(0)));
        assert!(linear.may_end_with("Matmul") && linear.may_end_with("Add"));
        assert!(!linear.may_end_with("Mul"));
        assert!(linear.reads_parameter_by("Add") && !linear.reads_parameter_by("Reshape"));
    }
}
