//! Go structs with methods that templates meet: files, capabilities, times, versions, certificates.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use crate::{
    exec::Fault,
    funcs::{Call, date::Time, semver::Version},
    value::{MapKind, Value},
};

pub(crate) enum Object {
    /// `.Files` and what `Glob` makes of it.
    Files(BTreeMap<Rc<str>, Rc<[u8]>>),
    Capabilities {
        kube: Value,
        apis: Value,
        helm: Value,
    },
    KubeVersion {
        version: String,
        major: String,
        minor: String,
    },
    ApiVersions(BTreeSet<String>),
    HelmVersion {
        version: String,
    },
    Time(Time),
    /// Nanoseconds.
    Duration(i64),
    Version(Version),
    Certificate {
        cert: String,
        key: String,
    },
}

pub(crate) enum Member {
    Field(Value),
    /// `sig` is a signature as in the function table.
    Method {
        sig: &'static str,
    },
}

impl Object {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Files(_) => "engine.files",
            Self::Capabilities { .. } => "*common.Capabilities",
            Self::KubeVersion { .. } => "common.KubeVersion",
            Self::ApiVersions(_) => "common.VersionSet",
            Self::HelmVersion { .. } => "version.BuildInfo",
            Self::Time(_) => "time.Time",
            Self::Duration(_) => "time.Duration",
            Self::Version(_) => "*semver.Version",
            Self::Certificate { .. } => "sprig.certificate",
        }
    }

    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Self::Files(_) => "map",
            Self::ApiVersions(_) => "slice",
            Self::Capabilities { .. } | Self::Version(_) => "ptr",
            Self::Duration(_) => "int64",
            _ => "struct",
        }
    }

    pub(crate) fn truth(&self) -> bool {
        match self {
            Self::Files(files) => !files.is_empty(),
            Self::ApiVersions(set) => !set.is_empty(),
            Self::Duration(nanos) => *nanos != 0,
            // Structs and pointers to them are always true.
            _ => true,
        }
    }

    pub(crate) fn as_int(&self) -> Option<i64> {
        if let Self::Duration(nanos) = self { Some(*nanos) } else { None }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Time(a), Self::Time(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Version(a), Self::Version(b)) => a.original == b.original,
            (Self::Files(a), Self::Files(b)) => a == b,
            (Self::ApiVersions(a), Self::ApiVersions(b)) => a == b,
            _ => false,
        }
    }

    /// `%v` of the object itself.
    pub(crate) fn display(&self) -> String {
        match self {
            Self::KubeVersion { version, .. } => version.clone(),
            other => other.display_inside(),
        }
    }

    /// `%v` where the object is a field or an argument, so that pointer methods are out of reach.
    pub(crate) fn display_inside(&self) -> String {
        match self {
            Self::Files(_) => crate::gofmt::display(&self.plain()).unwrap_or_default(),
            Self::Capabilities { .. } => "&{capabilities}".into(),
            Self::KubeVersion { version, major, minor } => format!("{{{version} {version} {major} {minor}}}"),
            Self::ApiVersions(set) => format!("[{}]", set.iter().map(String::as_str).collect::<Vec<_>>().join(" ")),
            Self::HelmVersion { version } => format!("{{{version}   }}"),
            Self::Time(time) => time.to_string(),
            Self::Duration(nanos) => crate::funcs::date::duration_text(*nanos),
            Self::Version(version) => version.to_string(),
            Self::Certificate { cert, key } => format!("{{{cert} {key}}}"),
        }
    }

    /// The object as maps, lists and scalars, for encoders.
    pub(crate) fn plain(&self) -> Value {
        match self {
            Self::Files(files) => Value::map(files.iter().map(|(k, v)| (k.clone(), Value::Bytes(v.clone()))).collect()),
            Self::Capabilities { kube, apis, helm } => Value::dict([
                ("KubeVersion", kube.clone()),
                ("APIVersions", apis.clone()),
                ("HelmVersion", helm.clone()),
            ]),
            Self::KubeVersion { version, major, minor } => Value::dict([
                ("Version", Value::str(version.as_str())),
                ("Major", Value::str(major.as_str())),
                ("Minor", Value::str(minor.as_str())),
            ]),
            Self::ApiVersions(set) => Value::strings(set.iter().map(String::as_str)),
            Self::HelmVersion { version } => Value::dict([("version", Value::str(version.as_str()))]),
            Self::Time(time) => Value::str(time.rfc3339()),
            Self::Duration(nanos) => Value::Int64(*nanos),
            Self::Version(version) => Value::str(version.original.as_str()),
            Self::Certificate { cert, key } => {
                Value::dict([("Cert", Value::str(cert.as_str())), ("Key", Value::str(key.as_str()))])
            }
        }
    }

    /// What `range` goes over, for objects that are maps or lists.
    pub(crate) fn pairs(&self) -> Option<Vec<(Value, Value)>> {
        match self {
            Self::Files(files) => {
                Some(files.iter().map(|(k, v)| (Value::Str(k.clone()), Value::Bytes(v.clone()))).collect())
            }
            Self::ApiVersions(set) => {
                Some((0..).map(Value::Int).zip(set.iter().map(|v| Value::str(v.as_str()))).collect())
            }
            _ => None,
        }
    }

    pub(crate) fn member(&self, name: &str) -> Option<Member> {
        let field = |value: &Value| Some(Member::Field(value.clone()));
        let text = |text: &str| Some(Member::Field(Value::str(text)));
        let method = |sig| Some(Member::Method { sig });
        match self {
            Self::Files(files) => match name {
                "Get" | "GetBytes" | "Lines" | "Glob" => method("s"),
                "AsConfig" | "AsSecrets" => method(""),
                name => Some(Member::Field(
                    files.get(name).map_or_else(|| Value::Bytes(Rc::from([])), |bytes| Value::Bytes(bytes.clone())),
                )),
            },
            Self::Capabilities { kube, apis, helm } => match name {
                "KubeVersion" => field(kube),
                "APIVersions" => field(apis),
                "HelmVersion" => field(helm),
                _ => None,
            },
            Self::KubeVersion { version, major, minor } => match name {
                "Version" => text(version),
                "Major" => text(major),
                "Minor" => text(minor),
                "GitVersion" | "String" => method(""),
                _ => None,
            },
            Self::ApiVersions(_) => (name == "Has").then_some(Member::Method { sig: "s" }),
            Self::HelmVersion { version } => match name {
                "Version" => text(version),
                "GitCommit" | "GitTreeState" | "GoVersion" | "KubeClientVersion" => text(""),
                _ => None,
            },
            Self::Time(_) => match name {
                "Format" => method("s"),
                "AddDate" => method("iii"),
                "Add" | "Before" | "After" | "Equal" | "Sub" => method("a"),
                "Unix" | "UnixMilli" | "UnixNano" | "Year" | "Month" | "Day" | "Hour" | "Minute" | "Second"
                | "Nanosecond" | "YearDay" | "Weekday" | "UTC" | "Local" | "String" | "IsZero" => method(""),
                _ => None,
            },
            Self::Duration(_) => match name {
                "Hours" | "Minutes" | "Seconds" | "Milliseconds" | "Microseconds" | "Nanoseconds" | "String" => {
                    method("")
                }
                _ => None,
            },
            Self::Version(_) => match name {
                "Major" | "Minor" | "Patch" | "Prerelease" | "Metadata" | "Original" | "String" | "IncMajor"
                | "IncMinor" | "IncPatch" => method(""),
                "Compare" | "Equal" | "LessThan" | "GreaterThan" => method("a"),
                _ => None,
            },
            Self::Certificate { cert, key } => match name {
                "Cert" => text(cert),
                "Key" => text(key),
                _ => None,
            },
        }
    }

    pub(crate) fn call(&self, name: &str, call: &mut Call<'_, '_>, args: &[Value]) -> Result<Value, Fault> {
        let first = args.first().cloned().unwrap_or(Value::Nil);
        let unknown = || Fault::message(format!("no method {name}"));
        match self {
            Self::Files(files) => file_method(files, name, call, &first).ok_or_else(unknown)?,
            Self::KubeVersion { version, .. } => Ok(Value::str(version.as_str())),
            Self::ApiVersions(set) => match first {
                Value::Str(name) => Ok(Value::Bool(set.contains(&*name))),
                _ => Ok(Value::Bool(false)),
            },
            Self::Time(time) => time.call(name, args).ok_or_else(unknown),
            Self::Duration(nanos) => crate::funcs::date::duration_method(*nanos, name).ok_or_else(unknown),
            Self::Version(version) => version.call(name, &first).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }
}

