//! One program for all tests: each of its own would link everything again.

mod access;
mod access_table;
mod admission;
mod beyond;
mod crowds;
mod events;
mod logs;
mod pages;
mod pipelining;
mod readers;
mod streams;
mod support;
