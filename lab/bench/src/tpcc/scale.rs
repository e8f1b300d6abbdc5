//! How many rows a database has: the standard's cardinalities (clause 4.3), or smaller ones of the
//! same shape.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Districts of a warehouse, at every scale.
pub const DISTRICT_COUNT: u32 = 10;

/// Cardinalities by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// The standard's
    Full,
    /// Items, customers, orders and last names divided by ten, NURand's constants A by eight; for
    /// quick runs
    Small,
}

impl Scale {
    /// Its name on the command line and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Full => "full",
            Scale::Small => "small",
        }
    }

    /// The scale of this name.
    pub fn from_name(name: &str) -> Option<Scale> {
        [Scale::Full, Scale::Small].into_iter().find(|scale| scale.name() == name)
    }

    fn divisor(self) -> u32 {
        match self {
            Scale::Full => 1,
            Scale::Small => 10,
        }
    }

    /// Rows of ITEM, and of STOCK in a warehouse.
    pub fn item_count(self) -> u32 {
        100_000 / self.divisor()
    }

    /// Customers of a district; also its orders when it is loaded.
    pub fn customer_count(self) -> u32 {
        3_000 / self.divisor()
    }

    /// The newest orders of a district, which are not delivered when it is loaded.
    pub fn undelivered_count(self) -> u32 {
        900 / self.divisor()
    }

    /// Last names that customers have.
    pub fn last_name_count(self) -> u32 {
        1_000 / self.divisor()
    }

    /// NURand's constant A for last names, customers and items (clause 2.1.6).
    pub fn nurand_a(self) -> [u32; 3] {
        match self {
            Scale::Full => [255, 1023, 8191],
            Scale::Small => [31, 127, 1023],
        }
    }
}
