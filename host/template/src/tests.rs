//! Whole renders: the recorded answers of Helm 4.2.3, packages, limits.

mod corpus;
mod oracle;
mod package;
mod rows;

use serde_json::{Value as Json, json};

use crate::{Error, Files, Input, Limits, Lookup, NoLookup, Rendered, RenderedFile};

/// A render under construction.
pub(crate) struct Case {
    pub(crate) files: Files,
    pub(crate) values: Json,
    pub(crate) roots: serde_json::Map<String, Json>,
    pub(crate) limits: Limits,
    pub(crate) skip_schemas: bool,
    pub(crate) lookup: Box<dyn Lookup>,
}

/// A package of the given files.
pub(crate) fn package(files: &[(&str, &str)]) -> Case {
    Case {
        files: Files(files.iter().map(|(path, text)| (path.to_string(), text.as_bytes().to_vec())).collect()),
        values: json!({}),
        roots: serde_json::Map::new(),
        limits: Limits::default(),
        skip_schemas: false,
        lookup: Box::new(NoLookup),
    }
}

impl Case {
    pub(crate) fn values(mut self, values: Json) -> Self {
        self.values = values;
        self
    }

    pub(crate) fn root(mut self, name: &str, value: Json) -> Self {
        self.roots.insert(name.into(), value);
        self
    }

    pub(crate) fn skip_schemas(mut self) -> Self {
        self.skip_schemas = true;
        self
    }

    pub(crate) fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    pub(crate) fn lookup(mut self, lookup: impl Lookup + 'static) -> Self {
        self.lookup = Box::new(lookup);
        self
    }

    fn with_input<T>(self, use_it: impl FnOnce(&Input<'_>) -> T) -> T {
        use_it(&Input {
            values: self.values,
            roots: self.roots,
            now_unix_ms: 1_700_000_000_000,
            seed: [7; 32],
            skip_schema_validation: self.skip_schemas,
            limits: self.limits,
            lookup: &*self.lookup,
            ..Input::first(&self.files, "rel", "ns")
        })
    }

    pub(crate) fn render(self) -> Result<Rendered, Error> {
        self.with_input(crate::render)
    }

    pub(crate) fn texts(self) -> Result<Vec<RenderedFile>, Error> {
        self.with_input(crate::render_files)
    }

    /// The text of the only template.
    pub(crate) fn text(self) -> Result<String, Error> {
        Ok(self.texts()?.pop().map(|file| file.text).unwrap_or_default())
    }
}
