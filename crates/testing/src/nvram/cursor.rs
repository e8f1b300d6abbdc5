//! Everything that a power cut can leave of a simulated NVRAM.

use super::cache::NvramCursor;
use crate::power_cut::{Image, Piece, Survival, write_pieces};

impl NvramCursor<'_> {
    /// The number of words and single bytes that a power cut here keeps or loses.
    pub fn choice_count(&self) -> usize {
        self.atoms().len()
    }

    fn atoms(&self) -> Vec<Piece> {
        let (cache, in_flight) = self.state();
        cache.atoms(in_flight)
    }

    /// The content after a power cut at this point. A choice is kept if it is one of the first 64
    /// and its bit in `kept` is 1. All others are lost.
    pub fn crash_keeping(&self, kept: u64) -> Image {
        let atoms = self.atoms();
        let bits = (0..u64::BITS).map(|bit| kept >> bit & 1 == 1);
        let mut image = self.state().0.memory().clone();
        let survivors =
            atoms.into_iter().zip(bits).filter_map(|(atom, keeps)| keeps.then_some(atom));
        write_pieces(&mut image, survivors);
        image
    }

    /// Everything that a power cut at this point can leave, if that is at most `limit_count`
    /// images. Otherwise the extremes and random images, `limit_count` in all.
    pub fn crashes(&self, limit_count: usize) -> impl Iterator<Item = Image> + '_ {
        let all = u32::try_from(self.choice_count()).ok().and_then(|n| 1_u64.checked_shl(n));
        let all = all.filter(|&all| all <= limit_count as u64);
        let extremes = Survival::EXTREMES.into_iter();
        let some = extremes.chain((0..).map(Survival::Random)).take(limit_count);
        let some = some.take(if all.is_some() { 0 } else { limit_count });
        let subsets = (0..all.unwrap_or(0)).map(|kept| self.crash_keeping(kept));
        subsets.chain(some.map(|survival| self.crash(survival)))
    }
}
