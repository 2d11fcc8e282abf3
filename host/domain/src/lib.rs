//! host/domain
