//! Thalweg log.
