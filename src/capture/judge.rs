//! The rule of what counts as making a NaN or an infinity; it neither looks for steps nor reports them.

use crate::{summary::Summary, trace::NonFiniteKind};

/// What is known of a tensor when a step is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known<'s> {
    /// Its numbers.
    Summary(&'s Summary),
    /// It has integer or truth values.
    Exact,
    /// There will be no numbers.
    Never,
}

/// What a step is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Innocent,
    Guilty(NonFiniteKind),
    Unknown,
}

/// Which values a set of tensors and scalars has.
#[derive(Clone, Copy, Default)]
struct Has {
    elements: bool,
    nan: bool,
    infinity: bool,
    unknown: bool,
}

fn has<'s>(tensors: impl Iterator<Item = Known<'s>>) -> Has {
    tensors.fold(Has::default(), |has, tensor| match tensor {
        Known::Summary(summary) => Has {
            elements: has.elements || summary.count > 0,
            nan: has.nan || summary.nan > 0,
            infinity: has.infinity || summary.pos_inf > 0 || summary.neg_inf > 0,
            ..has
        },
        Known::Exact => Has {
            elements: true,
            ..has
        },
        Known::Never => Has {
            unknown: true,
            ..has
        },
    })
}

/// Judges a step by what it read and made.
///
/// A step that reads no tensor creates one, of whatever values it was asked for: it is innocent. So is
/// an infinity out of tensors without elements, the largest of none, or out of a scalar that is
/// infinite itself, as in the filling of a mask.
pub(crate) fn judge<'s>(
    inputs: impl ExactSizeIterator<Item = Known<'s>>,
    scalars: &[(String, String)],
    outputs: impl Iterator<Item = Known<'s>>,
) -> Verdict {
    if inputs.len() == 0 {
        return Verdict::Innocent;
    }
    let (read, made) = (has(inputs), has(outputs));
    if !made.nan && !made.infinity && !made.unknown {
        return Verdict::Innocent;
    }
    // Of `-inf` as of `Constant(-inf)`.
    let number = |text: &String| text.rsplit('(').next()?.trim_end_matches(')').parse().ok();
    let numbers = || scalars.iter().filter_map(|(_, text)| number(text));
    let nan = read.nan || numbers().any(f64::is_nan);
    let infinity = read.infinity || numbers().any(f64::is_infinite);
    let kind = if made.nan && !nan {
        NonFiniteKind::Nan
    } else if made.infinity && !nan && !infinity && read.elements {
        NonFiniteKind::Infinity
    } else if made.unknown && !nan {
        return Verdict::Unknown;
    } else {
        return Verdict::Innocent;
    };
    if read.unknown {
        Verdict::Unknown
    } else {
        Verdict::Guilty(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(nan: u64, infinite: u64) -> Summary {
        Summary {
            count: 4,
            nan,
            neg_inf: infinite,
            ..Summary::empty()
        }
    }

    fn verdict(inputs: &[Known<'_>], scalar: Option<&str>, outputs: &[Known<'_>]) -> Verdict {
        let scalars: Vec<_> = scalar
            .map(|text| ("value".to_owned(), text.to_owned()))
            .into_iter()
            .collect();
        judge(inputs.iter().copied(), &scalars, outputs.iter().copied())
    }

    #[test]
    fn what_makes_a_nan_or_an_infinity_is_guilty_and_what_passes_it_on_is_not() {
        let (finite, nan, infinite) = (summary(0, 0), summary(1, 0), summary(0, 1));
        let (finite, nan, infinite) = (
            Known::Summary(&finite),
            Known::Summary(&nan),
            Known::Summary(&infinite),
        );
        let (empty, never) = (Summary::empty(), Known::Never);
        let empty = Known::Summary(&empty);
        use NonFiniteKind::{Infinity, Nan};
        use Verdict::{Guilty, Innocent, Unknown};
        for (inputs, scalar, outputs, expected) in [
            (&[finite][..], None, &[finite][..], Innocent),
            (&[finite], None, &[nan], Guilty(Nan)),
            (&[finite, Known::Exact], None, &[infinite], Guilty(Infinity)),
            (&[finite, finite], None, &[finite, nan], Guilty(Nan)),
            // Passed on.
            (&[nan], None, &[nan], Innocent),
            (&[finite, nan], None, &[infinite], Innocent),
            (&[infinite], None, &[infinite], Innocent),
            // Of a row that is masked as a whole.
            (&[infinite], None, &[nan], Guilty(Nan)),
            // The filling of a mask.
            (&[finite, Known::Exact], Some("-inf"), &[infinite], Innocent),
            (&[finite], Some("Constant(-inf)"), &[infinite], Innocent),
            (&[finite], Some("-inf"), &[nan], Guilty(Nan)),
            (&[finite], Some("NaN"), &[nan], Innocent),
            (&[finite], Some("1e30"), &[infinite], Guilty(Infinity)),
            // What was asked for.
            (&[], None, &[infinite], Innocent),
            (&[], None, &[nan], Innocent),
            // The largest of none, and the mean of none.
            (&[empty], None, &[infinite], Innocent),
            (&[empty], None, &[nan], Guilty(Nan)),
            // What is not known.
            (&[never], None, &[nan], Unknown),
            (&[finite], None, &[never], Unknown),
            (&[never], None, &[finite], Innocent),
            (&[never, nan], None, &[nan], Innocent),
        ] {
            let found = verdict(inputs, scalar, outputs);
            assert_eq!(found, expected, "{inputs:?} {scalar:?} {outputs:?}");
        }
    }
}
