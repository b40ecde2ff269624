//! The oracle: an independent client on a direct listener that knows the truth.
