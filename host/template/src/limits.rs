//! What a render may use up. Templates come from people whom the operator need not trust.

/// The budget of one render. Exceeding one ends the render with an error whose code names it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Evaluated nodes, commands and loop turns. The largest public charts need some 300 000.
    pub steps: u64,
    /// Bytes of rendered text over all files. Manifests above a few MiB do not fit into any release record.
    pub output_bytes: usize,
    /// Bytes of strings and collections that functions may create over the whole render, freed or not: an upper bound of
    /// the memory at any moment.
    pub memory_bytes: u64,
    /// Templates, blocks and pipelines inside each other while evaluating. An `include` costs about eight, so that the
    /// default leaves room for the thousand nested includes that Helm allows.
    pub depth: u32,
    /// Blocks and parentheses inside each other in a template's text.
    pub nesting: usize,
    /// Items of one list or map that a function makes (`until`, `seq`, `chunk`, `splitList`, …).
    pub collection_items: usize,
    /// Bytes of one string that a function makes (`repeat`, `indent`, `replace`, …).
    pub string_bytes: usize,
    /// Bytes of one template's text.
    pub template_bytes: usize,
    /// Template files of one render, subcharts included.
    pub templates: usize,
    /// Bytes of one compiled regular expression.
    pub regex_bytes: usize,
    /// Nodes of one YAML or JSON document that is read, with aliases counted as often as they are used.
    pub document_nodes: usize,
    /// Checks that the schemas of charts make on the values: keywords times the values that each looks at, an upper
    /// bound. The largest public charts need some 20 000.
    pub schema_checks: u64,
    /// Questions that templates put to the cluster with `lookup`; the same one again is free.
    pub lookups: u32,
    /// Bytes of all answers to `lookup`, as JSON.
    pub lookup_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 10_000_000,
            output_bytes: 32 << 20,
            memory_bytes: 512 << 20,
            depth: 10_000,
            nesting: 500,
            collection_items: 1_000_000,
            string_bytes: 16 << 20,
            template_bytes: 4 << 20,
            templates: 5_000,
            regex_bytes: 1 << 20,
            document_nodes: 1_000_000,
            schema_checks: 2_000_000,
            lookups: 500,
            lookup_bytes: 32 << 20,
        }
    }
}

/// Which budget was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::steps`].
    Steps,
    /// [`Limits::output_bytes`].
    Output,
    /// [`Limits::memory_bytes`].
    Memory,
    /// [`Limits::depth`].
    Depth,
    /// [`Limits::nesting`], or too many variables in one scope of a template.
    Nesting,
    /// [`Limits::collection_items`], or a value with too many nodes to compare, copy or merge.
    Collection,
    /// [`Limits::string_bytes`], or a value whose text would be longer.
    StringSize,
    /// [`Limits::template_bytes`].
    TemplateSize,
    /// [`Limits::templates`].
    Templates,
    /// [`Limits::regex_bytes`].
    Regex,
    /// [`Limits::document_nodes`], or a document that is nested too deep.
    Document,
    /// [`Limits::schema_checks`].
    Schema,
    /// [`Limits::lookups`].
    Lookups,
    /// [`Limits::lookup_bytes`].
    LookupSize,
    /// The caller's deadline.
    Deadline,
}

impl Limit {
    /// A stable name, for events and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::Steps => "TemplateStepsExceeded",
            Self::Output => "TemplateOutputExceeded",
            Self::Memory => "TemplateMemoryExceeded",
            Self::Depth => "TemplateDepthExceeded",
            Self::Nesting => "TemplateNestingExceeded",
            Self::Collection => "TemplateCollectionExceeded",
            Self::StringSize => "TemplateStringExceeded",
            Self::TemplateSize => "TemplateSizeExceeded",
            Self::Templates => "TemplateCountExceeded",
            Self::Regex => "TemplateRegexExceeded",
            Self::Document => "TemplateDocumentExceeded",
            Self::Schema => "SchemaChecksExceeded",
            Self::Lookups => "TemplateLookupsExceeded",
            Self::LookupSize => "TemplateLookupSizeExceeded",
            Self::Deadline => "TemplateDeadlineExceeded",
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Steps => "the render takes more steps than allowed",
            Self::Output => "the rendered text is larger than allowed",
            Self::Memory => "the render uses more memory than allowed",
            Self::Depth => {
                "templates are nested deeper than allowed while evaluating (endless include, tpl or template?)"
            }
            Self::Nesting => "blocks or parentheses are nested deeper than allowed",
            Self::Collection => "a list or map has more items than allowed",
            Self::StringSize => "a string is longer than allowed",
            Self::TemplateSize => "a template is larger than allowed",
            Self::Templates => "there are more templates than allowed",
            Self::Regex => "a regular expression is larger than allowed",
            Self::Document => "a document has more nodes than allowed, or is nested too deep",
            Self::Schema => "the schema makes more checks on the values than allowed",
            Self::Lookups => "templates look up more objects than allowed",
            Self::LookupSize => "the objects that templates look up are larger than allowed",
            Self::Deadline => "the render was stopped by its deadline",
        })
    }
}
