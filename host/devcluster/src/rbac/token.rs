//! Tokens of ServiceAccounts: signed by this process, for as long as it lives and the account is there.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE};
use ring::{
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};
use serde_json::{Value, json};

use crate::{
    json::{self, at, int, list, text},
    registry::Registry,
    status::{ApiError, Cause},
    user::User,
};

/// Who signs, and whom tokens are for unless their request says otherwise.
const ISSUER: &str = "https://kubernetes.default.svc";
const ACCOUNTS: &str = "/serviceaccounts";
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;
const SECONDS_DEFAULT: i64 = 3600;

/// The key of this process.
pub(crate) struct Keys {
    key: Option<hmac::Key>,
}

impl Default for Keys {
    fn default() -> Self {
        // Without random numbers there are no tokens, rather than ones that can be guessed.
        Self { key: hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).ok() }
    }
}

pub(super) fn groups_of(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

impl Keys {
    fn sign(&self, claims: &Value) -> Option<String> {
        let header = BASE.encode(json!({"alg": "HS256", "typ": "JWT"}).to_string());
        let signed = format!("{header}.{}", BASE.encode(claims.to_string()));
        let tag = hmac::sign(self.key.as_ref()?, signed.as_bytes());
        Some(format!("{signed}.{}", BASE.encode(tag)))
    }

    /// The account of a token that is good, and whom it is for.
    pub(super) fn verify(&self, registry: &Registry, token: &str) -> Option<(User, Vec<Value>)> {
        let (signed, tag) = token.rsplit_once('.')?;
        hmac::verify(self.key.as_ref()?, signed.as_bytes(), &BASE.decode(tag).ok()?).ok()?;
        let claims = BASE.decode(signed.split_once('.')?.1).ok()?;
        let claims = serde_json::from_slice::<Value>(&claims).ok()?;
        if int(&claims, &["exp"])? <= jiff::Timestamp::now().as_second() {
            return None;
        }
        let part = |path: &[&str]| text(&claims, &[&["kubernetes.io"], path].concat()).to_owned();
        let (namespace, name) = (part(&["namespace"]), part(&["serviceaccount", "name"]));
        let uid = part(&["serviceaccount", "uid"]);
        // It ends with its account.
        registry.store.get(ACCOUNTS, &namespace, &name).filter(|account| account.uid() == uid)?;
        let mut groups = groups_of(&namespace);
        groups.push("system:authenticated".to_owned());
        let id = format!("JTI={}", text(&claims, &["jti"]));
        let extra = [("authentication.kubernetes.io/credential-id".to_owned(), vec![id])].into();
        let user = User { name: text(&claims, &["sub"]).to_owned(), uid, groups, extra };
        Some((user, list(&claims, &["aud"]).to_vec()))
    }
}

/// Answers a `TokenRequest` for an account.
pub(crate) fn request(
    registry: &Registry,
    keys: &Keys,
    namespace: &str,
    name: &str,
    request: &Value,
) -> Result<Value, ApiError> {
    let account = registry.store.get(ACCOUNTS, namespace, name);
    let about = crate::status::About { group: "", plural: "serviceaccounts", kind: "ServiceAccount" };
    let account = account.ok_or_else(|| ApiError::not_found(about, name))?;
    let seconds = int(request, &["spec", "expirationSeconds"]).unwrap_or(SECONDS_DEFAULT);
    let why = match seconds {
        ..SECONDS_MIN => Some("may not specify a duration less than 10 minutes"),
        SECONDS_MAX.. => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(why) = why {
        let about = crate::status::About { group: "authentication.k8s.io", plural: "", kind: "TokenRequest" };
        let cause = Cause::invalid("spec.expirationSeconds", &json!(seconds), why);
        return Err(ApiError::invalid(about, "", vec![cause]));
    }
    let audiences = match list(request, &["spec", "audiences"]) {
        [] => vec![json!(ISSUER)],
        given => given.to_vec(),
    };
    let now = jiff::Timestamp::now();
    let expires = now.as_second() + seconds;
    let claims = json!({
        "aud": audiences, "exp": expires, "iat": now.as_second(), "nbf": now.as_second(), "iss": ISSUER,
        "jti": uuid::Uuid::new_v4().to_string(), "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": account.uid()}},
    });
    let token = keys.sign(&claims).ok_or_else(|| ApiError::internal("no random numbers to sign tokens with"))?;
    let until = jiff::Timestamp::from_second(expires).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "uid": account.uid(), "creationTimestamp": json::now()},
        "spec": {"audiences": audiences, "expirationSeconds": seconds,
                 "boundObjectRef": at(request, &["spec", "boundObjectRef"])},
        "status": {"token": token, "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
    }))
}
