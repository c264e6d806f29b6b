//! Thalweg protocol.
