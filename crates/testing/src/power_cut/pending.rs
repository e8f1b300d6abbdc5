//! Writes that a power cut may lose.

use super::image::Image;
use super::piece::Piece;

/// Writes that are not durable, in the order in which they were issued. `T` is what their medium
/// knows of each beside its bytes.
#[derive(Debug, Clone)]
pub struct Pending<T>(Vec<(Piece, T)>);

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Pending(Vec::new())
    }
}

impl<T: Clone> Pending<T> {
    /// Adds a write.
    pub fn push(&mut self, piece: Piece, about: T) {
        self.0.push((piece, about));
    }

    /// The writes, oldest first. A write that has lost bytes in its middle is two.
    pub fn iter(&self) -> impl Iterator<Item = (&Piece, &T)> {
        self.0.iter().map(|(piece, about)| (piece, about))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Piece, &mut T)> {
        self.0.iter_mut().map(|(piece, about)| (piece, about))
    }

    /// Writes these writes to `image`, where they are durable. The bytes that they replaced do not
    /// come back.
    pub(crate) fn settle(&mut self, image: &mut Image, is_settled: impl Fn(&T) -> bool) {
        let settled = self.take(is_settled, |_, _| true);
        settled.iter().for_each(|(piece, _)| piece.write_to(image));
    }

    /// Takes out the writes that became durable. Older writes that stay lose the bytes that these
    /// replaced, if `gives_way(older, newer)`.
    pub fn take(
        &mut self,
        is_settled: impl Fn(&T) -> bool,
        gives_way: impl Fn(&T, &T) -> bool,
    ) -> Vec<(Piece, T)> {
        let (mut others, mut settled) = (Pending::default(), Vec::new());
        for (piece, about) in std::mem::take(&mut self.0) {
            if is_settled(&about) {
                others.give_way(&piece, |older| gives_way(older, &about));
                settled.push((piece, about));
            } else {
                others.push(piece, about);
            }
        }
        *self = others;
        settled
    }

    /// Removes the bytes that `newer` has replaced durably from the writes that are older.
    pub(crate) fn give_way(&mut self, newer: &Piece, is_older: impl Fn(&T) -> bool) {
        let span = newer.offset()..newer.end();
        let is_changed = |(piece, about): &(Piece, T)| {
            is_older(about) && piece.offset() < span.end && span.start < piece.end()
        };
        if !self.0.iter().any(is_changed) {
            return;
        }
        for write in std::mem::take(&mut self.0) {
            if is_changed(&write) {
                let [before, _, after] = write.0.around(span.clone());
                let rest = [before, after].into_iter().filter(|piece| !piece.bytes().is_empty());
                self.0.extend(rest.map(|piece| (piece, write.1.clone())));
            } else {
                self.0.push(write);
            }
        }
    }
}
