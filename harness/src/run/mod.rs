//! The run loop: carries a plan out, injects, heals, waits, and records.
