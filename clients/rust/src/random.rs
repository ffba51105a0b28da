/// SplitMix64: equal seeds give equal numbers in every language.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    #[inline]
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// An integer from 0 to `limit` - 1, with `limit` from 1 to 2^32.
    #[inline]
    #[track_caller]
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        assert!(
            (1..=1 << 32).contains(&limit),
            "Random::below: the limit must be from 1 to 2^32, got {limit}"
        );
        (((self.draw() >> 32) * limit) >> 32) as usize
    }

    /// A number from 0 to 1, exclusive.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    #[track_caller]
    pub fn choice<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
