//! How a changed block is written: the bytes of the record forms `extent` and `delta`.
//!
//! Pure functions over bytes; nothing here knows tags, records or I/O.
//!
//! | module | what it encodes | replay |
//! |---|---|---|
//! | [`runs`] | after-images of changed byte runs, found by comparing with the base (delta form) | idempotent |
//! | [`extent`] | after-images of the byte ranges that were written (extent form), same bytes as [`runs`] | idempotent |
//! | [`xor_lzo`] | XOR with the base, compressed with LZO1X: DJFS' own delta | needs the exact base |
//! | [`copy`] | literal bytes, copies of blocks that the region holds, and bytes that stay | idempotent |
//! | [`compress`] | a whole payload with LZ4, if that makes it smaller | - |
//!
//! **Idempotent** means: a block goes through the versions v0, v1, … vn, and di is the encoding of
//! the step to vi. Applying d1 … dn in order gives vn over *any* block in which each byte comes
//! from one of v0 … vn: over v0, over vn, over a block of which a checkpoint wrote some sectors.
//! The reason: a byte that is in no list is the same in all versions, and any other byte gets its
//! last value from the last list that contains it. So no whole block has to be logged before the
//! first delta.
//!
//! Encoders append to a `Vec`. They give up and leave it as it was if the result would exceed a
//! budget, because another form is then smaller. Decoders check everything before they change the
//! block. For a list of runs they accept exactly one encoding.

mod changed;
pub mod compress;
pub mod copy;
mod delta_codec;
mod error;
pub mod extent;
mod lzo1x;
mod offsets;
pub mod runs;
pub(crate) mod window;
pub mod xor_lzo;

pub use delta_codec::DeltaCodec;
pub use error::CodecError;
