//! Mutant readers: each is a reference reader that does one thing wrong, so that one invariant must catch it.
