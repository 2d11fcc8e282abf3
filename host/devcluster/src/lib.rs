//! host/devcluster
