//! One workload, every policy, by the size of the write buffer.

use super::super::{Findings, check, column, figure, list, series};
use super::{
    EQUAL, ExperimentError, How, Measured, Options, PAPERS, POLICIES, Setting, below_or_above, gain, measure,
    measured_columns, ordinal, percent_range, profile, run_all, stand_in,
};
use tidewater_report::experiment::{Cell, Form};
use tidewater_sim::run::Pacing;
use tidewater_sim::workload::Synth;

/// The results, by policy and size.
struct Table {
    sizes: Vec<f64>,
    /// By policy, then by size; of a policy without a buffer, one.
    results: Vec<Vec<Measured>>,
}

impl Table {
    fn of(&self, policy: &str) -> impl Iterator<Item = &Measured> + Clone {
        let row = POLICIES.iter().position(|known| *known == policy).expect("a policy of the list");
        let results = &self.results[row];
        (0..self.sizes.len()).map(move |i| results.get(i).unwrap_or(&results[0]))
    }

    fn values(&self, policy: &str, value: fn(&Measured) -> f64) -> Vec<f64> {
        self.of(policy).map(value).collect()
    }

    /// The rank of CBM among the paper's policies, by size, for a value of which less is better.
    fn ranks(&self, value: fn(&Measured) -> f64) -> Vec<usize> {
        let by_policy = PAPERS.map(|policy| self.values(policy, value));
        let rank = |i: usize| 1 + by_policy.iter().filter(|values| values[i] < by_policy[0][i]).count();
        (0..self.sizes.len()).map(rank).collect()
    }

    /// Ranks, and by how much CBM is below each of the others.
    fn standing(&self, value: fn(&Measured) -> f64, less: &str) -> String {
        let ranks: Vec<String> = self.ranks(value).into_iter().map(ordinal).collect();
        let ours = self.values("cbm", value);
        let against = |policy: &&str| {
            let theirs = self.values(policy, value);
            let gains = ours.iter().zip(theirs).map(|(&a, b)| gain(a, b)).collect::<Vec<_>>();
            format!("{} than {}", percent_range(gains.into_iter()), policy.to_uppercase())
        };
        let against: Vec<String> = PAPERS[1..].iter().map(against).collect();
        format!("{} of 4 by size; {less} by {}", ranks.join(", "), against.join(", "))
    }

    /// Whether CBM is ahead of the paper's others or equal, at every size, for a value of which less is better.
    fn leads(&self, value: fn(&Measured) -> f64) -> bool {
        let by_policy = PAPERS.map(|policy| self.values(policy, value));
        (0..self.sizes.len()).all(|i| {
            let best = by_policy.iter().map(|values| values[i]).fold(f64::INFINITY, f64::min);
            by_policy[0][i] <= best * (1.0 + EQUAL)
        })
    }

    /// Whether a value of CBM is at least that of each of `others`, or equal, at every size.
    fn is_above(&self, others: &[&str], value: fn(&Measured) -> f64) -> bool {
        let ours = self.values("cbm", value);
        others.iter().all(|policy| {
            ours.iter().zip(self.values(policy, value)).all(|(&mine, theirs)| mine >= theirs * (1.0 - EQUAL))
        })
    }

