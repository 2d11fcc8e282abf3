//! host/health
