//! The second half of `trace --verify` on a GPU: the same run in a process that leaves Burn's fusion on.

use std::{env, fs, io, path::Path, process::Command};

use clap::ValueEnum;

use super::device::DeviceName;

/// The file in which [`Session::verify`](burnscope::Session::verify) saves outputs of operations that
/// ran one by one.
const OUTPUTS: &str = "verify.one_by_one.safetensors";

/// The same of a process that left Burn's fusion on.
const FUSED: &str = "verify.fused.safetensors";

/// Tells a process that what it finds in its folder is to be compared with.
const AGAIN: &str = "BURNSCOPE_VERIFY_AGAIN";

/// Removes what an earlier command saved, perhaps of other inputs.
pub fn forget(out: &Path) {
    if env::var_os(AGAIN).is_none() {
        for name in [OUTPUTS, FUSED] {
            // Most often there is none.
            let _ = fs::remove_file(out.join(name));
        }
    }
}

/// What to run again.
pub struct Again<'a> {
    pub checkpoint: &'a Path,
    pub inputs: Option<&'a Path>,
    pub text: Option<&'a str>,
    pub device: DeviceName,
    /// Where this process saved its outputs.
    pub out: &'a Path,
}

impl Again<'_> {
    /// Says in a line how the outputs of this process differ from those with Burn's fusion on.
    pub fn compare(&self) -> String {
        self.run().unwrap_or_else(|why| {
            format!("the outputs could not be compared with those of Burn's fusion: {why}")
        })
    }

    fn run(&self) -> Result<String, String> {
        let words = |error: io::Error| error.to_string();
        let folder = tempfile::tempdir().map_err(words)?;
        fs::copy(self.out.join(OUTPUTS), folder.path().join(OUTPUTS)).map_err(words)?;
        let mut command = Command::new(env::current_exe().map_err(words)?);
        command
            .args(["trace", "--verify", "--fusion", "--quiet", "--dump", "none"])
            .arg("--out")
            .arg(folder.path())
            .arg("--checkpoint")
            .arg(self.checkpoint)
            // A session of the whole process would write into the folder of this one's.
            .env_remove("BURNSCOPE")
            .env(AGAIN, "1")
            .env("NO_COLOR", "1");
        if let Some(device) = self.device.to_possible_value() {
            command.args(["--device", device.get_name()]);
        }
        if let Some(inputs) = self.inputs {
            command.arg("--inputs").arg(inputs);
        }
        if let Some(text) = self.text {
            command.arg(format!("--text={text}"));
        }
        let output = command.output().map_err(words)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        // Of the line that says it, the part after what tracing did there.
        let found = printed
            .lines()
            .flat_map(|line| line.split("; "))
            .find(|part| part.contains("Burn's fusion"));
        found.map(str::to_owned).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().rev().find(|line| !line.trim().is_empty());
            last.unwrap_or("the process said nothing").to_owned()
        })
    }
}
