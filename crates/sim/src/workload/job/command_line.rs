//! Jobs on fio's own command line: `fio --name=a --rw=randwrite --bs=4k`.

use super::parse::{Section, Setting, Variable, all_threads, is_switch};
use super::spec::{JobError, JobSpec};
use super::values;

/// The beginning of such a line.
pub(super) const PROGRAM: &str = "fio ";
/// The place that messages give.
const PLACE: &str = "fio's command line";

/// Options of fio's process that change no request.
const OF_PROCESS: &str = "
    output output-format bandwidth-log latency-log minimal append-terse terse-version eta eta-interval eta-newline
    status-interval warnings-fatal max-jobs alloc-size aux-path debug readonly idle-prof inflate-log trigger-file
    trigger-timeout trigger trigger-remote";
/// Options that make fio do something else than run its jobs.
const OTHER_WORK: &str = "
    help version cmdhelp enghelp showcmd parse-only crctest memcpytest cpuclock-test server client remote-config
    daemonize merge-blktrace-only section";

/// The job that fio would run. As there, options before the first `--name` are for all jobs, and each `--name` begins
/// one; a dash is as good as two, and a value may be the next word.
///
/// # Errors
/// An option or a value that fio or a job of ours does not take.
pub(super) fn read(line: &str, variable: Variable<'_>) -> Result<JobSpec, JobError> {
    let wrong = |reason: String| JobError { place: PLACE.to_owned(), reason };
    let words = words(line).ok_or_else(|| wrong("a quotation mark is not closed".into()))?;
    let mut words = words.into_iter().skip(1).peekable();
    let mut global: Vec<Setting> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut is_global = true;
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            let word: String = word.chars().take(60).collect();
            return Err(wrong(format!("\"{word}\" is no option; give a job file with --job")));
        };
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, value.to_owned()),
            None if is_switch(option) => (option, String::new()),
            None => (option, words.next_if(|next| !next.starts_with('-')).unwrap_or_default()),
        };
        let is_of = |names: &str| names.split_whitespace().any(|name| name == key);
        if is_of(OTHER_WORK) {
            return Err(wrong(format!("--{key} runs no job; leave it out")));
        }
        if is_of(OF_PROCESS) {
            continue;
        }
        let value = values::substituted(&value, variable).map_err(|reason| wrong(format!("{key}: {reason}")))?;
        if key == "name" {
            is_global = value.starts_with("global");
            if !is_global {
                sections.push(Section { name: value, place: PLACE.into(), own: Vec::new(), before: global.len() });
            }
            continue;
        }
        let setting = Setting { key: key.to_owned(), value, place: PLACE.into() };
        match sections.last_mut() {
            Some(section) if !is_global => section.own.push(setting),
            _ => global.push(setting),
        }
    }
    if sections.is_empty() {
        return Err(wrong("no job: each begins with --name=NAME".into()));
    }
    all_threads(&global, &sections)
}

/// Words as a shell divides them; `None`: a quotation mark is open.
fn words(line: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(mark), _) if character == mark => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, _) if character.is_whitespace() => all.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    all.extend(word);
    quote.is_none().then_some(all)
}

/// Words as one line, which [`read`] divides again.
pub(super) fn line(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=./:,%+@$".contains(c);
    let quoted = |word: &String| match word.chars().all(plain) && !word.is_empty() {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    PROGRAM.to_owned() + &words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(line: &str) -> Result<JobSpec, String> {
        read(line, &|_| None).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_of_fio_are_the_jobs_of_its_files() {
        let line = "fio --name=global --bs=8k --ioengine=libaio --name=a --rw=randread --size=1m --output=x \
                    --name=b --rw=write --size=2m --fsync=1 --group_reporting";
        let text = "[global]\nbs=8k\n[a]\nrw=randread\nsize=1m\n[b]\nrw=write\nsize=2m\nfsync=1\n";
        assert_eq!(job(line).unwrap(), JobSpec::from_file("a", text).unwrap());
        // One dash, values behind a blank, and options for all before the first name.
        let line = "fio -direct=1 -bs 8k --thread -name=a -rw randread -size=1m --minimal -name b --rw=write -size 2m \
                    -fsync 1 --eta=never";
        assert_eq!(job(line).unwrap(), JobSpec::from_file("a", text).unwrap());
        let words = ["--name=my job".to_owned(), "--description=it's".into(), String::new(), "--rw=read".into()];
        assert_eq!(super::line(&words), "fio '--name=my job' '--description=it'\\''s' '' --rw=read");
        assert_eq!(super::words(&super::line(&words)).unwrap()[1..], words);
        assert_eq!(job("fio --name='my job' --rw=read --size=1m").unwrap().threads[0].name, "my job");
    }

    #[test]
    fn what_no_job_is_made_of_is_refused_with_the_way_out() {
        for (line, words) in [
            ("fio --rw=read", "no job: each begins with --name=NAME"),
            ("fio job.fio", "\"job.fio\" is no option; give a job file with --job"),
            ("fio --name=a --server", "--server runs no job"),
            ("fio --name=a --rw=reed", "fio's command line: rw: \"reed\" is not one of"),
            ("fio --name=a --iodpeth=3", "unknown key \"iodpeth\"; did you mean \"iodepth\"?"),
            ("fio --name=a --name=b --stonewall", "\"stonewall\" is not supported"),
            ("fio --name='a", "a quotation mark is not closed"),
            ("fio ", "no job"),
        ] {
            let error = job(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    use proptest::prelude::*;
    proptest! {
        #[test]
        fn any_line_is_read_or_refused(text in "[ -~]{0,200}|(--?(name|rw|bs|size)[= ][a-z0-9]{0,5} ?){0,9}") {
            let _ = job(&format!("fio {text}"));
        }
    }
}
