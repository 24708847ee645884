//! The pages for newcomers, `docs/guide/NAME.md` and `docs/guide/NAME-TOPIC.md`: each of their commands is run, in
//! order, as it stands there.

use std::path::Path;

use tidewater_tests::databases::process::{descendants, kill_tree};
use tidewater_tests::databases::{Database, Place};
use tidewater_tests::{PATIENCE, root, wait};

/// The commands of a page: its indented lines.
fn commands(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("    ")).collect()
}

/// The pages of a database, by their names without the ending.
pub fn of(database: &dyn Database) -> Vec<String> {
    let files = std::fs::read_dir(root().join("docs/guide")).into_iter().flatten().flatten();
    let stems = files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".md").map(str::to_owned));
    let is_of =
        |stem: &String| stem.strip_prefix(database.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let mut pages: Vec<String> = stems.filter(is_of).collect();
    pages.sort();
    pages
}

/// Runs a page of this database; how many commands it has.
///
/// # Errors
/// The first command that fails, and what was said.
pub fn check(database: &dyn Database, name: &str, binaries: &Path, folder: &Path) -> Result<usize, String> {
    let page = root().join(format!("docs/guide/{name}.md"));
    let text = std::fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
    let commands = commands(&text);
    let place = Place::new(folder, database.user()?)?;
    let script = folder.join("page.sh");
    // What fails is named by its line; a reader would stop there as well.
    let head = "set -eu\ntrap 'echo \"FAILED: $BASH_COMMAND\"' ERR\n";
    std::fs::write(&script, format!("{head}{}\necho 'to its end'\n", commands.join("\n")))
        .map_err(|error| error.to_string())?;
    let mut bash = place.command("page", Path::new("/bin/bash"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    bash.arg(&script).current_dir(place.data()).env("PATH", format!("{}:{path}", binaries.display()));
    let mut child = bash.spawn().map_err(|error| format!("bash: {error}"))?;
    let ended = wait::within(PATIENCE, || child.try_wait().transpose());
    let late = ended.is_none().then(|| {
        let running = descendants(&[child.id()]);
        kill_tree(&[child.id()]);
        format!("it waits after {PATIENCE:?}, for {running:?}")
    });
    let status = ended.unwrap_or_else(|| child.wait()).map_err(|error| error.to_string())?;
    let said = std::fs::read_to_string(folder.join("page.log")).unwrap_or_default();
    match late {
        // What was started in the background may say something while it ends.
        None if status.success() && said.lines().any(|line| line == "to its end") => {
            // What it started for good is ended by its last commands.
            Ok(commands.len())
        }
        late => {
            let files = std::fs::read_dir(place.data().join(format!("try-{name}"))).into_iter().flatten().flatten();
            let logs = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|it| it == "log"));
            let more =
                logs.filter_map(|log| Some(format!("\n{}: {}", log.display(), std::fs::read_to_string(&log).ok()?)));
            Err(format!("{} {status}: {said}{}", late.unwrap_or_default(), more.collect::<String>()))
        }
    }
}
