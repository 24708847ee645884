//! One workload on several drives.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use tidewater_core::profile::{Profile, ProfileError};
use tidewater_report::Record;

use crate::run::{RunError, RunOptions, run};
use crate::workload::Source;

/// A drive to compare.
pub struct Variant {
    /// What tells it from the others: `KEY=VALUE`, separated by blanks.
    pub label: String,
    /// The drive.
    pub profile: Profile,
    /// How it is run.
    pub options: RunOptions,
}

/// The run of a variant came to no result.
#[derive(Debug)]
pub struct CompareError {
    /// The variant.
    pub label: String,
    /// Why.
    pub error: RunError,
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with {}: {}", self.label, self.error)
    }
}

impl std::error::Error for CompareError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The profile with every combination of the values of some keys; the last key changes fastest. `options` makes the
/// options of each; the settings are noted in them.
///
/// # Errors
/// When a key or value is wrong, or the settings cannot stand together.
pub fn variants(
    profile: &Profile,
    vary: &[(String, Vec<String>)],
    options: impl Fn() -> RunOptions,
) -> Result<Vec<Variant>, ProfileError> {
    let mut variants = vec![(Vec::new(), profile.clone())];
    for (key, values) in vary {
        let mut more = Vec::with_capacity(variants.len() * values.len());
        for (settings, profile) in &variants {
            for value in values {
                let (mut settings, mut profile) = (settings.clone(), profile.clone());
                profile.set(key, value)?;
                settings.push(format!("{key}={value}"));
                more.push((settings, profile));
            }
        }
        variants = more;
    }
    variants
        .into_iter()
        .map(|(settings, profile)| {
            profile.check()?;
            let mut options = options();
            options.changed.extend_from_slice(&settings);
            Ok(Variant { label: settings.join(" "), profile, options })
        })
        .collect()
}

/// Runs every variant on the requests that `source` opens for it, on up to `threads` threads. The records come in the
/// order of the variants, and do not depend on the number of threads. When a run is cancelled, its record is marked as
/// partial, and those that had not begun are left out.
///
/// # Errors
/// The first variant, in their order, whose run failed.
pub fn compare<S: Source>(
    variants: Vec<Variant>,
    threads: usize,
    source: impl Fn(&Variant) -> Result<S, RunError> + Sync,
) -> Result<Vec<(String, Record)>, CompareError> {
    let mut results: Vec<Option<Result<(String, Record), CompareError>>> = variants.iter().map(|_| None).collect();
    let threads = threads.clamp(1, variants.len().max(1));
    let waiting = Mutex::new(variants.into_iter().zip(&mut results));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    // The lock is held only to take the next: a panic elsewhere does not leave it half-taken.
                    let next = waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
                    let Some((variant, result)) = next else { break };
                    if variant.options.cancelled.load(Ordering::Relaxed) {
                        continue;
                    }
                    let opened = source(&variant);
                    let Variant { label, profile, options } = variant;
                    let outcome = opened.and_then(|source| run(&profile, source, options));
                    *result = Some(match outcome {
                        Ok(outcome) => Ok((label, outcome.record)),
                        Err(error) => Err(CompareError { label, error }),
                    });
                }
            });
        }
    });
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Pacing;
    use crate::workload::{JobSource, JobSpec};

    fn source(_: &Variant) -> Result<JobSource, RunError> {
        let spec = JobSpec::from_inline("rw=randwrite,bs=4k,size=32m,number_ios=4000").unwrap();
        Ok(spec.source(None, 5).unwrap())
    }

    fn options() -> RunOptions {
        RunOptions { pacing: Pacing::Depth(16), ..RunOptions::default() }
    }

    #[test]
    fn variants_are_all_combinations_and_threads_change_nothing() {
        let vary = [
            ("nand.channels".to_owned(), vec!["1".to_owned(), "4".to_owned()]),
            ("buffer.write_policy".to_owned(), vec!["none".to_owned(), "lru".to_owned()]),
        ];
        let all = || variants(&Profile::generic(), &vary, options).unwrap();
        let one = compare(all(), 1, source).unwrap();
        let labels: Vec<&str> = one.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "nand.channels=1 buffer.write_policy=none",
                "nand.channels=1 buffer.write_policy=lru",
                "nand.channels=4 buffer.write_policy=none",
                "nand.channels=4 buffer.write_policy=lru",
            ]
        );
        assert_eq!(one[3].1.profile.changed, ["nand.channels=4", "buffer.write_policy=lru"]);
        assert_eq!((one[0].1.utilization.channels.len(), one[3].1.utilization.channels.len()), (1, 4));
        assert!(one[1].1.latency_us["write"].mean < one[0].1.latency_us["write"].mean);
        let two = compare(all(), 2, source).unwrap();
        for (a, b) in one.iter().zip(&two) {
            assert_eq!((&a.0, a.1.without_wall_time()), (&b.0, b.1.without_wall_time()));
        }
    }

    #[test]
    fn what_cannot_be_is_told_with_its_variant() {
        let vary =
            |key: &str, values: &[&str]| vec![(key.to_owned(), values.iter().map(|v| (*v).to_owned()).collect())];
        assert!(variants(&Profile::generic(), &vary("nand.chanels", &["1"]), options).is_err());
        let all = variants(&Profile::generic(), &vary("drive.capacity", &["1GiB", "16MiB"]), options).unwrap();
        let error = compare(all, 2, source).unwrap_err();
        assert_eq!(error.label, "drive.capacity=16MiB");
        assert!(error.to_string().contains("past the end of the drive"), "{error}");
        let all = variants(&Profile::generic(), &vary("nand.channels", &["1", "2"]), options).unwrap();
        all[0].options.cancelled.store(true, Ordering::Relaxed);
        assert_eq!(compare(all, 1, source).unwrap().len(), 1);
    }
}
