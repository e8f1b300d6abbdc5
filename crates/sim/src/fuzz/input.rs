//! An input, read from its beginning as numbers. After its end, all numbers are zero.

/// The rest of an input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next `count` bytes, or as many as there are.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = tail;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let head = self.take(N);
        let mut array = [0; N];
        array[..head.len()].copy_from_slice(head);
        array
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `count`, from the next byte.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.u8()) % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_after_the_end_give_zeros() {
        let mut input = Input::new(&[1, 2, 3]);
        assert_eq!((input.u8(), input.u32(), input.u8()), (1, 0x0302, 0));
        assert!(input.is_empty() && input.take(3).is_empty());
    }
}
