//! host/template