fn file_method(
    files: &BTreeMap<Rc<str>, Rc<[u8]>>,
    name: &str,
    call: &mut Call<'_, '_>,
    arg: &Value,
) -> Option<Result<Value, Fault>> {
    let path = if let Value::Str(path) = arg { path.clone() } else { Rc::from("") };
    let content = files.get(&path);
    let text = || content.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
    Some(match name {
        "Get" => Ok(Value::str(text())),
        "GetBytes" => Ok(content.map_or_else(|| Value::Bytes(Rc::from([])), |bytes| Value::Bytes(bytes.clone()))),
        "Lines" => {
            let text = text();
            let text = text.strip_suffix('\n').unwrap_or(&text);
            Ok(if text.is_empty() { Value::strings::<&str>([]) } else { Value::strings(text.split('\n')) })
        }
        "Glob" => match call.glob(&path) {
            Ok(Some(pattern)) => {
                let found = files.iter().filter(|(path, _)| pattern.is_match(path));
                Ok(Value::object(Object::Files(found.map(|(k, v)| (k.clone(), v.clone())).collect())))
            }
            // Helm takes a pattern that does not compile for `**`.
            Ok(None) => Ok(Value::object(Object::Files(files.clone()))),
            Err(fault) => Err(fault),
        },
        "AsConfig" | "AsSecrets" => {
            use base64::Engine as _;
            let mut entries = BTreeMap::new();
            for (path, bytes) in files {
                let base = path.rsplit('/').next().unwrap_or(path);
                let text = if name == "AsConfig" {
                    String::from_utf8_lossy(bytes).into_owned()
                } else {
                    base64::engine::general_purpose::STANDARD.encode(bytes)
                };
                entries.insert(Rc::from(base), Value::str(text));
            }
            if entries.is_empty() {
                return Some(Ok(Value::str("")));
            }
            crate::funcs::encode::yaml_text(call, &Value::map_of(MapKind::Str, entries))
        }
        _ => return None,
    })
}
