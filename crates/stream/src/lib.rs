//! Thalweg stream.
