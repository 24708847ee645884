//! `tidewater completions`: the scripts that clap makes from the table of flags, and what it cannot know of the values.

use crate::args::{Cli, Completions};
use crate::failure::Failure;
use crate::output;
use clap::builder::PossibleValuesParser;
use clap::{CommandFactory, ValueHint};
use clap_complete::Shell;
use std::collections::BTreeSet;
use tidewater_core::profile;

/// `tidewater completions`.
///
/// # Errors
/// When standard output cannot be written.
pub fn command(completions: &Completions) -> Result<(), Failure> {
    output::print(&script(completions.shell))
}

/// The completions for a shell: with the keys behind `--set` and `--vary`, and with the built-in profiles beside files.
fn script(shell: Shell) -> String {
    let words = Words::known();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut words.offered_by(Cli::command()), "tidewater", &mut script);
    words.as_each_shell_takes_them(shell, String::from_utf8_lossy(&script).into_owned())
}

/// Candidates behind options that take any text.
struct Words {
    /// Behind `--set`: each with its equals sign, since a value follows.
    set: Vec<&'static str>,
    /// Behind `--vary`.
    vary: Vec<&'static str>,
    /// Where a profile is named; a file can be, too.
    profiles: Vec<&'static str>,
}

impl Words {
    fn known() -> Words {
        let profiles: Vec<&str> = profile::names().collect();
        // Memories have other names in each profile.
        let keys: BTreeSet<String> =
            profiles.iter().filter_map(|name| profile::builtin(name)).flat_map(|p| p.settings().into_keys()).collect();
        // clap keeps what lives as long as the program does; these are made once in it.
        let word = |key: &str| &*format!("{key}=").leak();
        let set: Vec<&str> = keys.iter().filter(|key| key.contains('.')).map(|key| word(key)).collect();
        let options = tidewater_study::OPTIONS.into_iter().map(word);
        Words { vary: options.chain(set.iter().copied()).collect(), set, profiles }
    }

    /// The command whose arguments offer these words. Only scripts are made from it: it would refuse what is none of
    /// them.
    fn offered_by(&self, command: clap::Command) -> clap::Command {
        let command = command.mut_args(|argument| {
            let name = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
            let words = match name.as_deref() {
                Some("KEY=VALUE") => &self.set,
                Some("KEY=V1,V2,...") => &self.vary,
                Some("PROFILE") => &self.profiles,
                _ => return argument,
            };
            // What is said of files would go before the words.
            argument.value_parser(PossibleValuesParser::new(words.clone())).value_hint(ValueHint::Unknown)
        });
        command.mut_subcommands(|below| self.offered_by(below))
    }

    /// No space follows a key, and a file can stand where a profile does: clap has no words for either.
    fn as_each_shell_takes_them(&self, shell: Shell, script: String) -> String {
        let keys = [&self.set, &self.vary].map(|words| words.join(" "));
        let profiles = self.profiles.join(" ");
        match shell {
            // Files are offered where no profile fits: the script's `complete -o default`.
            Shell::Bash => keys.iter().fold(script, |script, keys| {
                let offer = format!("COMPREPLY=($(compgen -W \"{keys}\" -- \"${{cur}}\"))\n");
                script.replace(&offer, &format!("{offer}                    compopt -o nospace 2>/dev/null\n"))
            }),
            Shell::Zsh => {
                let both = format!("_alternative \"profiles\\:profile\\:({profiles})\" \"files\\:file\\:_files\"");
                let script = script.replace(&format!(":({profiles})'"), &format!(": {both}'"));
                keys.iter().fold(script, |script, keys| {
                    script.replace(&format!(":({keys})'"), &format!(": compadd -S \"\" -- {keys}'"))
                })
            }
            // It puts no space behind an equals sign.
            Shell::Fish => {
                let offer = format!("-a \"{}", self.profiles.iter().map(|p| format!("{p}\\t''\n")).collect::<String>());
                let offer = offer.trim_end();
                script.replace(&format!("-r -f {offer}"), &format!("-r -F {offer}"))
            }
            _ => script,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_completions() {
        use clap::ValueEnum as _;
        for shell in Shell::value_variants() {
            let script = script(*shell);
            assert!(script.contains("queue-depth"), "{shell}");
            // These two complete no values.
            let values = !matches!(shell, Shell::Elvish | Shell::PowerShell);
            assert!(!values || script.contains("mqsim64"), "{shell}");
        }
    }

    #[test]
    fn keys_are_completed_without_a_space_and_profiles_beside_files() {
        let words = Words::known();
        for key in ["nand.channels=", "memory.dram.size=", "buffer.write_policy="] {
            assert!(words.set.contains(&key), "{key}");
        }
        assert!(words.vary.contains(&"seed=") && !words.set.contains(&"seed="));
        let bash = script(Shell::Bash);
        let offers = |words: &[&str]| bash.matches(&format!("compgen -W \"{}\"", words.join(" "))).count();
        // Of `replay`, `compare`, `log`, `probe`, `serve` and two of `profile`.
        assert!(offers(&words.set) >= 7 && offers(&words.vary) == 2);
        assert_eq!(bash.matches("compopt -o nospace 2>/dev/null").count(), offers(&words.set) + offers(&words.vary));
        let zsh = script(Shell::Zsh);
        assert!(zsh.contains(":KEY=VALUE: compadd -S \"\" -- ") && zsh.contains(":KEY=V1,V2,...: compadd -S \"\" -- "));
        assert!(zsh.contains("_alternative \"profiles\\:profile\\:(generic ") && !zsh.contains(":PROFILE:("));
        let fish = script(Shell::Fish);
        assert!(fish.contains("nand.channels=") && fish.contains("-l profile"));
        assert!(fish.contains("-r -F -a \"generic\\t''") && !fish.contains("-r -f -a \"generic\\t''"));
    }
}
