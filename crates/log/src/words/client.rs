//! The process that holds a word, and how a word is claimed.

use super::memory::Memory;

/// A process that takes part in a service: its slot, and how often the slot has been taken. 0 is no
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(pub(crate) u64);

impl Client {
    pub(crate) const NOBODY: Client = Client(0);

    pub(crate) fn new(slot: usize, generation: u64) -> Client {
        Client(generation << 16 | (slot as u64 + 1))
    }

    /// The same client, with the mark that it holds a lease only while it frees the chunks of an
    /// idle lane.
    pub(crate) fn for_a_moment(self) -> Client {
        Client(self.0 | 1 << 63)
    }

    /// Whether it has that mark: it will release the lease without being asked.
    pub(crate) fn is_for_a_moment(self) -> bool {
        self.0 >> 63 != 0
    }

    /// The same client without that mark.
    pub(crate) fn plain(self) -> Client {
        Client(self.0 & !(1 << 63))
    }

    pub(crate) fn slot(self) -> Option<usize> {
        let slot = usize::try_from(self.0 & 0xffff).expect("16 bits");
        slot.checked_sub(1)
    }
}

/// Takes the word at `index` for `client` if no client has it, or if `is_dead` says that its holder
/// is dead. Returns the previous holder.
pub(super) fn claim(
    memory: &Memory,
    index: usize,
    client: Client,
    is_dead: impl Fn(Client) -> bool,
) -> Option<Client> {
    let mut held = memory.get(index);
    loop {
        if held != 0 && !is_dead(Client(held)) {
            return None;
        }
        match memory.exchange(index, held, client.0) {
            Ok(_) => return Some(Client(held)),
            Err(other) => held = other,
        }
    }
}
