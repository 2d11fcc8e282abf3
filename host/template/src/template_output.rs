//! What `helm template` prints.

#[cfg(test)]
mod tests;

use crate::{funcs, manifest, render::Rendered};

/// Which objects are printed.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'s> {
    /// Helm hooks, behind the objects of the release.
    pub hooks: bool,
    /// Hooks that are tests, if hooks are shown.
    pub tests: bool,
    /// What stands in `crds/`, in front of everything.
    pub crds: bool,
    /// Only what these templates wrote: paths below the chart, such as `templates/web.yaml`, or patterns of them. Empty
    /// shows everything.
    pub only: &'s [String],
}

impl Default for Shown<'_> {
    fn default() -> Self {
        Self { hooks: true, tests: true, crds: false, only: &[] }
    }
}

impl Rendered {
    /// The text that `helm template` prints for the same chart.
    ///
    /// # Errors
    /// A template that is to be shown wrote nothing or is not there: Helm's words.
    pub fn helm_template(&self, shown: &Shown<'_>) -> Result<String, String> {
        let mut release = String::new();
        if shown.crds {
            for file in &self.crd_files {
                release.push_str(&format!("---\n# Source: {}\n{}\n", file.path, file.text));
            }
        }
        release.push_str(self.helm_manifest());
        let mut text = format!("{}\n", release.trim());
        let mut start = self.hooks_at;
        for (end, is_test) in &self.hooks {
            if shown.hooks && (shown.tests || !is_test) {
                text.push_str(self.output.get(start..*end).unwrap_or_default());
            }
            start = *end;
        }
        if shown.only.is_empty() { Ok(text) } else { only(&text, shown.only) }
    }
}

/// The documents that come from the named templates, in the order of the names.
fn only(text: &str, names: &[String]) -> Result<String, String> {
    let documents = manifest::documents(text);
    let mut out = String::new();
    for name in names {
        let missing = || format!("could not find template {name} in chart");
        let escaped = name.replace('\\', "/").replace('{', "\\{").replace('}', "\\}");
        let pattern = funcs::glob_regex(&escaped).ok_or_else(missing)?;
        let before = out.len();
        for document in &documents {
            let source = document.text.lines().find_map(|line| line.strip_prefix("# Source: "));
            let below = source.and_then(|source| source.split_once('/')).map_or("", |(_, below)| below);
            if pattern.is_match(below) {
                out.push_str(&format!("---\n{}\n", document.text));
            }
        }
        if out.len() == before {
            return Err(missing());
        }
    }
    Ok(out)
}
