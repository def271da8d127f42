//! `burnscope skips`: scans a transformers checkout for common tests that are skipped.

use std::path::{Path, PathBuf};

use burnscope::skips::{
    self, Assumption, Change, ChangeKind, Fault, Format, Lint, Scan, ScanOptions, SkipsError,
};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use super::{
    Outcome,
    output::{self, FAINT, styled},
};

/// Find out which common tests a transformers checkout skips, for which models, and why
///
/// Every model's test classes inherit the common tests of tests/test_modeling_common.py and
/// tests/generation/test_utils.py. This command reads the files (it runs no Python), follows imports
/// and inheritance, and decides for every class what happens to every common test.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct SkipsArguments {
    /// The root of the checkout
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,

    /// Report on this test method only
    ///
    /// Prints its summary and writes scan_NAME.json. Besides common tests, any test that some class
    /// has can be named.
    #[arg(long, alias = "test_method_name", value_name = "NAME")]
    test_method_name: Option<String>,

    /// The folder for the result files
    #[arg(long, alias = "output_dir", value_name = "DIR", default_value = ".")]
    output_dir: PathBuf,

    /// The formats to write, separated by commas
    #[arg(
        long,
        value_name = "FORMATS",
        value_delimiter = ',',
        default_value = "json"
    )]
    format: Vec<FileFormat>,

    /// Reproduce the JSON of the original script, mistakes included
    ///
    /// Byte for byte what utils/scan_skipped_tests.py writes. Use it to compare with older results.
    #[arg(long, conflicts_with_all = ["format", "lint", "base", "table", "inventory", "assume"])]
    compat: bool,

    /// Print lints with file and line, and exit with 1 if there are any
    ///
    /// stale-skip: no base class has the skipped test any more.
    /// unread-flag: no test reads the class flag.
    /// skip-without-effect: above parameterized.expand, or in a class that is no test class.
    /// missing-reason: a skip without a reason.
    /// empty-body: a common test overridden by a body that does nothing.
    #[arg(long, verbatim_doc_comment)]
    lint: bool,

    /// Compare with another git revision: print what became skipped and what lost its skip
    ///
    /// REF is any commit git knows (main, HEAD~1, v5.0.0). The working tree is not touched.
    #[arg(long, value_name = "REF")]
    base: Option<String>,

    /// With --base: exit with 1 if anything became skipped
    #[arg(long, requires = "base")]
    fail_on_new: bool,

    /// Print the N most skipped tests as a table
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "25")]
    table: Option<usize>,

    /// Also write skips_inventory.json: every test of every class, common or not
    #[arg(long)]
    inventory: bool,

    /// Take a condition as given, for example "_run_slow_tests=true" or "torch_device == 'cpu'=true"
    ///
    /// The condition is compared with the source text. is_torch_available() is true unless set
    /// otherwise. May be given several times.
    #[arg(long, value_name = "CONDITION=BOOL", value_parser = parse_assumption)]
    assume: Vec<Assumption>,

    /// Print nothing but problems, lints and changes
    #[arg(long, short)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  burnscope skips
      Scan the checkout in the current folder; write all_tests_scan_result.json.
  burnscope skips --test-method-name test_inputs_embeds
      One test: print its summary, write scan_test_inputs_embeds.json.
  burnscope skips --format json,html --output-dir out --table
      Also write a page for the browser, and print the most skipped tests.
  burnscope skips --lint --format sarif
      Check skips in CI; upload all_tests_scan_result.sarif.
  burnscope skips --base main --fail-on-new
      Fail if the branch switches a test off.

Exit codes:
  0  done
  1  done, and there are lints (--lint) or new skips (--fail-on-new)
  2  nothing could be scanned or written: wrong arguments, no tests/models, an unknown test or revision
  3  done, but parts could not be scanned (a file that does not parse, an import that leads nowhere);
     they are listed on standard error";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileFormat {
    /// The original schema with added keys
    Json,
    /// One row per test and model
    Csv,
    /// Tables and reasons for a pull request or wiki
    Markdown,
    /// Lints for code scanning services
    Sarif,
    /// A self-contained page, sortable and searchable
    Html,
}

impl From<FileFormat> for Format {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::Json => Self::Json,
            FileFormat::Csv => Self::Csv,
            FileFormat::Markdown => Self::Markdown,
            FileFormat::Sarif => Self::Sarif,
            FileFormat::Html => Self::Html,
        }
    }
}

fn parse_assumption(text: &str) -> Result<Assumption, String> {
    let (condition, value) = text
        .rsplit_once('=')
        .ok_or("write it as CONDITION=true or CONDITION=false")?;
    let value = match value.trim() {
        "true" | "True" => true,
        "false" | "False" => false,
        other => return Err(format!("`{other}` is neither true nor false")),
    };
    Ok(Assumption {
        condition: condition.trim().to_owned(),
        value,
    })
}

/// What a part of the command returns: the exit code, or an error for a person.
type Code = Result<u8, Box<dyn std::error::Error>>;

const CLEAN: u8 = 0;
const FINDINGS: u8 = 1;

/// Scans and writes the results.
pub fn run(args: &SkipsArguments) -> Outcome {
    let code = if args.compat {
        compat(args)
    } else {
        full(args)
    };
    Ok(code?.into())
}

fn options(args: &SkipsArguments) -> ScanOptions {
    let mut options = ScanOptions::new(&args.repo);
    options.test.clone_from(&args.test_method_name);
    for assumption in &args.assume {
        options
            .assumptions
            .retain(|known| known.condition != assumption.condition);
        options.assumptions.push(assumption.clone());
    }
    options.lints = args.lint || args.format.contains(&FileFormat::Sarif);
    options.inventory = args.inventory || args.base.is_some();
    options
}

