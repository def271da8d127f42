//! An index of embeddings on the Hugging Face Hub: where a copy lies, and fetching and sending one.
//!
//! Looking into the Hub's cache on disk needs nothing; going to the network needs the feature `hub`. No
//! message shows a token.

use std::path::{Path, PathBuf};

use super::dense::FILES;

/// The data set of the original script.
pub const DEFAULT_DATASET: &str = "hf-internal-testing/transformers_code_embeddings";

/// Why an index did not come from the Hub or go there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name is no name of a data set.
    #[error("{0:?} is no data set's name; it should read owner/name")]
    Name(String),
    /// The network is not to be used.
    #[error("{0} is not in the local cache, and HF_HUB_OFFLINE forbids the network")]
    Offline(String),
    /// This program cannot use the network.
    #[error(
        "{0} is not in the local cache, and this burnscope was built without access to the Hub; build it with `cargo build --features hub`"
    )]
    NotBuilt(String),
    /// The Hub could not be reached or refused.
    #[error("{dataset}: {reason}")]
    Failed {
        /// The data set.
        dataset: String,
        /// What went wrong, without tokens.
        reason: String,
    },
}

/// Whether the environment forbids the network, as in `huggingface_hub`.
pub fn is_offline() -> bool {
    std::env::var("HF_HUB_OFFLINE").is_ok_and(|value| {
        matches!(
            value.to_ascii_uppercase().as_str(),
            "1" | "ON" | "YES" | "TRUE"
        )
    })
}

/// The owner and the name of a data set.
///
/// # Errors
///
/// Anything that does not read `owner/name` in the characters that the Hub allows.
pub fn split_name(dataset: &str) -> Result<(&str, &str), HubError> {
    let part = |text: &str| {
        !text.is_empty()
            && text.len() <= 96
            && !text.starts_with('.')
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    match dataset.split_once('/') {
        Some((owner, name)) if part(owner) && part(name) => Ok((owner, name)),
        _ => Err(HubError::Name(dataset.to_owned())),
    }
}

/// A copy of the data set's main revision in the Hub's cache on this machine, if it has all files.
///
/// # Errors
///
/// A name that is none.
pub fn cached(dataset: &str) -> Result<Option<PathBuf>, HubError> {
    let (owner, name) = split_name(dataset)?;
    Ok(cache_folder().and_then(|cache| {
        let repository = cache.join(format!("datasets--{owner}--{name}"));
        let revision = std::fs::read_to_string(repository.join("refs/main")).ok()?;
        let revision = revision.trim();
        let is_revision =
            !revision.is_empty() && revision.bytes().all(|b| b.is_ascii_alphanumeric());
        let snapshot = repository.join("snapshots").join(revision);
        (is_revision && has_all(&snapshot)).then_some(snapshot)
    }))
}

/// Whether a folder has the three files of an index.
pub fn has_all(folder: &Path) -> bool {
    FILES.iter().all(|file| folder.join(file).is_file())
}

fn cache_folder() -> Option<PathBuf> {
    let folder = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    folder("HF_HUB_CACHE")
        .or_else(|| folder("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/huggingface/hub")))
}

/// The folder with the data set's files: from the local cache, else from the network.
///
/// # Errors
///
/// When it is neither here nor reachable.
pub fn fetch(dataset: &str) -> Result<PathBuf, HubError> {
    if is_offline() {
        return cached(dataset)?.ok_or_else(|| HubError::Offline(dataset.to_owned()));
    }
    online::fetch(dataset)
}

/// Sends the three files of a folder to a data set, which is made if there is none.
///
/// # Errors
///
/// When the Hub cannot be reached or refuses.
pub fn push(dataset: &str, folder: &Path) -> Result<(), HubError> {
    split_name(dataset)?;
    if is_offline() {
        return Err(HubError::Failed {
            dataset: dataset.to_owned(),
            reason: "HF_HUB_OFFLINE forbids the network".to_owned(),
        });
    }
    online::push(dataset, folder)
}

#[cfg(feature = "hub")]
mod online {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use hf_hub::repository::AddSource;
    use hf_hub::{HFClientSync, HFError, HFRepositorySync, RepoTypeDataset};

    use super::{FILES, HubError, split_name};

    fn failed(dataset: &str, error: &HFError) -> HubError {
        let mut reason = error.to_string();
        let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
        while let Some(inner) = cause {
            let text = inner.to_string();
            if !reason.contains(&text) {
                reason = format!("{reason}: {text}");
            }
            cause = inner.source();
        }
        HubError::Failed {
            dataset: dataset.to_owned(),
            reason: super::without_tokens(&reason),
        }
    }

    fn client(
        dataset: &str,
    ) -> Result<(HFClientSync, HFRepositorySync<RepoTypeDataset>), HubError> {
        let (owner, name) = split_name(dataset)?;
        let client = hf_hub::HFClientBuilder::new()
            .retry_max_attempts(3)
            .retry_base_delay(Duration::from_millis(200))
            .build_sync()
            .map_err(|e| failed(dataset, &e))?;
        let repository = client.dataset(owner, name);
        Ok((client, repository))
    }

    pub(super) fn fetch(dataset: &str) -> Result<PathBuf, HubError> {
        let (_, repository) = client(dataset)?;
        let mut folder = None;
        for file in FILES {
            let path = repository
                .download_file()
                .filename(file)
                .send()
                .map_err(|e| failed(dataset, &e))?;
            folder = path.parent().map(Path::to_path_buf);
        }
        folder.ok_or_else(|| HubError::Failed {
            dataset: dataset.to_owned(),
            reason: "no files came".to_owned(),
        })
    }

    pub(super) fn push(dataset: &str, folder: &Path) -> Result<(), HubError> {
        let (client, repository) = client(dataset)?;
        client
            .create_repository()
            .repo_id(dataset)
            .repo_type(RepoTypeDataset)
            .exist_ok(true)
            .send()
            .map_err(|e| failed(dataset, &e))?;
        for file in FILES {
            repository
                .upload_file()
                .source(AddSource::File(folder.join(file)))
                .path_in_repo(file)
                .commit_message(format!("Update {file}"))
                .send()
                .map_err(|e| failed(dataset, &e))?;
        }
        Ok(())
    }
}

#[cfg(not(feature = "hub"))]
mod online {
    use std::path::{Path, PathBuf};

    use super::{HubError, cached};

    pub(super) fn fetch(dataset: &str) -> Result<PathBuf, HubError> {
        cached(dataset)?.ok_or_else(|| HubError::NotBuilt(dataset.to_owned()))
    }

    pub(super) fn push(dataset: &str, _folder: &Path) -> Result<(), HubError> {
        Err(HubError::NotBuilt(dataset.to_owned()))
    }
}

/// A text in which whatever looks like a Hub token is covered, in one line.
#[cfg_attr(not(feature = "hub"), cfg(test))]
fn without_tokens(text: &str) -> String {
    let mut covered = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("hf_") {
        covered.push_str(&rest[..at]);
        covered.push_str("hf_***");
        let after = &rest[at + 3..];
        let length = after
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(after.len());
        rest = &after[length..];
    }
    covered.push_str(rest);
    covered.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_owner_and_name() {
        assert_eq!(split_name("a-b/c_d.e").expect("a name"), ("a-b", "c_d.e"));
        for wrong in ["", "a", "a/b/c", "../b", "a/..", "a b/c", "/b", "a/"] {
            assert!(split_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_are_covered() {
        assert_eq!(
            without_tokens("bad hf_AbC123, and\nhf_"),
            "bad hf_***, and hf_***"
        );
    }
}
