//! `tidewater-keeper JOB`: the job is one JSON object, which `tidewater cluster keeper` writes
//! ([`tidewater_keeper::job`]).

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tidewater_base::units::printable;
use tidewater_keeper::job::Job;
use tidewater_keeper::program::{become_command, supervisor::supervise};
use tidewater_keeper::run::run;
use tidewater_keeper::verbs::Operator;

fn main() -> ExitCode {
    let told = match work() {
        Ok(text) => std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "error: {}", printable(&why));
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<String, String> {
    let job = std::env::args().nth(1).ok_or("this is run by tidewater cluster keeper; see its --help")?;
    let job: Job = serde_json::from_str(&job)
        .map_err(|error| format!("{error}; tidewater and tidewater-keeper must be of one version"))?;
    if let Job::Exec { supervisor, command } = &job {
        return Err(become_command(*supervisor, command));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("can't begin: {error}"))?;
    runtime.block_on(async {
        match job {
            Job::Run { at, keep } => run(at, keep).await.map(|()| String::new()),
            Job::Status { at, json, state } => Operator::new(&at).status(json, state.as_deref()).await,
            Job::Switchover { at, to, wait_ms } => {
                Operator::new(&at).switchover(to, Duration::from_millis(wait_ms)).await
            }
            Job::Pause { at } => Operator::new(&at).pause(true).await,
            Job::Resume { at } => Operator::new(&at).pause(false).await,
            Job::Reinit { at, node } => Operator::new(&at).reinit(node).await,
            Job::Group { at, group } => Operator::new(&at).group(group).await,
            Job::Program { program } => supervise(program).await.map(|()| String::new()),
            Job::Exec { .. } => Ok(String::new()),
        }
    })
}
