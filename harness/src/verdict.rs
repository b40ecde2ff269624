//! From outcomes to a verdict.
