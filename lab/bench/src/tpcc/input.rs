//! The requests of the terminals: a deck of transactions, and the input of each (clauses 2.4.1 to
//! 2.8.1 and 5.2.4).
//!
//! There are no keying and think times: one client sends requests as fast as they are answered, for
//! all terminals in turn. The warehouse of each transaction (and for Stock-Level the district) is
//! drawn at random.

use serde::Serialize;

use super::random::Random;
use super::scale::{DISTRICT_COUNT, Scale};

/// A transaction's profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// An order of 5 to 15 lines.
    NewOrder,
    /// A customer pays.
    Payment,
    /// A customer's newest order is read.
    OrderStatus,
    /// The oldest order of each district of a warehouse is delivered.
    Delivery,
    /// Counts how many of the items sold lately are short.
    StockLevel,
}

impl Profile {
    /// All profiles, in the standard's order.
    pub const ALL: [Profile; 5] = [
        Profile::NewOrder,
        Profile::Payment,
        Profile::OrderStatus,
        Profile::Delivery,
        Profile::StockLevel,
    ];

    /// Cards in a deck of a hundred. All profiles except New-Order have the least number that the
    /// standard allows; New-Order has the rest.
    pub fn card_count(self) -> usize {
        match self {
            Profile::NewOrder => 45,
            Profile::Payment => 43,
            Profile::OrderStatus | Profile::Delivery | Profile::StockLevel => 4,
        }
    }
}

/// A customer, as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Customer {
    /// By number.
    Number(u32),
    /// The middle one of this last name.
    LastName(String),
}

/// One line of a new order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The item. If the order has to fail, it is one more than the last item.
    pub item: u32,
    /// The warehouse that supplies it.
    pub supply_warehouse: u32,
    /// The quantity.
    pub quantity: u32,
}

/// Input of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the standard's words
pub enum Input {
    NewOrder {
        warehouse: u32,
        district: u32,
        customer: u32,
        lines: Vec<Line>,
    },
    Payment {
        warehouse: u32,
        district: u32,
        customer_warehouse: u32,
        customer_district: u32,
        customer: Customer,
        amount_cents: u32,
    },
    OrderStatus {
        warehouse: u32,
        district: u32,
        customer: Customer,
    },
    Delivery {
        warehouse: u32,
        carrier: u32,
    },
    StockLevel {
        warehouse: u32,
        district: u32,
        threshold: u32,
    },
}

/// Deals transactions.
pub struct Terminals {
    random: Random,
    scale: Scale,
    warehouse_count: u32,
    deck: Vec<Profile>,
}

impl Terminals {
    /// Terminals of this number of warehouses.
    pub fn new(random: Random, scale: Scale, warehouse_count: u32) -> Terminals {
        Terminals { random, scale, warehouse_count, deck: Vec::new() }
    }

    /// The next transaction: the top card of the deck. When the deck is used up, it is shuffled
    /// again.
    pub fn next(&mut self) -> (Profile, Input) {
        if self.deck.is_empty() {
            for profile in Profile::ALL {
                self.deck.extend(std::iter::repeat_n(profile, profile.card_count()));
            }
            self.random.shuffle(&mut self.deck);
        }
        let profile = self.deck.pop().expect("a deck was just made");
        (profile, self.input(profile))
    }

    fn input(&mut self, profile: Profile) -> Input {
        let warehouse = self.random.uniform(1, self.warehouse_count);
        match profile {
            Profile::NewOrder => self.new_order(warehouse),
            Profile::Payment => self.payment(warehouse),
            Profile::OrderStatus => Input::OrderStatus {
                warehouse,
                district: self.district(),
                customer: self.customer(),
            },
            Profile::Delivery => Input::Delivery { warehouse, carrier: self.random.uniform(1, 10) },
            Profile::StockLevel => Input::StockLevel {
                warehouse,
                district: self.district(),
                threshold: self.random.uniform(10, 20),
            },
        }
    }

    fn district(&mut self) -> u32 {
        self.random.uniform(1, DISTRICT_COUNT)
    }

    fn customer(&mut self) -> Customer {
        if self.random.percent(60) {
            Customer::LastName(self.random.last_name())
        } else {
            Customer::Number(self.random.customer())
        }
    }

