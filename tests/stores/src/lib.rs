//! Real servers for the tests of the store adapters.