    fn side_by_side(&self, policies: &[&str], value: fn(&Measured) -> f64, unit: &str) -> String {
        let one = |policy: &&str| format!("{} {}", policy.to_uppercase(), list(self.values(policy, value), unit));
        policies.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

pub(crate) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let mut sizes = setting.numbers("sizes_mib")?;
    if options.quick {
        sizes = vec![sizes[0], sizes[sizes.len() - 1]];
    }
    let workload = setting.word("workload")?;
    let (requests, warm_up) = (setting.number("requests")? as u64, setting.number("warm_up")? as u64);
    let (spec, warm_up) = stand_in(&workload, requests, warm_up, options)
        .ok_or_else(|| ExperimentError::new(format!("there is no workload {workload}")))?;
    let mut cases = Vec::new();
    for policy in POLICIES {
        let with_buffer = if policy == "none" { &sizes[..1] } else { &sizes[..] };
        for &size in with_buffer {
            cases.push((policy, size, profile(setting, policy, size as u64, &[])?));
        }
    }
    let how = How { pacing: Pacing::Arrival, warm_up, seed: options.seed };
    let measured = run_all(&cases, options, |(_, _, profile)| {
        let source = Synth::new(&spec).map_err(|error| ExperimentError::new(error.to_string()))?;
        measure(profile, source, how)
    })?;
    let mut findings = Findings {
        columns: vec![column("policy", "of the write buffer"), column("buffer_mib", "its size")],
        ..Findings::default()
    };
    findings.columns.extend(measured_columns());
    let mut table = Table { sizes, results: POLICIES.map(|_| Vec::new()).to_vec() };
    for ((policy, size, _), measured) in cases.iter().zip(measured) {
        let size = if *policy == "none" { 0.0 } else { *size };
        findings.rows.push([vec![Cell::from(*policy), Cell::from(size)], measured.cells()].concat());
        let row = POLICIES.iter().position(|known| known == policy).expect("a policy of the list");
        table.results[row].push(measured);
    }
    statements(&mut findings, &table);
    figures(&mut findings, &table);
    Ok(findings)
}

fn statements(findings: &mut Findings, table: &Table) {
    findings.checks.push(check(
        "fewest-erasures",
        "the fewest of CBM, FAB, BPLRU and BPAC at every size, or within 2 % of them",
        table.standing(|m| m.erases, "fewer"),
        table.leads(|m| m.erases),
    ));
    findings.checks.push(check(
        "shortest-response",
        "the shortest of CBM, FAB, BPLRU and BPAC at every size, or within 2 % of it",
        table.standing(|m| m.response_us, "shorter"),
        table.leads(|m| m.response_us),
    ));
    findings.checks.push(check(
        "most-hits",
        "at least the hit ratios of FAB and BPLRU, or within 2 % of them",
        table.side_by_side(&PAPERS, |m| m.hit_ratio * 100.0, "%"),
        table.is_above(&["fab", "bplru"], |m| m.hit_ratio),
    ));
    findings.checks.push(check(
        "longest-destages",
        "longer than those of FAB, BPAC and LRU, or within 2 % of them (BPLRU's are padded to whole blocks)",
        table.side_by_side(&["cbm", "fab", "bpac", "lru"], |m| m.length, "pages"),
        table.is_above(&["fab", "bpac", "lru"], |m| m.length),
    ));
    for (name, value, unit) in [
        ("shorter-than-unbuffered", (|m| m.response_us) as fn(&Measured) -> f64, "us"),
        ("fewer-erasures-than-unbuffered", |m| m.erases, "blocks"),
    ] {
        let without = table.of("none").map(value).next().unwrap_or(0.0);
        let ours = table.values("cbm", value);
        let measured =
            format!("{}; without a write buffer {}", list(ours.iter().copied(), unit), list([without], unit));
        let is_less = ours.iter().all(|&with| with < without);
        findings.checks.push(check(name, "less than without a write buffer, at every size", measured, is_less));
    }
    let most = |value: fn(&Measured) -> f64, better: &str, worse: &str| {
        let ours = table.values("cbm", value);
        let of = |policy: &&'static str| {
            let gains = ours.iter().zip(table.values(policy, value)).map(|(&a, b)| gain(a, b));
            (gains.fold(f64::NEG_INFINITY, f64::max), *policy)
        };
        let (gain, policy) =
            PAPERS[1..].iter().map(of).fold((f64::NEG_INFINITY, ""), |a, b| if b.0 > a.0 { b } else { a });
        let (limit, what) = if gain < 0.0 { ("at best", worse) } else { ("up to", better) };
        format!("{limit} {:.0} % {what} (than {})", gain.abs(), policy.to_uppercase())
    };
    findings.found.push(format!(
        "CBM has {} and {}; the paper's headline, stated after its experiment on a board, is up to 85 % and 84 %.",
        most(|m| m.erases, "fewer erasures", "more erasures"),
        most(|m| m.response_us, "shorter response time", "longer response time"),
    ));
    findings.found.push(format!(
        "Against the policies that the paper does not compare: erasures {}; response time {}.",
        beside(table, |m| m.erases),
        beside(table, |m| m.response_us)
    ));
}

