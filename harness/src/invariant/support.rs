//! Histories as literals, for tests of invariants and verdicts.
