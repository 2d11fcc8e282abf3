//! Who makes a request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A user, as authentication found it or as somebody impersonates it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The one who makes all requests while nobody is asked who they are.
    pub(crate) fn admin() -> Self {
        let groups = ["system:masters", "system:authenticated"].map(str::to_owned).to_vec();
        Self { name: "devcluster-admin".to_owned(), groups, ..Self::default() }
    }

    /// The `userInfo` of reviews.
    pub(crate) fn info(&self) -> Value {
        let mut info = json!({"username": self.name});
        if let Some(map) = info.as_object_mut() {
            if !self.uid.is_empty() {
                map.insert("uid".to_owned(), json!(self.uid));
            }
            if !self.groups.is_empty() {
                map.insert("groups".to_owned(), json!(self.groups));
            }
            if !self.extra.is_empty() {
                map.insert("extra".to_owned(), json!(self.extra));
            }
        }
        info
    }
}
