//! PersistentVolumeClaim: has it a volume?

use super::Subject;
use crate::object::Reading;
use crate::verdict::{Health, Verdict};

pub(super) fn persistent_volume_claim(subject: &Subject<'_>) -> Reading<Health> {
    let verdict = match subject.fields.text("status.phase")? {
        "Bound" => Verdict::Healthy,
        "Pending" => Verdict::Progressing,
        "Lost" => Verdict::Degraded,
        _ => Verdict::Unknown,
    };
    Ok(Health::new(verdict, ""))
}
