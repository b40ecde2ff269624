//! `restart_cures`: a diagnosis, neither passed nor failed. After the patient's verdict is fixed, a fresh object in the
//! same process and then a fresh process are tried; what works first says where the fault lies.

use brokerfall_report::history::Renewed;
use brokerfall_report::verdict::Outcome;

use super::{held, not_applicable};
use crate::history::facts::Facts;

pub(super) fn judge(facts: &Facts) -> Outcome {
    let worked = |renewed| facts.cures().iter().find(|cure| cure.renewed == renewed && cure.worked);
    if facts.cures().is_empty() {
        return not_applicable("a reader to cure");
    }
    if worked(Renewed::Object).is_some() {
        return held("object");
    }
    if worked(Renewed::Process).is_some() {
        return held("process");
    }
    held("cluster")
}