    fn new_order(&mut self, warehouse: u32) -> Input {
        let random = &mut self.random;
        let district = random.uniform(1, DISTRICT_COUNT);
        let customer = random.customer();
        let line_count = random.uniform(5, 15);
        let mut lines: Vec<Line> = (0..line_count)
            .map(|_| {
                let is_remote = random.percent(1);
                Line {
                    item: random.item(),
                    supply_warehouse: if is_remote {
                        random.remote_warehouse(warehouse, self.warehouse_count)
                    } else {
                        warehouse
                    },
                    quantity: random.uniform(1, 10),
                }
            })
            .collect();
        if random.percent(1) {
            lines.last_mut().expect("5 lines at least").item = self.scale.item_count() + 1;
        }
        Input::NewOrder { warehouse, district, customer, lines }
    }

    fn payment(&mut self, warehouse: u32) -> Input {
        let district = self.district();
        let (customer_warehouse, customer_district) = if self.random.percent(15) {
            let remote = self.random.remote_warehouse(warehouse, self.warehouse_count);
            (remote, self.district())
        } else {
            (warehouse, district)
        };
        Input::Payment {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: self.customer(),
            amount_cents: self.random.uniform(100, 500_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminals() -> Terminals {
        Terminals::new(Random::for_load(7, Scale::Full), Scale::Full, 10)
    }

    #[test]
    fn every_hundred_transactions_have_the_mix() {
        let mut terminals = terminals();
        let decks: Vec<Vec<Profile>> =
            (0..20).map(|_| (0..100).map(|_| terminals.next().0).collect()).collect();
        for deck in &decks {
            for profile in Profile::ALL {
                let count = deck.iter().filter(|card| **card == profile).count();
                assert_eq!(count, profile.card_count());
            }
        }
        assert_ne!(decks[0], decks[1]);
        assert_eq!(Profile::ALL.map(Profile::card_count), [45, 43, 4, 4, 4]);
    }

    /// A share of `total`, in per mille.
    fn per_mille(count: usize, total: usize) -> usize {
        count * 1000 / total
    }

    #[test]
    fn new_orders_are_as_the_standard_says() {
        let mut terminals = terminals();
        let mut failing = 0;
        let mut lines = Vec::new();
        let orders = 20_000;
        for _ in 0..orders {
            let Input::NewOrder { warehouse, district, customer, lines: own } =
                terminals.input(Profile::NewOrder)
            else {
                panic!("not a new order")
            };
            assert!((1..=10).contains(&warehouse) && (1..=10).contains(&district));
            assert!((1..=3000).contains(&customer) && (5..=15).contains(&own.len()));
            let (last, others) = own.split_last().unwrap();
            assert!(others.iter().all(|line| (1..=100_000).contains(&line.item)));
            failing += usize::from(last.item == 100_001);
            assert!(last.item <= 100_001);
            lines.extend(own.into_iter().map(|line| (warehouse, line)));
        }
        assert!((7..=13).contains(&per_mille(failing, orders)), "{failing}");
        let remote = lines.iter().filter(|(home, line)| line.supply_warehouse != *home).count();
        assert!((8..=12).contains(&per_mille(remote, lines.len())), "{remote}");
        assert!(lines.iter().all(|(_, line)| (1..=10).contains(&line.quantity)));
        assert!((9_800..=10_200).contains(&(lines.len() * 1000 / orders)));
    }

    #[test]
    fn payments_are_as_the_standard_says() {
        let mut terminals = terminals();
        let (mut remote, mut by_name) = (0, 0);
        let payments = 20_000;
        for _ in 0..payments {
            let Input::Payment {
                warehouse,
                district,
                customer_warehouse,
                customer_district,
                customer,
                amount_cents,
            } = terminals.input(Profile::Payment)
            else {
                panic!("not a payment")
            };
            assert!((100..=500_000).contains(&amount_cents));
            let is_remote = customer_warehouse != warehouse;
            assert!(is_remote || customer_district == district);
            remote += usize::from(is_remote);
            by_name += usize::from(matches!(customer, Customer::LastName(_)));
        }
        assert!((140..=160).contains(&per_mille(remote, payments)), "{remote}");
        assert!((585..=615).contains(&per_mille(by_name, payments)), "{by_name}");
    }

    #[test]
    fn a_single_warehouse_has_nothing_remote() {
        let mut terminals = Terminals::new(Random::for_load(7, Scale::Small), Scale::Small, 1);
        for _ in 0..2000 {
            match terminals.next().1 {
                Input::NewOrder { lines, .. } => {
                    assert!(lines.iter().all(|line| line.supply_warehouse == 1));
                }
                Input::Payment { customer_warehouse, .. } => assert_eq!(customer_warehouse, 1),
                _ => {}
            }
        }
    }
}
