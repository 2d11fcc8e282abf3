//! host/cluster
