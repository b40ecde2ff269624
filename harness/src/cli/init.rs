//! `init`: files to begin with. Nothing that is there is ever written over.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use brokerfall_report::verdict::ExitCode;

use super::args::{InitAdapterArgs, InitCommand, InitScenarioArgs};
use super::error::SuiteError;
use super::say;
use crate::reader::provision::embedded_adapter;

/// A scenario to begin with: it passes `check` and runs as it stands.
const SCENARIO: &str = include_str!("init-scenario.toml");

/// Writes what was asked for.
///
/// # Errors
/// [`SuiteError::Usage`] where a file is there already, [`SuiteError::Io`] where one cannot be written.
pub(crate) fn init(command: &InitCommand) -> Result<ExitCode, SuiteError> {
    match command {
        InitCommand::Scenario(args) => scenario(args),
        InitCommand::Adapter(args) => adapter(args),
    }
}

fn scenario(args: &InitScenarioArgs) -> Result<ExitCode, SuiteError> {
    let mut path = args.name.clone();
    if path.extension().is_none_or(|extension| extension != "toml") {
        path.as_mut_os_string().push(".toml");
    }
    write_new(&[(path.clone(), SCENARIO.to_owned())])?;
    let shown = path.display();
    say::out_tame(&format!("{shown} is written. Then:"));
    say::out_tame(&format!("  brokerfall check {shown}"));
    say::out_tame(&format!("  brokerfall run {shown} --reader reference-group"));
    Ok(ExitCode::AsExpected)
}

fn adapter(args: &InitAdapterArgs) -> Result<ExitCode, SuiteError> {
    let skeleton = if args.threads {
        "skeleton_threads.py"
    } else {
        "skeleton_asyncio.py"
    };
    let missing = |name: &str| SuiteError::Usage(format!("this build of brokerfall has no {name} embedded"));
    let text = |name: &str| embedded_adapter(&format!("python/{name}")).ok_or_else(|| missing(name));
    let adapter = text(skeleton)?.replace(skeleton, "my_adapter.py");
    let sdk = text("brokerfall_adapter.py")?;
    write_new(&[
        (args.dir.join("my_adapter.py"), adapter),
        (args.dir.join("brokerfall_adapter.py"), sdk.to_owned()),
    ])?;
    let path = args.dir.join("my_adapter.py");
    let shown = path.display();
    say::out_tame(&format!("{shown} and the SDK beside it are written. Then:"));
    say::out_tame(&format!("  brokerfall adapter check --kind group -- python3 {shown}"));
    Ok(ExitCode::AsExpected)
}

/// Writes all files or none.
fn write_new(files: &[(PathBuf, String)]) -> Result<(), SuiteError> {
    let taken = |path: &Path| {
        SuiteError::Usage(format!(
            "{} is there already (name another place, or move it away)",
            path.display()
        ))
    };
    // Looked at first, so that a file which is there does not leave the others half written.
    if let Some((path, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        return Err(taken(path));
    }
    for (path, text) in files {
        let io = |source| SuiteError::Io {
            what: "write a file to begin with",
            source,
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        match File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes())) {
            Err(cause) if cause.kind() == ErrorKind::AlreadyExists => return Err(taken(path)),
            written => written.map_err(io)?,
        }
    }
    Ok(())
}
