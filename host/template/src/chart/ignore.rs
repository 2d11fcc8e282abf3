//! `.helmignore`: file patterns of `path.Match`, with `!`, `/` in front and `/` behind.

use regex::Regex;

/// The rules of a `.helmignore` file, with those that always hold.
#[derive(Default)]
pub struct IgnoreRules(Vec<Rule>);

struct Rule {
    pattern: Regex,
    negated: bool,
    folders_only: bool,
    /// Compared with the whole path and not with the last part only.
    whole_path: bool,
}

impl IgnoreRules {
    /// Reads the file.
    ///
    /// # Errors
    /// A pattern that cannot be read, with its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for (i, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.contains("**") {
                return Err(format!("line {}: double-star (**) syntax is not supported", i + 1));
            }
            let (negated, rest) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
            let (folders_only, rest) = rest.strip_suffix('/').map_or((false, rest), |rest| (true, rest));
            let whole_path = rest.contains('/');
            let rest = rest.strip_prefix('/').unwrap_or(rest);
            // Braces mean nothing here.
            let escaped = rest.replace('{', "\\{").replace('}', "\\}");
            let pattern = crate::funcs::glob_regex(&escaped).ok_or_else(|| format!("line {}: bad pattern", i + 1))?;
            rules.push(Rule { pattern, negated, folders_only, whole_path });
        }
        Ok(Self(rules))
    }

    /// Whether the file, or a folder that it is in, is to be left out.
    pub(crate) fn ignores(&self, path: &str) -> bool {
        let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        folders.into_iter().any(|folder| self.matches(folder, true)) || self.matches(path, false)
    }

    /// Whether the file or folder itself is to be left out; what is in such a folder need not be looked at.
    pub fn matches(&self, path: &str, is_folder: bool) -> bool {
        let base = path.rsplit('/').next().unwrap_or(path);
        // Hidden files among the templates are never read.
        if path.starts_with("templates/.") && !path["templates/.".len()..].contains('/') {
            return true;
        }
        for rule in &self.0 {
            let hit = rule.pattern.is_match(if rule.whole_path { path } else { base });
            if rule.negated {
                // As Helm has it: a negated rule leaves out everything that it does not name.
                if (rule.folders_only && !is_folder) || !hit {
                    return true;
                }
            } else if hit && (!rule.folders_only || is_folder) {
                return true;
            }
        }
        false
    }
}
