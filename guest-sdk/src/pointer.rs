//! JSON pointers (RFC 6901), the paths of values, settings and items of snapshots.

/// Escapes one segment: `~` becomes `~0` and `/` becomes `~1`.
///
/// ```
/// assert_eq!(barbless_sdk::pointer::escape("app.example.com/role"), "app.example.com~1role");
/// ```
pub fn escape(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

/// Undoes [`escape`].
///
/// ```
/// assert_eq!(barbless_sdk::pointer::unescape("a~1b~0c"), "a/b~c");
/// ```
pub fn unescape(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// Makes a pointer of segments, each escaped.
///
/// ```
/// use barbless_sdk::pointer::join;
///
/// let pointer = join(["metadata", "labels", "app.example.com/role"]);
/// assert_eq!(pointer, "/metadata/labels/app.example.com~1role");
/// assert_eq!(join::<[&str; 0], &str>([]), "");
/// ```
pub fn join<I, S>(segments: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<str>,
{
    let mut pointer = String::new();
    for segment in segments {
        pointer.push('/');
        pointer.push_str(&escape(segment.as_ref()));
    }
    pointer
}
