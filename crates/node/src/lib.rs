//! Thalweg node.
