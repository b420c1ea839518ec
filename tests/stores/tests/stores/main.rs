//! Every store adapter against the real server.

mod servers;
