//! Extended attributes and access control lists, as they are stored.

mod acl;
mod asked;
mod set;
mod stored;

pub(crate) use acl::Acl;
pub(crate) use asked::{asked, atomic_attribute, atomic_volume_attribute, mode_attribute};
pub(crate) use set::{ACL_ACCESS, ACL_DEFAULT, USER_INDEX, XattrName, XattrSet};
pub(crate) use stored::{
    STORE_CREDITS, drop_capabilities, follow_chmod, get, get_acl, has_capabilities, load,
    release_block, store,
};
