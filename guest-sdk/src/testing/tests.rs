//! Tests of the test context itself.
