//! When a model was published and when it came to transformers, as its documentation page says.
//!
//! A model can only inherit from what was there before it. Pages without such a line give no dates.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A day of the calendar, ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Day {
    year: u16,
    month: u8,
    day: u8,
}

impl Day {
    /// Reads `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
            return None;
        }
        let number = |range: std::ops::Range<usize>| -> Option<u16> {
            let digits = text.get(range)?;
            digits
                .bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| digits.parse().ok())?
        };
        let (year, month, day) = (number(0..4)?, number(5..7)? as u8, number(8..10)? as u8);
        ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(Self { year, month, day })
    }

    /// Days since the year 0, for differences; exact to a day within a month.
    pub fn ordinal(self) -> f32 {
        f32::from(self.year) * 365.25 + f32::from(self.month - 1) * 30.44 + f32::from(self.day)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The dates of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDates {
    /// When the model was published.
    pub released: Option<Day>,
    /// When its code came to the library.
    pub contributed: Option<Day>,
}

impl ModelDates {
    /// The day from which others could inherit from it.
    pub fn available(self) -> Option<Day> {
        self.contributed.or(self.released)
    }
}

/// Reads the dates from a model's documentation page.
///
/// The line reads "This model was published in HF papers on D and contributed to Hugging Face
/// Transformers on D", in older pages "released on D and added to". A page about several models
/// gives the dates of the first.
pub fn read_dates(page: &str) -> ModelDates {
    for line in page.lines() {
        let lower = line.to_ascii_lowercase();
        if !lower.contains("model was ") && !lower.contains("contributed to hugging face") {
            continue;
        }
        let dates = ModelDates {
            released: day_after(
                &lower,
                &[
                    "released on ",
                    "published in hf papers on ",
                    "published on ",
                ],
            ),
            contributed: day_after(
                &lower,
                &[
                    "contributed to hugging face transformers on ",
                    "added to hugging face transformers on ",
                ],
            ),
        };
        if dates != ModelDates::default() {
            return dates;
        }
    }
    ModelDates::default()
}

fn day_after(line: &str, phrases: &[&str]) -> Option<Day> {
    phrases.iter().find_map(|phrase| {
        let at = line.find(phrase)? + phrase.len();
        Day::parse(line.get(at..at + 10)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_line_are_read() {
        let new = "*This model was published in HF papers on 2023-02-27 and contributed to Hugging Face Transformers on 2023-03-16.*";
        let old = "*This model was released on 2025-04-17 and added to Hugging Face Transformers on 2025-12-16.*";
        assert_eq!(read_dates(new).released, Day::parse("2023-02-27"));
        assert_eq!(read_dates(new).contributed, Day::parse("2023-03-16"));
        assert_eq!(read_dates(old).released, Day::parse("2025-04-17"));
        assert_eq!(read_dates(old).available(), Day::parse("2025-12-16"));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2023-13-01",
            "2023-1-011",
            "20230227  ",
            "２０２３-02-27",
            "2023-02-2é",
        ] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
        assert_eq!(
            read_dates("contributed to Hugging Face Transformers on 2023"),
            ModelDates::default()
        );
    }
}
