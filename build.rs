//! Checks that the compiled kernels belong to their sources and embeds them. Compiles nothing.

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA_DRIVER").is_none() {
        return Ok(());
    }
    println!("cargo:rerun-if-changed=kernels");
    let kernels = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("kernels");
    let hash = format!("// source-fnv1a: {:016x}\n", source_hash(&kernels)?);
    let mut table = String::from("pub(super) static PTX: &[(&str, &str)] = &[\n");
    for path in sorted_files(&kernels.join("ptx"), &["ptx"])? {
        if !fs::read_to_string(&path)?.contains(&hash) {
            let path = path.display();
            return Err(
                format!("{path} was built from other sources: run scripts/build-ptx.sh").into(),
            );
        }
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.ok_or("a kernel's file name is not UTF-8")?;
        // Found from the checkout that is compiled: one build folder may serve several, and this table
        // outlive the one that it was written in.
        let file = format!("/kernels/ptx/{name}.ptx");
        let text = format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {file:?}))");
        // The driver wants the text to end with a zero byte.
        table += &format!("    ({name:?}, concat!({text}, \"\\0\")),\n");
    }
    table += "];\n";
    fs::write(Path::new(&env::var("OUT_DIR")?).join("ptx.rs"), table)?;
    Ok(())
}

/// FNV-1a over the names and contents of all sources; `scripts/build_ptx.py` agrees.
fn source_hash(kernels: &Path) -> Result<u64, Box<dyn Error>> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes.iter().chain(b"\0") {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for path in sorted_files(kernels, &["cu", "cuh", "inc"])? {
        let name = path.file_name().and_then(|name| name.to_str());
        add(name
            .ok_or("a kernel source's file name is not UTF-8")?
            .as_bytes());
        // A checkout with other line ends holds the same sources.
        add(fs::read_to_string(&path)?.replace("\r\n", "\n").as_bytes());
    }
    Ok(hash)
}

fn sorted_files(
    folder: &Path,
    extensions: &[&str],
) -> Result<Vec<std::path::PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| extensions.contains(&extension)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
