//! The main job, shown: `make demo`. See [`cluster_tests::demo`].

use std::env;
use std::process::ExitCode;

use cluster_tests::demo::{self, Options};
use cluster_tests::failure::Failure;

#[tokio::main]
async fn main() -> ExitCode {
    // An empty value is what `DEMO_INPUT= make demo` gives.
    let folder = env::var_os("DEMO_INPUT")
        .filter(|folder| !folder.is_empty())
        .map(Into::into);
    let interrupted = async {
        let reason = match tokio::signal::ctrl_c().await {
            Ok(()) => "interrupted".to_owned(),
            Err(error) => format!("cannot wait for Ctrl-C: {error}"),
        };
        Err(Failure::new(reason))
    };
    let outcome = tokio::select! {
        outcome = Box::pin(demo::run(Options { folder })) => outcome,
        interrupted = interrupted => interrupted,
    };
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("demo: FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}
