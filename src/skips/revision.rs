//! A revision of the checkout's git repository as a tree of files, and what changed between scans.
//!
//! Files are read through `git cat-file`; the working tree is never touched.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};

use super::LIMITS;
use super::tree::{MODELS, Tree, is_model_test, sort_paths};
use super::{Fault, Scan, SkipsError};

/// The files of one revision.
pub(crate) struct Revision {
    files: FxHashMap<String, String>,
    reader: Mutex<Reader>,
}

struct Reader {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Closing its input ends git.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

fn git(repo: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(repo)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_NO_LAZY_FETCH", "1")
        .stdin(Stdio::null());
    command
}

impl Revision {
    /// Lists the files of `revision` under `tests` and `src`.
    pub fn open(repo: &Path, revision: &str) -> Result<Self, SkipsError> {
        let failed = |message: String| SkipsError::Git {
            revision: revision.to_owned(),
            message,
        };
        let run = |arguments: &[&str]| -> Result<Vec<u8>, SkipsError> {
            let output = git(repo)
                .args(arguments)
                .output()
                .map_err(|error| failed(error.to_string()))?;
            if !output.status.success() {
                let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(failed(message));
            }
            Ok(output.stdout)
        };
        let commit = format!("{revision}^{{commit}}");
        let commit = run(&[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &commit,
        ])
        .map_err(|_| failed("there is no such commit".into()))?;
        let commit = String::from_utf8_lossy(&commit).trim().to_owned();
        let listing = run(&["ls-tree", "-r", "-z", &commit, "--", "tests/", "src/"])?;
        let mut files = FxHashMap::default();
        for entry in listing.split(|&byte| byte == 0) {
            // `mode type object<TAB>path`; links and submodules are no files.
            let Ok(entry) = std::str::from_utf8(entry) else {
                continue;
            };
            let Some((meta, path)) = entry.split_once('\t') else {
                continue;
            };
            let mut meta = meta.split(' ');
            let (mode, _, object) = (meta.next(), meta.next(), meta.next());
            if mode.is_some_and(|mode| mode.starts_with("100"))
                && path.ends_with(".py")
                && let Some(object) = object
            {
                files.insert(path.to_owned(), object.to_owned());
            }
        }
        let mut child = git(repo)
            .args(["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("git cannot be talked to".into()));
        };
        let reader = Reader {
            child,
            input: Some(input),
            output: BufReader::new(output),
        };
        Ok(Self {
            files,
            reader: Mutex::new(reader),
        })
    }
}

impl Tree for Revision {
    fn test_files(&self, _: &mut Vec<Fault>) -> Vec<String> {
        let mut files: Vec<String> = self
            .files
            .keys()
            .filter(|path| {
                path.strip_prefix(MODELS)
                    .is_some_and(|rest| rest.starts_with('/'))
                    && is_model_test(path.rsplit('/').next().unwrap_or(""))
            })
            .cloned()
            .collect();
        sort_paths(&mut files);
        files
    }

    fn is_file(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let object = self.files.get(path).ok_or("not in this revision")?;
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.read(object).map_err(|error| error.to_string())
    }
}

impl Reader {
    fn read(&mut self, object: &str) -> std::io::Result<Vec<u8>> {
        let other = |message: &str| std::io::Error::other(message.to_owned());
        let input = self.input.as_mut().ok_or_else(|| other("git has ended"))?;
        writeln!(input, "{object}")?;
        input.flush()?;
        let mut header = String::new();
        self.output.read_line(&mut header)?;
        // `object type size`
        let size: u64 = header
            .trim_end()
            .rsplit(' ')
            .next()
            .and_then(|size| size.parse().ok())
            .ok_or_else(|| other(&format!("git answered `{}`", header.trim_end())))?;
        if size > LIMITS.file_bytes {
            std::io::copy(&mut (&mut self.output).take(size + 1), &mut std::io::sink())?;
            return Err(other("the file is larger than 16 MiB"));
        }
        let mut bytes = vec![0; size as usize];
        self.output.read_exact(&mut bytes)?;
        self.output.read_exact(&mut [0])?;
        Ok(bytes)
    }
}

/// What happened to a test between two revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChangeKind {
    /// It was not off, and is now.
    BecameSkipped,
    /// It was off, and is not any more.
    LostItsSkip,
    /// It was off, and its class or test is gone.
    Removed,
}

/// A test that was switched off or on between two revisions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The model.
    pub model: Arc<str>,
    /// The test class.
    pub class: Arc<str>,
    /// The test, or one of its cases.
    pub test: Arc<str>,
    /// The reason, now or (where the skip is gone) before.
    pub reason: Option<Arc<str>>,
    /// `file:line` of the skip, now or before.
    pub place: Arc<str>,
}

/// What became skipped or lost its skip from `base` to `head`, sorted.
pub fn compare(base: &Scan, head: &Scan) -> Vec<Change> {
    type Key<'s> = (&'s str, &'s str, &'s str);
    fn off(scan: &Scan) -> FxHashMap<Key<'_>, &super::Detail> {
        scan.tests
            .iter()
            .flat_map(|test| &test.details)
            .filter(|detail| detail.status.is_off())
            .map(|detail| ((&*detail.model, &*detail.class, &*detail.test), detail))
            .collect()
    }
    let (before, after) = (off(base), off(head));
    let now: FxHashSet<Key<'_>> = head
        .classes
        .iter()
        .flat_map(|class| {
            class
                .tests
                .iter()
                .map(|test| (&*class.model, &*class.class, &*test.test))
        })
        .collect();
    let change = |kind, detail: &super::Detail| Change {
        kind,
        model: detail.model.clone(),
        class: detail.class.clone(),
        test: detail.test.clone(),
        reason: detail.reason.clone(),
        place: detail.place.clone(),
    };
    let mut changes: Vec<Change> = after
        .iter()
        .filter(|(key, _)| !before.contains_key(*key))
        .map(|(_, detail)| change(ChangeKind::BecameSkipped, detail))
        .collect();
    for (key, detail) in &before {
        if !after.contains_key(key) {
            let kind = if now.contains(key) {
                ChangeKind::LostItsSkip
            } else {
                ChangeKind::Removed
            };
            changes.push(change(kind, detail));
        }
    }
    changes.sort();
    changes
}
