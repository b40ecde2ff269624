//! What the command line writes to the standard streams: results to stdout, everything else to stderr.

use std::io::Write;

use brokerfall_report::render::escape;

use crate::cluster::direct::Login;

/// Writes a result. A reader that closes the pipe early (`| head`) is no failure of ours.
pub(crate) fn out(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Writes a result that holds words of files, line by line, so that none of them acts on a terminal.
pub(crate) fn out_tame(text: &str) {
    out(&tame(text));
}

/// Writes a remark. It may name files, readers and scenarios, and quote what they hold.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", tame(text));
}

pub(crate) fn tame(text: &str) -> String {
    text.lines().map(escape::terminal).collect::<Vec<_>>().join("\n")
}

/// Writes an error.
pub(crate) fn error(error: &dyn std::error::Error) {
    note(&format!("error: {}", crate::chain(error)));
}

/// `--keep-up`: what stays up, and how to end it.
pub(crate) fn kept_up(link: &str, direct: &str, login: Option<Login>) {
    let login = login.map_or_else(String::new, |Login { user, password }| {
        format!(" (SASL/PLAIN, user {user}, password {password})")
    });
    note(&format!(
        "kept up: the link listens on {link}, the brokers on {direct}{login}; Ctrl-C takes everything down and ends the suite"
    ));
}
