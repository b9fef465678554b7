//! Tests of the driver with a stand-in of its cloud.
