//! The smallest cut that still fails.

use crate::state::{At, Lose, State, Tear, plan};
use crate::volume::Volume;
use tidewater_base::Rng;

/// Shrinks a state that fails: an earlier cut if one fails, then as few lost operations as fail. `fails` is asked at
/// most `tries` times; the result is one that it said yes to, or `state` itself.
pub fn shrink(volume: &Volume, state: State, tries: usize, mut fails: impl FnMut(&State) -> bool) -> State {
    let mut smallest = state;
    let mut left = tries;
    let mut cuts = plan(volume, At::Sync, &[Lose::Unsynced], usize::MAX, 0);
    cuts.sort_unstable_by_key(|(cut, _)| *cut);
    for (cut, lose) in cuts.into_iter().take_while(|(cut, _)| *cut < smallest.cut).take(tries / 2).collect::<Vec<_>>() {
        // Nothing is drawn: all is lost that is not synced.
        let earlier = volume.state(cut, lose, Tear::None, &mut Rng::new(0, b"shrink"));
        left -= 1;
        if fails(&earlier) {
            smallest = earlier;
            break;
        }
    }
    // Halves of what is lost, then quarters, down to single operations, are put back.
    let mut part = smallest.lost.len().div_ceil(2);
    while part > 0 && left > 0 {
        let numbers: Vec<u64> = smallest.lost.keys().copied().rev().collect();
        let mut is_smaller = false;
        for chunk in numbers.chunks(part) {
            let mut fewer = smallest.clone();
            fewer.lost.retain(|number, _| !chunk.contains(number));
            volume.close(&mut fewer);
            if left > 0 && fewer.lost.len() < smallest.lost.len() {
                left -= 1;
                if fails(&fewer) {
                    (smallest, is_smaller) = (fewer, true);
                }
            }
        }
        part = match part {
            1 if !is_smaller => 0,
            1 => 1,
            _ => part.div_ceil(2).min(part - 1),
        };
    }
    smallest
}
