//! Invariants: pure functions of the facts of a history.
