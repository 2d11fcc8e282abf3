//! host/sandbox
