//! A file that the extension has nothing to do with.

use std::rc::Rc;

use crate::abi::file::File;
use crate::abi::real::Real;

/// The file.
pub struct Plain(pub Rc<Real>);

impl File for Plain {
    fn below(&self) -> &Real {
        &self.0
    }
}
