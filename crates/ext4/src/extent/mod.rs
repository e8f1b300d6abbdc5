//! Which blocks a file has: extent trees and block maps.

pub(crate) mod block_map;
mod block_map_free;
mod free_budget;
mod mapping;
mod node;
mod run;
#[cfg(test)]
mod tests;
mod to_extents;
mod tree;
mod update;
mod walk;

pub(crate) use block_map::Limits;
pub(crate) use free_budget::{FREE_CREDIT_COUNT, FreeBudget};
pub(crate) use mapping::Target;
pub(crate) use node::{NodeView, WHOLE_FILE, Window};
pub(crate) use run::Run;
pub(crate) use tree::{
    allocate, append_block, append_credit_count, depth, free_range, init_root, is_empty, map, mark,
};
pub(crate) use update::edit_credit_count;