/// How far CBM is below the policies that the paper does not have.
fn beside(table: &Table, value: fn(&Measured) -> f64) -> String {
    let ours = table.values("cbm", value);
    let one = |policy: &&str| {
        let theirs = table.values(policy, value);
        let gains: Vec<f64> = ours.iter().zip(theirs).map(|(&a, b)| gain(a, b)).collect();
        format!("{} {}", below_or_above(gains.into_iter()), policy.to_uppercase())
    };
    POLICIES[PAPERS.len()..].iter().map(one).collect::<Vec<_>>().join(", ")
}

fn figures(findings: &mut Findings, table: &Table) {
    let x = ("write buffer, MiB", true);
    let mut bars = |title: &str, label: &str, policies: &[&str], value: fn(&Measured) -> f64| {
        let values = || policies.iter().flat_map(|policy| table.values(policy, value)).filter(|v| *v > 0.0);
        // Where a policy cannot keep up with the load, its queue hides all others on a linear axis.
        let is_wide = values().fold(0.0, f64::max) > 30.0 * values().fold(f64::INFINITY, f64::min);
        let mut one = figure(title, Form::Bars, x, (label, is_wide));
        for policy in policies {
            let points = table.sizes.iter().copied().zip(table.values(policy, value));
            one.series.push(series(policy.to_uppercase(), points));
        }
        findings.figures.push(one);
    };
    bars("Average response time", "response time, µs", &PAPERS, |m| m.response_us);
    bars("Write-buffer hit ratio", "hits, % of pages written", &PAPERS, |m| m.hit_ratio * 100.0);
    bars("Erase count", "blocks erased", &PAPERS, |m| m.erases);
    bars("Destage length", "pages, mean", &PAPERS, |m| m.length);
    bars("Merges that gather a logical block (full)", "merges", &PAPERS, |m| m.merges[2] as f64);
    let others = ["cbm", "lb-clock", "cflru", "lru", "none"];
    bars("Average response time, other policies", "response time, µs", &others, |m| m.response_us);
    bars("Erase count, other policies", "blocks erased", &others, |m| m.erases);
    let middle = table.sizes.len() / 2;
    let title = format!("Destage length at {} MiB, cumulative", table.sizes[middle]);
    let mut cdf = figure(&title, Form::Lines, ("pages that leave together", true), ("share of destages", false));
    for policy in PAPERS {
        let of_one = table.of(policy).nth(middle).expect("a result for each size");
        cdf.series.push(series(policy.to_uppercase(), of_one.lengths.iter().copied()));
    }
    findings.figures.push(cdf);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(erases: [[f64; 2]; 8]) -> Table {
        let measured = |erases: f64| Measured {
            requests: 1,
            response_us: erases,
            iops: 1.0,
            hit_ratio: 1.0 / erases,
            erases,
            length: 100.0 / erases,
            lengths: vec![(1.0, 1.0)],
            evictions: 1.0,
            merges: [0; 3],
            copied: 0,
            padding_reads: 0,
            merged: 0,
            write_amplification: 1.0,
        };
        Table { sizes: vec![1.0, 64.0], results: erases.iter().map(|row| row.map(measured).to_vec()).collect() }
    }

    #[test]
    fn ranks_and_gains_are_those_of_the_paper_s_four() {
        let mut rows = [[100.0, 100.0]; 8];
        rows[0] = [50.0, 20.0];
        rows[1] = [100.0, 19.8];
        rows[6] = [1.0, 1.0]; // LRU is not among them.
        let one = table(rows);
        assert_eq!(one.ranks(|m| m.erases), [1, 2]);
        assert!(one.leads(|m| m.erases), "within 2 %");
        let words = one.standing(|m| m.erases, "fewer");
        assert_eq!(
            words,
            "1st, 2nd of 4 by size; fewer by -1 to 50 % than FAB, 50 to 80 % than BPLRU, 50 to 80 % than BPAC"
        );
        rows[1][1] = 19.0;
        let one = table(rows);
        assert!(!one.leads(|m| m.erases));
        assert!(one.is_above(&["bplru"], |m| m.hit_ratio) && !one.is_above(&["fab"], |m| m.hit_ratio));
        let mut findings = Findings::default();
        statements(&mut findings, &one);
        figures(&mut findings, &one);
        assert_eq!(
            findings.checks.iter().map(|check| check.ok).collect::<Vec<_>>(),
            [false, false, false, false, true, true]
        );
        assert!(findings.found[0].contains("80 % fewer erasures (than BPLRU)"), "{:?}", findings.found);
    }
}
