//! Thalweg env.
