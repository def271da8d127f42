//! The kinds of what may happen to a test. How one is found is left to [`super::verdict`].

/// What happens to a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Status {
    /// It runs.
    Runs,
    /// It is skipped by its own decorator or by the first thing its body does.
    Skipped,
    /// The whole class or file is skipped, or its `setUp` skips.
    SkippedByClass,
    /// A class between the test's own class and the common one skips it.
    Inherited,
    /// A class flag has the value for which the body skips.
    Flag,
    /// The name is bound to something that is no test (`test_x = False`).
    Shadowed,
    /// Overridden by a body that does nothing: it passes without testing.
    Neutralised,
    /// Skipped under a condition that depends on the machine.
    Conditional,
    /// It runs, and is expected to fail.
    ExpectedFailure,
    /// It runs unless its own computation decides to skip.
    Guarded,
    /// The class has no such test: it lacks the mixin.
    Absent,
    /// It cannot be known without running Python.
    Unknown,
}

impl Status {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Skipped => "skipped",
            Self::SkippedByClass => "skipped_by_class",
            Self::Inherited => "inherited",
            Self::Flag => "flag",
            Self::Shadowed => "shadowed",
            Self::Neutralised => "neutralised",
            Self::Conditional => "conditional",
            Self::ExpectedFailure => "expected_failure",
            Self::Guarded => "guarded",
            Self::Absent => "absent",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the test is off, whatever the machine.
    pub fn is_off(self) -> bool {
        matches!(
            self,
            Self::Skipped
                | Self::SkippedByClass
                | Self::Inherited
                | Self::Flag
                | Self::Shadowed
                | Self::Neutralised
        )
    }
}
