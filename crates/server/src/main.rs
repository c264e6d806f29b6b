//! The `thalweg` command; everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    thalweg_server::cli::main()
}
