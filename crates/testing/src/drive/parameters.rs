//! The costs of a device: parameters by name, and presets.

use serde::Serialize;

/// Times are in microseconds, rates in MB (10^6 bytes) each second. A rate of 0 means no cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameters {
    /// Latency of a write after its transfer.
    pub write_us: f64,
    /// Rate of a write's transfer.
    pub write_mb_s: f64,
    /// Latency of a read.
    pub read_us: f64,
    /// Rate of a read's transfer.
    pub read_mb_s: f64,
    /// Fixed time of a flush; a tenth of it if nothing was written since the last flush.
    pub flush_us: f64,
    /// Time that a flush takes for each extent that was written since the last flush, except the
    /// first.
    pub extent_us: f64,
    /// Requests whose latencies overlap, 1 to 256.
    pub channels: usize,
    /// Whether a flush keeps all channels busy.
    pub flush_blocks: bool,
    /// Whether unflushed data are lost in a crash.
    pub volatile_cache: bool,
    /// Time of a revolution; above 0 the disk rotates: reads and flushed extents seek.
    pub revolution_us: f64,
    /// How long before an answer is due the clock is polled.
    pub spin_us: f64,
}

const CHANNEL_COUNT_MAX: usize = 256;

/// No latency at all.
const ZERO: Parameters = Parameters {
    write_us: 0.0,
    write_mb_s: 0.0,
    read_us: 0.0,
    read_mb_s: 0.0,
    flush_us: 0.0,
    extent_us: 0.0,
    channels: 64,
    flush_blocks: false,
    volatile_cache: false,
    revolution_us: 0.0,
    spin_us: 60.0,
};

/// With a volatile cache. While a flush writes it out, nothing else is done.
const CACHED: Parameters = Parameters { flush_blocks: true, volatile_cache: true, ..ZERO };

/// Name, the device that it stands for, and values.
const PRESETS: [(&str, &str, Parameters); 7] = [
    ("zero", "memory, without latency", ZERO),
    (
        "emmc",
        "eMMC of a tablet",
        Parameters {
            write_us: 350.0,
            write_mb_s: 18.0,
            read_us: 200.0,
            read_mb_s: 40.0,
            flush_us: 1500.0,
            extent_us: 250.0,
            channels: 1,
            ..CACHED
        },
    ),
    (
        "ssd311",
        "Intel 311, SATA SSD without power-loss protection",
        Parameters {
            write_us: 50.0,
            write_mb_s: 105.0,
            read_us: 70.0,
            read_mb_s: 170.0,
            flush_us: 250.0,
            extent_us: 30.0,
            channels: 8,
            ..CACHED
        },
    ),
    (
        "ssd840",
        "Samsung 840, SATA SSD without power-loss protection",
        Parameters {
            write_us: 40.0,
            write_mb_s: 130.0,
            read_us: 90.0,
            read_mb_s: 500.0,
            flush_us: 1800.0,
            extent_us: 20.0,
            channels: 16,
            ..CACHED
        },
    ),
    (
        "cloud",
        "network disk of 1 ms, 3,000 requests a second, durable when written (AWS EBS gp3)",
        // What AWS publishes of a gp3 volume without extra charge: 3,000 I/Os a second, 125 MiB/s,
        // latencies of milliseconds with one digit.
        Parameters {
            write_us: 1000.0,
            write_mb_s: 131.0,
            read_us: 1000.0,
            read_mb_s: 131.0,
            channels: 3,
            ..ZERO
        },
    ),
    (
        "nvme",
        "NVMe SSD with power-loss protection",
        Parameters { write_us: 8.0, write_mb_s: 2000.0, read_us: 60.0, read_mb_s: 3000.0, ..ZERO },
    ),
    (
        "hdd",
        "disk of 7200 revolutions a minute with a write cache",
        Parameters {
            write_us: 40.0,
            write_mb_s: 150.0,
            read_mb_s: 150.0,
            flush_us: 100.0,
            channels: 1,
            revolution_us: 8333.0,
            ..CACHED
        },
    ),
];

/// The error of a parameter.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// No such preset.
    #[error("no preset `{0}`; there are {names}", names = preset_names())]
    Preset(String),
    /// No such parameter.
    #[error("no parameter `{0}`")]
    Key(String),
    /// A value that is not allowed for the parameter.
    #[error("{key}={value}: {why}")]
    Value {
        /// The parameter.
        key: String,
        /// The value.
        value: String,
        /// The allowed values.
        why: &'static str,
    },
}

