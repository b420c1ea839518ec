//! The planner: which moves to propose.