/// The real analysis.
fn full(args: &SkipsArguments) -> Code {
    let options = options(args);
    let progress = spinner(args, "reading test files");
    let scan = skips::scan(&options);
    progress.finish_and_clear();
    let scan = scan?;
    let test = args.test_method_name.as_deref();
    if !args.quiet {
        let mut text = format!(
            "[INFO] Parsing {} model test files once each...\n",
            scan.files
        );
        match scan.tests.first().filter(|_| test.is_some()) {
            Some(test) => text += &skips::summary(&scan, test),
            None => {
                text += &format!(
                    "[INFO] Aggregating {} tests...\n[INFO] Scan complete.\n",
                    scan.tests.len()
                );
            }
        }
        if let Some(rows) = args.table {
            text += &format!("\n{}", skips::table(&scan, rows));
        }
        output::print(&text)?;
    }
    let mut code = CLEAN;
    if args.lint {
        output::print(&lint_lines(&scan.lints))?;
        if !scan.lints.is_empty() {
            code = FINDINGS;
        }
    }
    if let Some(revision) = &args.base {
        let progress = spinner(args, "reading the base revision");
        let base = skips::scan(&ScanOptions {
            revision: Some(revision.clone()),
            lints: false,
            ..options
        });
        progress.finish_and_clear();
        // A test that is new has nothing to compare with.
        let base = match base {
            Err(SkipsError::NoSuchTest { .. }) => Scan::default(),
            other => other?,
        };
        let changes = skips::compare(&base, &scan);
        output::print(&change_lines(revision, &changes))?;
        let new = changes
            .iter()
            .any(|change| change.kind == ChangeKind::BecameSkipped);
        if args.fail_on_new && new {
            code = FINDINGS;
        }
    }
    for &format in &args.format {
        let path = skips::write(&scan, format.into(), test, &args.output_dir)?;
        saved(args, format.name(), &path)?;
    }
    if args.inventory {
        let path = skips::write_inventory(&scan, &args.output_dir)?;
        saved(args, "Inventory", &path)?;
    }
    let code = finish(&scan.problems, code);
    // The process ends here: taking the scan apart would only take time.
    std::mem::forget(scan);
    Ok(code)
}

impl FileFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Csv => "CSV",
            Self::Markdown => "Markdown",
            Self::Sarif => "SARIF",
            Self::Html => "HTML",
        }
    }
}

/// The original script's results.
fn compat(args: &SkipsArguments) -> Code {
    let (entries, models, files, problems) = skips::compat_scan(&options(args))?;
    let test = args.test_method_name.as_deref();
    if !args.quiet {
        let mut text = format!("[INFO] Parsing {files} model test files once each...\n");
        match entries.first().filter(|_| test.is_some()) {
            Some(entry) => {
                text += &skips::compat_summary(
                    &entry.name,
                    entry.models_ran.len(),
                    entry.models_skipped.len(),
                    models,
                    &entry.reasons_skipped,
                );
            }
            None => {
                text += &format!(
                    "[INFO] Aggregating {} tests...\n\n[INFO] Scan complete.\n",
                    entries.len()
                );
            }
        }
        output::print(&text)?;
    }
    let path = skips::write_compat(&entries, test, &args.output_dir)?;
    saved(args, "JSON", &path)?;
    Ok(finish(&problems, CLEAN))
}

fn saved(args: &SkipsArguments, name: &str, path: &Path) -> std::io::Result<()> {
    if args.quiet {
        return Ok(());
    }
    let full = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    output::print(&format!("\n[INFO] {name} saved to {}\n", full.display()))
}

/// Lists what could not be scanned and settles the exit code.
fn finish(faults: &[Fault], code: u8) -> u8 {
    match output::faults(faults) {
        0 => code,
        _ => output::INCOMPLETE,
    }
}

fn lint_lines(lints: &[Lint]) -> String {
    let mut text = String::new();
    for lint in lints {
        let kind = styled(FAINT, lint.kind.name());
        text += &format!("{}:{}: {kind}: {}\n", lint.file, lint.line, lint.message);
    }
    let mut counts: Vec<String> = Vec::new();
    for kind in skips::LintKind::ALL {
        let count = lints.iter().filter(|lint| lint.kind == kind).count();
        if count > 0 {
            counts.push(format!("{count} {}", kind.name()));
        }
    }
    if counts.is_empty() {
        text + "no lints\n"
    } else {
        text + &format!("{} lints: {}\n", lints.len(), counts.join(", "))
    }
}

fn change_lines(revision: &str, changes: &[Change]) -> String {
    if changes.is_empty() {
        return format!("no test became skipped or lost its skip since {revision}\n");
    }
    let mut text = String::new();
    for (kind, title) in [
        (ChangeKind::BecameSkipped, "became skipped"),
        (ChangeKind::LostItsSkip, "lost its skip"),
        (ChangeKind::Removed, "was skipped and is gone"),
    ] {
        let found: Vec<&Change> = changes
            .iter()
            .filter(|change| change.kind == kind)
            .collect();
        if found.is_empty() {
            continue;
        }
        text += &format!("\n{title} since {revision}: {}\n", found.len());
        for change in found {
            text += &format!(
                "  {}: {}::{}::{}",
                change.place, change.model, change.class, change.test
            );
            if let Some(reason) = &change.reason {
                text += &format!(": {}", reason.replace('\n', " "));
            }
            text.push('\n');
        }
    }
    text
}

/// Shows on a terminal that something is going on; scans of a slow disk take a while.
fn spinner(args: &SkipsArguments, message: &'static str) -> ProgressBar {
    if args.quiet {
        return ProgressBar::hidden();
    }
    output::spinner(message)
}