fn preset_names() -> String {
    PRESETS.map(|(name, _, _)| name).join(", ")
}

/// The presets and parameters, for `--help`.
pub fn help() -> String {
    let presets = PRESETS.map(|(name, what, _)| format!("  {name:<8} {what}\n")).concat();
    let json = serde_json::to_value(ZERO).expect("plain numbers");
    let keys: Vec<&str> = json.as_object().expect("fields").keys().map(String::as_str).collect();
    format!("Presets:\n{presets}\nParameters: {}", keys.join(", "))
}

impl Parameters {
    /// The preset of this name.
    pub fn preset(name: &str) -> Result<Parameters, ParameterError> {
        let found = PRESETS.iter().find(|(known, _, _)| *known == name);
        found
            .map(|(_, _, parameters)| parameters.clone())
            .ok_or_else(|| ParameterError::Preset(name.to_owned()))
    }

    /// Whether a flush does anything. Without a cache and without a cost, each write is durable
    /// when it is answered, and the kernel sends such a disk no flushes.
    pub fn has_flushes(&self) -> bool {
        let has_cost = self.flush_us > 0.0 || self.extent_us > 0.0 || self.revolution_us > 0.0;
        self.volatile_cache || has_cost
    }

    /// Applies presets and `key=value` pairs, separated by commas or spaces. If one is wrong,
    /// applies none.
    pub fn apply(&mut self, text: &str) -> Result<(), ParameterError> {
        let mut changed = self.clone();
        for word in text.split([',', ' ', '\n']).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((key, value)) => changed.set(key, value)?,
                None => changed = Parameters::preset(word)?,
            }
        }
        *self = changed;
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ParameterError> {
        let wrong = |why| ParameterError::Value { key: key.into(), value: value.into(), why };
        let place = match key {
            "channels" => {
                let count = value.parse().ok();
                let count = count.filter(|count| (1..=CHANNEL_COUNT_MAX).contains(count));
                self.channels = count.ok_or_else(|| wrong("a number from 1 to 256"))?;
                return Ok(());
            }
            "flush_blocks" | "volatile_cache" => {
                let flag = match value {
                    "0" | "false" => false,
                    "1" | "true" => true,
                    _ => return Err(wrong("0 or 1")),
                };
                let is_cache = key == "volatile_cache";
                *(if is_cache { &mut self.volatile_cache } else { &mut self.flush_blocks }) = flag;
                return Ok(());
            }
            "write_us" => &mut self.write_us,
            "write_mb_s" => &mut self.write_mb_s,
            "read_us" => &mut self.read_us,
            "read_mb_s" => &mut self.read_mb_s,
            "flush_us" => &mut self.flush_us,
            "extent_us" => &mut self.extent_us,
            "revolution_us" => &mut self.revolution_us,
            "spin_us" => &mut self.spin_us,
            _ => return Err(ParameterError::Key(key.to_owned())),
        };
        let number = value.parse().ok().filter(|number| (0.0..=1e9).contains(number));
        *place = number.ok_or_else(|| wrong("a number from 0 to 1e9"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_and_pairs_are_applied_in_order_or_not_at_all() {
        let mut parameters = Parameters::preset("zero").unwrap();
        parameters.apply("ssd311,flush_us=7 channels=2,volatile_cache=0\n").unwrap();
        let expected = Parameters {
            flush_us: 7.0,
            channels: 2,
            volatile_cache: false,
            ..Parameters::preset("ssd311").unwrap()
        };
        assert_eq!(parameters, expected);
        for (wrong, message) in [
            ("write_us=1,none=2", "no parameter `none`"),
            ("write_us=1,channels=0", "channels=0: a number from 1 to 256"),
            ("write_us=1,read_us=-1", "read_us=-1: a number from 0 to 1e9"),
            ("write_us=1,read_us=NaN", "read_us=NaN: a number from 0 to 1e9"),
            ("write_us=1,flush_blocks=2", "flush_blocks=2: 0 or 1"),
        ] {
            assert_eq!(parameters.apply(wrong).unwrap_err().to_string(), message);
            assert_eq!(parameters, expected);
        }
        assert!(parameters.apply("ssd").unwrap_err().to_string().contains("there are zero, emmc"));
    }

    #[test]
    fn every_parameter_that_is_shown_can_be_set() {
        let mut parameters = ZERO;
        for (key, value) in serde_json::to_value(ZERO).unwrap().as_object().unwrap() {
            parameters.apply(&format!("{key}={value}")).unwrap();
        }
        assert_eq!(parameters, ZERO);
    }
}
