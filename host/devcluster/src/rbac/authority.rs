//! Authentication: tokens and impersonation.

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use parking_lot::RwLock;

use super::{Act, MASTERS, allows, token};
use crate::{registry::Registry, status::ApiError, user::User};

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client in the process, which is trusted unless it says who it is.
    Process,
    /// An address of the machine.
    Network,
}

/// What is known of users.
pub(crate) struct Authority {
    /// Whether roles are asked at all.
    pub(crate) enforced: bool,
    tokens: RwLock<BTreeMap<String, User>>,
    pub(crate) keys: token::Keys,
}

impl Authority {
    pub(crate) fn new(enforced: bool) -> Self {
        Self { enforced, tokens: RwLock::default(), keys: token::Keys::default() }
    }

    /// Makes a token known.
    pub(crate) fn add(&self, token: &str, name: &str, groups: &[String]) {
        let user = User { name: name.to_owned(), groups: groups.to_vec(), ..User::default() };
        self.tokens.write().insert(token.to_owned(), with_group(user, "system:authenticated"));
    }

    /// Who is behind a token.
    pub(crate) fn of_token(&self, registry: &Registry, token: &str) -> Option<User> {
        let known = self.tokens.read().get(token).cloned();
        known.or_else(|| self.keys.verify(registry, token).map(|(user, _)| user))
    }

    /// Who makes a request, and as whom.
    pub(crate) fn identify(&self, registry: &Registry, headers: &HeaderMap, origin: Origin) -> Result<User, ApiError> {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let user = match bearer.filter(|token| !token.is_empty()) {
            _ if !self.enforced => User::admin(),
            Some(token) => self.of_token(registry, token).ok_or_else(ApiError::unauthorized)?,
            None if origin == Origin::Process => User::admin(),
            None => User {
                name: "system:anonymous".to_owned(),
                groups: vec!["system:unauthenticated".to_owned()],
                ..User::default()
            },
        };
        self.impersonate(registry, headers, user)
    }

    fn impersonate(&self, registry: &Registry, headers: &HeaderMap, user: User) -> Result<User, ApiError> {
        let all = |name: &str| {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.map(str::to_owned).collect::<Vec<_>>()
        };
        let one = |name: &str| all(name).into_iter().next().unwrap_or_default();
        let (name, uid, groups) = (one("impersonate-user"), one("impersonate-uid"), all("impersonate-group"));
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for (header, value) in headers {
            if let (Some(key), Ok(value)) = (header.as_str().strip_prefix("impersonate-extra-"), value.to_str()) {
                extra.entry(key.to_owned()).or_default().push(value.to_owned());
            }
        }
        if name.is_empty() {
            if groups.is_empty() && uid.is_empty() && extra.is_empty() {
                return Ok(user);
            }
            return Err(ApiError::bad_request("requested impersonation of groups or extras without a user name"));
        }
        let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let account = account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let ask = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
            let act = Act {
                verb: "impersonate".to_owned(),
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                path: None,
            };
            match self.enforced && allows(registry, &user, &act).is_none() {
                true => Err(act.refusal(&user)),
                false => Ok(()),
            }
        };
        match &account {
            Some((namespace, name)) => ask("", "serviceaccounts", "", namespace, name)?,
            None => ask("", "users", "", "", &name)?,
        }
        const OTHERS: &str = "authentication.k8s.io";
        groups.iter().try_for_each(|group| ask("", "groups", "", "", group))?;
        if !uid.is_empty() {
            ask(OTHERS, "uids", "", "", &uid)?;
        }
        for (key, values) in &extra {
            values.iter().try_for_each(|value| ask(OTHERS, "userextras", key, "", value))?;
        }
        let mut other = User { name, uid, groups, extra };
        if let Some((namespace, _)) = account
            && other.groups.is_empty()
        {
            other.groups = token::groups_of(&namespace);
        }
        let anonymous = other.name == "system:anonymous";
        let other = with_group(other, if anonymous { "system:unauthenticated" } else { "system:authenticated" });
        Ok(other)
    }

    /// Refuses what a user may not do.
    pub(crate) fn authorize(&self, registry: &Registry, user: &User, act: &Act) -> Result<(), ApiError> {
        if !self.enforced || user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        allows(registry, user, act).map(|_| ()).ok_or_else(|| act.refusal(user))
    }
}

fn with_group(mut user: User, group: &str) -> User {
    if !user.groups.iter().any(|known| known == group) {
        user.groups.push(group.to_owned());
    }
    user
}
