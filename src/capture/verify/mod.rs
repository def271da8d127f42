//! Proving that tracing changes nothing: the same closure with and without it, outputs compared.
//!
//! It knows outputs alone; how they came about is in the trace.

mod compare;
mod outputs;

use std::{fmt, path::Path};

pub use compare::{Comparison, Difference, Differs};

use self::outputs::Outputs;
use super::{Session, Traced, scope};

/// What [`Session::verify`] found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Verification {
    /// A run without tracing and a run with it.
    pub tracing: Comparison,
    /// Two runs without tracing, made where `tracing` differs.
    pub itself: Option<Comparison>,
    /// Whether operations were seen, and so run, one by one: `Some(false)` if Burn's own fusion was
    /// on, `None` if no output is on a device where it can be.
    pub one_by_one: Option<bool>,
    /// This process's run without tracing and the saved one of a process with the other setting, if
    /// there was one.
    pub fusion: Option<Comparison>,
}

impl Verification {
    /// Whether all outputs were the same to the last bit with tracing as without.
    pub fn changed_nothing(&self) -> bool {
        self.tracing.identical()
    }

    /// Whether two runs without tracing differ, so that nothing follows from a run with it: by
    /// dropout, random numbers, or sums in an order that changes.
    pub fn differs_from_itself(&self) -> bool {
        self.itself
            .as_ref()
            .is_some_and(|itself| !itself.identical())
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outputs = self.tracing.outputs;
        if self.changed_nothing() {
            write!(
                f,
                "verified: {outputs} outputs are the same to the last bit with and without tracing"
            )?;
        } else if self.differs_from_itself() {
            f.write_str(
                "not verified: the model differs from itself, two runs without tracing included",
            )?;
            list(f, self.itself.as_ref())?;
        } else {
            f.write_str("tracing changed the outputs")?;
            list(f, Some(&self.tracing))?;
        }
        if let Some(fusion) = &self.fusion {
            if fusion.identical() {
                write!(
                    f,
                    "; with and without Burn's fusion {} are the same",
                    fusion.outputs
                )?;
            } else {
                f.write_str("; Burn's fusion changes the outputs")?;
                list(f, Some(fusion))?;
            }
            if fusion.not_compared > 0 {
                write!(
                    f,
                    "; {} were not saved and not compared",
                    fusion.not_compared
                )?;
            }
        }
        Ok(())
    }
}

fn list(f: &mut fmt::Formatter<'_>, comparison: Option<&Comparison>) -> fmt::Result {
    const SHOWN: usize = 4;
    let differences = comparison.map_or(&[][..], |comparison| &comparison.differences);
    for (index, difference) in differences.iter().take(SHOWN).enumerate() {
        let before = if index == 0 { ": " } else { ", " };
        write!(f, "{before}{difference}")?;
    }
    if differences.len() > SHOWN {
        write!(f, " and {} more", differences.len() - SHOWN)?;
    }
    Ok(())
}

impl Session {
    /// Runs `run` without tracing and then with it, and compares what it returns: shapes, element
    /// types and digests of all elements. What is found is returned and a note of the trace.
    ///
    /// Where the outputs differ, `run` runs once more without tracing, to tell a model that differs
    /// from itself from one that tracing changes.
    ///
    /// On CubeCL devices [`install`](crate::install) makes operations run one by one, which Burn would
    /// fuse otherwise. Whether that changes numbers shows between two processes: the outputs (256 MiB
    /// at most) are saved in the session's folder, and where a process with the other setting has
    /// saved its own there, they are compared.
    ///
    /// ```
    /// # use burn::tensor::{Device, Tensor};
    /// # use burnscope::Session;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let x = Tensor::<1>::from_floats([1.0, 2.0], &Device::flex());
    /// let session = Session::builder(folder.path()).start()?;
    /// let verification = session.verify(|| x.clone().exp());
    /// assert!(verification.changed_nothing(), "{verification}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify<R: Traced>(&self, run: impl FnMut() -> R) -> Verification {
        self.verify_against(self.folder(), run)
    }

    /// As [`verify`](Self::verify), but `folder` is where a process with the other setting saved its
    /// outputs.
    pub fn verify_against<R: Traced>(
        &self,
        folder: impl AsRef<Path>,
        mut run: impl FnMut() -> R,
    ) -> Verification {
        let shared = self.shared();
        let mut untraced = || {
            let _outside = scope::outside();
            Outputs::read(shared, &run())
        };
        let first = untraced();
        let second = {
            let result = self.run(&mut run);
            let _outside = scope::outside();
            Outputs::read(shared, &result)
        };
        let tracing = Comparison::of(&first, &second);
        let itself = (!tracing.identical()).then(|| {
            let _outside = scope::outside();
            Comparison::of(&first, &Outputs::read(shared, &run()))
        });
        let one_by_one = first.on_fusion.then(super::fusion_off);
        let mut problems = Vec::new();
        let mut fusion = None;
        if let Some(one_by_one) = one_by_one {
            match first.saved(folder.as_ref(), !one_by_one) {
                None => {}
                Some(Ok((saved, not_compared))) => {
                    fusion = Some(Comparison {
                        not_compared,
                        ..Comparison::of_saved(&first, &saved)
                    });
                }
                Some(Err(why)) => problems.push(format!("saved outputs cannot be read: {why}")),
            }
            if let Err(error) = first.save(self.folder(), one_by_one) {
                problems.push(format!("outputs could not be saved: {error}"));
            }
        }
        let verification = Verification {
            tracing,
            itself,
            one_by_one,
            fusion,
        };
        let mut record = shared.record();
        problems
            .into_iter()
            .for_each(|problem| record.note(problem));
        record.note(verification.to_string());
        verification
    }
}
