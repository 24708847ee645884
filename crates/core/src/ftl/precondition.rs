//! Pasts that a drive can have before a run, and the write amplification of a steady state.

/// Why a drive can't be filled.
pub(super) const TOO_FEW_TO_FILL: &str =
    "factory-bad blocks took more than filling the drive leaves over; give a larger [ftl] spare_blocks";

/// What a drive has been through before a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precondition {
    /// Nothing: every page is erased.
    Fresh,
    /// This share of the logical pages was written once, in order.
    Filled(f64),
    /// All logical pages were written, then overwritten at random and evenly until collection was in its steady state.
    Steady,
}

impl Precondition {
    /// Whether all logical pages were written.
    pub(super) fn is_full(self) -> bool {
        match self {
            Precondition::Fresh => false,
            Precondition::Filled(share) => share >= 1.0,
            Precondition::Steady => true,
        }
    }
}

/// Write amplification of uniform random writes under oldest-first collection, for flash `alpha` times the logical
/// capacity: `A = alpha / (alpha + W(-alpha exp(-alpha)))` with Lambert's W (Desnoyers, SYSTOR 2012, equation 6).
pub fn write_amplification(alpha: f64) -> f64 {
    // The valid share `u` of a victim solves u = exp(-alpha (1 - u)); iterated from below it rises to the root.
    let mut u = 0.0f64;
    for _ in 0..100_000 {
        let next = (-alpha * (1.0 - u)).exp();
        if (next - u).abs() < 1e-14 {
            break;
        }
        u = next;
    }
    1.0 / (1.0 - u)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_analytic_curve_solves_its_equation() {
        // With W the branch of Lambert's function above -1: W exp(W) = -alpha exp(-alpha), by Newton's method.
        for alpha in [1.05f64, 1.07, 1.15, 1.28, 2.0] {
            let target = -alpha * (-alpha).exp();
            let mut w = -0.5f64;
            for _ in 0..200 {
                w -= (w * w.exp() - target) / (w.exp() * (w + 1.0));
            }
            let expected = alpha / (alpha + w);
            assert!((write_amplification(alpha) / expected - 1.0).abs() < 1e-6, "{alpha}: {expected}");
        }
    }
}
